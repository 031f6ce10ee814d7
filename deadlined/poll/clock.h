/* Python's time.perf_counter() for compiled code: the same clock, rounded in the same way. See setup.py. */

#ifndef DEADLINED_CLOCK_H
#define DEADLINED_CLOCK_H

#include <stdint.h>
#include <time.h>

#define DEADLINED_SECOND 1000000000

static inline double deadlined_perf_counter(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_nsec == 0)
        return (double)now.tv_sec;
    return (double)((int64_t)now.tv_sec * DEADLINED_SECOND + now.tv_nsec) / DEADLINED_SECOND;
}

#endif

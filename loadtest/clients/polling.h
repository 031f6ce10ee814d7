/* What the clients in C share: how they fail, their clock, their connections, and a loop that polls and never sleeps. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256, FAILED = 1, USAGE = 2, AT_FAULT = 3 };

/* seconds without any answer after which a server counts as dead */
static const double PATIENCE = 5.0;

static void fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(code);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* connect to the server; return the descriptor */
static int connected(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        fail(FAILED, "cannot connect to port %d: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

/* let the poller give `peer` for these events; `operation` is EPOLL_CTL_ADD or EPOLL_CTL_MOD */
static void watch(int poller, int operation, int fd, void *peer, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};
    if (epoll_ctl(poller, operation, fd, &event))
        fail(FAILED, "epoll: %s", strerror(errno));
}

/* exchange messages for some seconds, and return how many came back; `go_on` handles an event of a peer, and returns 1
 * if a message has come back */
static uint64_t exchange(int poller, double seconds, int (*go_on)(void *peer))
{
    struct epoll_event events[BATCH];
    uint64_t messages = 0;
    double time = now(), end = time + seconds, heard = time;
    while (time < end) {
        int ready = epoll_wait(poller, events, BATCH, 0);
        for (int event = 0; event < ready; event++)
            messages += (uint64_t)go_on(events[event].data.ptr);
        time = now();
        if (ready > 0)
            heard = time;
        else if (time - heard > PATIENCE)
            fail(AT_FAULT, "the server sent nothing for %.0f s", PATIENCE);
    }
    return messages;
}

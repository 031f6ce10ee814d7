/* Echo client: measures the 64-byte messages per second that a server sends back, and the CPU time it uses.
 *
 *     echo PORT CONNECTIONS WARM SECONDS PAUSE PID
 *
 * Facts      One message is in flight on each connection; the next is sent PAUSE seconds after the last has come back.
 *            A pause is one connection's: others would wait for its end.
 * Hazard     A client that sleeps makes the server wake it, which is then measured as well. A server that mixes up its
 *            connections could be fast and wrong.
 * Answer     The client polls and never sleeps. Every message is different, and every byte is compared.
 * Cost       A core of its own. CPU time is the kernel's count of all threads of process PID, on Linux.
 *
 * Prints one line of JSON after WARM seconds that are not counted: the messages, the seconds, and the CPU seconds that
 * the server used. Exit codes: 0 measured, 1 failed, 2 wrong arguments, 3 the server is at fault.
 */
#include "polling.h"

#include <dirent.h>

enum { SIZE = 64, WORDS = SIZE / 8 };

/* seconds between an answer and the next message */
static double pause_seconds;

struct peer {
    int fd;
    size_t got;           /* bytes of the current message that have come back */
    uint64_t seed;        /* differs for each connection and each message */
    uint64_t sent[WORDS];
};

/* seconds that all threads of a process have run so far */
static double cpu_of(const char *pid)
{
    char path[600];
    double total = 0;
    snprintf(path, sizeof path, "/proc/%s/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        fail(FAILED, "cannot read %s: %s", path, strerror(errno));
    for (struct dirent *task; (task = readdir(tasks));) {
        unsigned long long nanoseconds;
        snprintf(path, sizeof path, "/proc/%s/task/%s/schedstat", pid, task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        if (fscanf(file, "%llu", &nanoseconds) == 1)
            total += (double)nanoseconds * 1e-9;
        fclose(file);
    }
    closedir(tasks);
    return total;
}

static void send_next(struct peer *peer)
{
    for (int word = 0; word < WORDS; word++) { /* an xorshift generator */
        peer->seed ^= peer->seed << 13;
        peer->seed ^= peer->seed >> 7;
        peer->seed ^= peer->seed << 17;
        peer->sent[word] = peer->seed;
    }
    peer->got = 0;
    /* the connection's buffers are empty, so the kernel accepts it whole */
    if (send(peer->fd, peer->sent, SIZE, MSG_NOSIGNAL) != SIZE)
        fail(AT_FAULT, "sending failed: %s", strerror(errno));
}

/* receive; 1 if the message is complete */
static int receive(struct peer *peer)
{
    char data[SIZE + 1]; /* one byte more than a message, to detect too many */
    ssize_t size = recv(peer->fd, data, SIZE + 1 - peer->got, 0);
    if (size < 0 && errno == EAGAIN)
        return 0;
    if (size <= 0)
        fail(AT_FAULT, "the server closed the connection: %s", size ? strerror(errno) : "end of stream");
    if (peer->got + (size_t)size > SIZE)
        fail(AT_FAULT, "the server sent more than it was sent");
    if (memcmp((char *)peer->sent + peer->got, data, (size_t)size))
        fail(AT_FAULT, "the server sent other bytes than it was sent");
    peer->got += (size_t)size;
    return peer->got == SIZE;
}

/* let some seconds pass without sleeping */
static void spin(double seconds)
{
    for (double end = now() + seconds; now() < end;)
        ;
}

/* receive, and send the next message if this one is complete; 1 if it is */
static int go_on(void *of)
{
    struct peer *peer = of;
    if (!receive(peer))
        return 0;
    if (pause_seconds > 0)
        spin(pause_seconds);
    send_next(peer);
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 7)
        fail(USAGE, "usage: %s PORT CONNECTIONS WARM SECONDS PAUSE PID", arguments[0]);
    int port = atoi(arguments[1]), connections = atoi(arguments[2]), poller = epoll_create1(0);
    double warm = atof(arguments[3]), seconds = atof(arguments[4]);
    pause_seconds = atof(arguments[5]);
    struct peer *peers = connections > 0 ? calloc((size_t)connections, sizeof *peers) : NULL;
    if (!peers || poller < 0 || seconds <= 0)
        fail(USAGE, "cannot measure %s connections for %s s", arguments[2], arguments[4]);
    for (int number = 0; number < connections; number++) {
        peers[number] = (struct peer){.fd = connected(port), .seed = 0x9e3779b97f4a7c15u * (uint64_t)(number + 1)};
        watch(poller, EPOLL_CTL_ADD, peers[number].fd, &peers[number], EPOLLIN);
    }
    for (int number = 0; number < connections; number++)
        send_next(&peers[number]);
    exchange(poller, warm, go_on);
    double cpu = cpu_of(arguments[6]), began = now();
    uint64_t messages = exchange(poller, seconds, go_on);
    double ended = now();
    printf("{\"messages\": %llu, \"seconds\": %.6f, \"cpu\": %.6f}\n", (unsigned long long)messages, ended - began,
           cpu_of(arguments[6]) - cpu);
    return 0;
}

/* Client of many websockets: measures the messages per second that a server echoes.
 *
 *     websocket PORT CONNECTIONS BYTES text|binary WARM SECONDS
 *
 * Facts      One message is in flight on each connection; the next is sent when the last has come back.
 * Hazard     A client that sleeps makes the server wake it, which is then measured as well. A server that mixes up its
 *            connections, or does not unmask, could be fast and wrong.
 * Answer     The client polls and never sleeps. The messages of each connection are different, and every byte is
 *            compared. They are masked with a key that is not zero, once, because masking would cost the client time.
 * Cost       A core of its own.
 *
 * Prints one line of JSON after WARM seconds that are not counted: the messages and the seconds. Exit codes: 0
 * measured, 1 failed, 2 wrong arguments, 3 the server is at fault.
 */
#include "polling.h"

#include <fcntl.h>

enum { HEAD = 10, KEY = 4 };

static const char HANDSHAKE[] =
    "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

static int poller;

struct peer {
    int fd;
    size_t sent, got;     /* bytes of the current message that have left, and of its echo that have come */
    size_t length, wanted; /* of the frame and of its echo */
    unsigned char *frame, *echo, *received;
};

/* write the head of a whole message without its key; return its length */
static size_t write_head(unsigned char *frame, unsigned char opcode, unsigned char masks, uint64_t size)
{
    int bytes = size < 126 ? 0 : size < 65536 ? 2 : 8;
    frame[0] = 0x80 | opcode;
    frame[1] = masks | (bytes == 0 ? (unsigned char)size : bytes == 2 ? 126 : 127);
    for (int byte = 0; byte < bytes; byte++)
        frame[2 + byte] = (unsigned char)(size >> 8 * (bytes - 1 - byte));
    return 2 + (size_t)bytes;
}

static void make_message(struct peer *peer, int number, unsigned char opcode, size_t size)
{
    static const unsigned char key[KEY] = {0x37, 0xfa, 0x21, 0x3d};
    peer->frame = malloc(HEAD + KEY + size);
    peer->echo = malloc(HEAD + size);
    peer->received = malloc(HEAD + size + 1);
    if (!peer->frame || !peer->echo || !peer->received)
        fail(FAILED, "no memory");
    size_t head = write_head(peer->frame, opcode, 0x80, size), echoed = write_head(peer->echo, opcode, 0, size);
    memcpy(peer->frame + head, key, KEY);
    head += KEY;
    for (size_t byte = 0; byte < size; byte++) {
        unsigned char letter = (unsigned char)('0' + (byte * 7 + (size_t)number) % 75);
        peer->echo[echoed + byte] = letter;
        peer->frame[head + byte] = letter ^ key[byte % KEY];
    }
    peer->length = head + size;
    peer->wanted = echoed + size;
}

/* send what the kernel takes of the message */
static void send_on(struct peer *peer)
{
    int waited = peer->sent > 0;
    ssize_t size = send(peer->fd, peer->frame + peer->sent, peer->length - peer->sent, MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN)
        fail(AT_FAULT, "sending failed: %s", strerror(errno));
    peer->sent += size < 0 ? 0 : (size_t)size;
    if (waited || peer->sent < peer->length)
        watch(poller, EPOLL_CTL_MOD, peer->fd, peer, peer->sent < peer->length ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void send_next(struct peer *peer)
{
    peer->sent = peer->got = 0;
    send_on(peer);
}

/* receive; 1 if the echo is complete */
static int receive(struct peer *peer)
{
    /* one byte more than an echo, to detect too many */
    ssize_t size = recv(peer->fd, peer->received + peer->got, peer->wanted + 1 - peer->got, 0);
    if (size < 0 && errno == EAGAIN)
        return 0;
    if (size <= 0)
        fail(AT_FAULT, "the server closed the connection: %s", size ? strerror(errno) : "end of stream");
    peer->got += (size_t)size;
    if (peer->got < peer->wanted)
        return 0;
    if (peer->got > peer->wanted || memcmp(peer->received, peer->echo, peer->wanted))
        fail(AT_FAULT, "the server sent something else than the echo");
    return 1;
}

static void open_peer(struct peer *peer, int port)
{
    struct timeval patience = {.tv_sec = (time_t)PATIENCE};
    char answer[4096];
    size_t got = 0;
    peer->fd = connected(port);
    setsockopt(peer->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (send(peer->fd, HANDSHAKE, sizeof HANDSHAKE - 1, MSG_NOSIGNAL) < 0)
        fail(AT_FAULT, "sending failed: %s", strerror(errno));
    do {
        ssize_t size = recv(peer->fd, answer + got, sizeof answer - 1 - got, 0);
        if (size <= 0)
            fail(AT_FAULT, "no answer to the handshake");
        got += (size_t)size;
        answer[got] = 0;
    } while (!strstr(answer, "\r\n\r\n"));
    if (strncmp(answer, "HTTP/1.1 101 ", 13))
        fail(AT_FAULT, "no websocket: %s", answer);
    fcntl(peer->fd, F_SETFL, O_NONBLOCK);
    watch(poller, EPOLL_CTL_ADD, peer->fd, peer, EPOLLIN);
}

/* send the rest of a message, or receive, and send it again if its echo is complete; 1 if it is */
static int go_on(void *of)
{
    struct peer *peer = of;
    if (peer->sent < peer->length) {
        send_on(peer);
        return 0;
    }
    if (!receive(peer))
        return 0;
    send_next(peer);
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 7 || (strcmp(arguments[4], "text") && strcmp(arguments[4], "binary")))
        fail(USAGE, "usage: %s PORT CONNECTIONS BYTES text|binary WARM SECONDS", arguments[0]);
    int port = atoi(arguments[1]), connections = atoi(arguments[2]);
    size_t size = strtoul(arguments[3], NULL, 10);
    unsigned char opcode = strcmp(arguments[4], "text") ? 2 : 1;
    double warm = atof(arguments[5]), seconds = atof(arguments[6]);
    poller = epoll_create1(0);
    struct peer *peers = connections > 0 ? calloc((size_t)connections, sizeof *peers) : NULL;
    if (!peers || poller < 0 || seconds <= 0)
        fail(USAGE, "cannot measure %s connections for %s s", arguments[2], arguments[6]);
    for (int number = 0; number < connections; number++) {
        make_message(&peers[number], number, opcode, size);
        open_peer(&peers[number], port);
    }
    for (int number = 0; number < connections; number++)
        send_next(&peers[number]);
    exchange(poller, warm, go_on);
    double began = now();
    uint64_t messages = exchange(poller, seconds, go_on);
    printf("{\"messages\": %llu, \"seconds\": %.6f}\n", (unsigned long long)messages, now() - began);
    return 0;
}

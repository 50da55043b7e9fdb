// What the kernel takes for its part: a server that keeps nothing and answers each of the bench's `calls` with bytes of
// the right number, with one `recv` and one `send`. No store on TCP can take less CPU time in one thread.
//
//   floor        prints its port and serves until standard input ends
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VALIDATE = 0x00, SET = 0x01, GET = 0x03, ADD = 0x04, WAIT = 0x06, PING = 0x0d, VALUE = 64, EVENTS = 256 };

static char *skip_text(char *at) {
    unsigned long length;
    memcpy(&length, at, 8);
    return at + 8 + length;
}

// Bytes of the replies to whole requests; a request of the bench always comes whole.
static long reply(char *at, char *end, char *out) {
    char *to = out;
    unsigned long value = VALUE;
    while (at < end) switch (*at++) {
        case VALIDATE: at += 4; break;
        case PING: memcpy(to, at, 4); at += 4; to += 4; break;
        case SET: at = skip_text(skip_text(at)); break;
        case WAIT: at = skip_text(at + 8); *to++ = 0; break;
        case GET: at = skip_text(at); memcpy(to, &value, 8); memset(to + 8, 7, VALUE); to += 8 + VALUE; break;
        case ADD: at = skip_text(at) + 8; memset(to, 1, 8); to += 8; break;
        default: return -1;
    }
    return to - out;
}

static void watch(int epoll, int file) {
    struct epoll_event event = {EPOLLIN, {.fd = file}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event);
}

int main(void) {
    static char in[4096], out[4096 * (8 + VALUE)];
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), on = 1;
    bind(listener, (struct sockaddr *)&address, length);
    listen(listener, 4096);
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    watch(epoll, listener);
    watch(epoll, STDIN_FILENO);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int file = events[i].data.fd;
            if (file == STDIN_FILENO) return 0;
            if (file == listener) {
                int client = accept(listener, NULL, NULL);
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                watch(epoll, client);
                continue;
            }
            long taken = recv(file, in, sizeof in, 0);
            long made = taken > 0 ? reply(in, in + taken, out) : -1;
            if (made < 0 || (made > 0 && send(file, out, made, 0) != made)) close(file);
        }
    }
}

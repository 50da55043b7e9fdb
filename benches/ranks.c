// Small programs for the benches, compiled with `cc -O2`: what a rank does must not be what is measured.
//
//   ranks now              prints CLOCK_MONOTONIC in nanoseconds, which begins before anything of libc's stdio does
//   ranks fork N PROGRAM…  the bare loop: forks N times, each child becomes PROGRAM, then waits for all
//   ranks stay FIFO        prints its pid and waits for a signal; rank 0 waits for a byte in FIFO, prints the time, exits with 1
//
// What is printed is one `write` of one line, so that lines of several ranks do not mix.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void print(long long number) {
    char line[32];
    int length = snprintf(line, sizeof line, "%lld\n", number);
    if (write(STDOUT_FILENO, line, length) != length) _exit(3);
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int loop(int ranks, char **program) {
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() == 0) {
            execv(program[0], program);
            _exit(127);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}

static int stay(const char *fifo) {
    const char *rank = getenv("RANK");
    print(getpid());
    if (rank && strcmp(rank, "0") == 0) {
        char byte;
        int file = open(fifo, O_RDONLY);
        if (file < 0 || read(file, &byte, 1) != 1) return 3;
        print(now());
        return 1;
    }
    for (;;) pause();
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "now")) return print(now()), 0;
    if (count >= 4 && !strcmp(words[1], "fork")) return loop(atoi(words[2]), words + 3);
    if (count == 3 && !strcmp(words[1], "stay")) return stay(words[2]);
    return 2;
}

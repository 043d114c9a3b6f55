/* The limit of launching: from the wall clock's instant on, start copies of a program one after the other, and reap them all.
 *
 * usage: spawnloop DUE_NS COUNT JOURNAL OUTPUT PROGRAM [ARGUMENT ...]
 *
 * DUE_NS    nanoseconds since the epoch; 0: at once
 * JOURNAL   where one record for each copy is appended, and synced once (fdatasync), before the first copy; "-": nowhere
 * OUTPUT    the standard output and error of all copies
 * ARGUMENT  "%" stands for the number of the copy, in six digits
 *
 * Prints the nanoseconds from the instant until all were started, and until all were reaped. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 120, SECOND = 1000000000 };

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (int64_t)at.tv_sec * SECOND + at.tv_nsec;
}

static void wait_until(int64_t due)
{
    struct timespec at = {.tv_sec = due / SECOND, .tv_nsec = due % SECOND};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static void record(int journal, int count)
{
    char line[RECORD];
    for (int i = 0; i < count; i++) {
        memset(line, '.', sizeof line);
        line[sprintf(line, "started %06d", i)] = ' ';
        line[RECORD - 1] = '\n';
        if (write(journal, line, sizeof line) != sizeof line)
            err(1, "journal");
    }
    if (fdatasync(journal) != 0)
        err(1, "fdatasync");
}

static void start(char **job, int null, int output)
{
    pid_t child = vfork();
    if (child < 0)
        err(1, "vfork");
    if (child == 0) {
        setsid();
        dup2(null, 0);
        dup2(output, 1);
        dup2(output, 2);
        execv(job[0], job);
        _exit(127);
    }
}

int main(int argc, char **argv)
{
    if (argc < 6)
        errx(2, "usage: spawnloop DUE_NS COUNT JOURNAL OUTPUT PROGRAM [ARGUMENT ...]");
    int64_t due = atoll(argv[1]);
    int count = atoi(argv[2]);
    int journal = strcmp(argv[3], "-") ? open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    int output = open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (output < 0 || null < 0 || (journal < 0 && strcmp(argv[3], "-")))
        err(1, "open");
    char number[16], **job = argv + 5;
    for (char **word = job; *word; word++)
        if (!strcmp(*word, "%"))
            *word = number;

    if (due)
        wait_until(due);
    int64_t begun = due ? due : now();
    if (journal >= 0)
        record(journal, count);
    for (int i = 0; i < count; i++) {
        sprintf(number, "%06d", i);
        start(job, null, output);
    }
    int64_t started = now();
    int status, failed = 0;
    while (wait(&status) > 0)
        failed += status != 0;
    printf("%lld %lld\n", (long long)(started - begun), (long long)(now() - begun));
    if (failed)
        errx(1, "%d of %d copies failed", failed, count);
    return 0;
}

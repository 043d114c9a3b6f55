/* The limit of noticing: hold many live processes, and be told of each end through its pidfd and one epoll.
 *
 * usage: exitloop LIVE ENDING BEGIN_NS STEP_NS FILE PROGRAM
 *
 * Starts LIVE copies of `PROGRAM FILE NUMBER DUE_NS` (see lastword.c). The first ENDING of them are to end one by one, from
 * BEGIN_NS on, STEP_NS apart; the others are killed once those were noticed. Prints "ready" when all are watched, and then
 * "NUMBER NANOSECONDS" for each that was reaped: the time at which it had been. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000, AT_ONCE = 64 };

struct job {
    pid_t pid;
    int pidfd;
    int64_t reaped;
};

static void raise_limit(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static void start(struct job *job, char *program, char *file, int number, int64_t due, int watch)
{
    char at[16], when[24];
    snprintf(at, sizeof at, "%d", number);
    snprintf(when, sizeof when, "%lld", (long long)due);
    char *words[] = {program, file, at, when, NULL};
    job->pid = vfork();
    if (job->pid == 0) {
        setsid();
        execv(program, words);
        _exit(127);
    }
    job->pidfd = syscall(SYS_pidfd_open, job->pid, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    if (job->pid < 0 || job->pidfd < 0 || epoll_ctl(watch, EPOLL_CTL_ADD, job->pidfd, &event) != 0)
        err(1, "job %d", number);
}

static void notice(struct job *job, int watch)
{
    struct timespec at;
    siginfo_t end;
    if (waitid(P_PIDFD, job->pidfd, &end, WEXITED | WNOHANG) != 0 || end.si_pid == 0)
        return;
    clock_gettime(CLOCK_REALTIME, &at);
    job->reaped = (int64_t)at.tv_sec * SECOND + at.tv_nsec;
    epoll_ctl(watch, EPOLL_CTL_DEL, job->pidfd, NULL);
    close(job->pidfd);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        errx(2, "usage: exitloop LIVE ENDING BEGIN_NS STEP_NS FILE PROGRAM");
    int live = atoi(argv[1]), ending = atoi(argv[2]);
    int64_t begin = atoll(argv[3]), step = atoll(argv[4]);
    raise_limit();
    struct job *jobs = calloc(live, sizeof *jobs);
    int watch = epoll_create1(EPOLL_CLOEXEC);
    if (!jobs || watch < 0)
        err(1, "memory or epoll");
    for (int i = 0; i < live; i++)
        start(&jobs[i], argv[6], argv[5], i, i < ending ? begin + i * step : 0, watch);
    puts("ready");
    fflush(stdout);

    for (int left = ending; left > 0;) {
        struct epoll_event events[AT_ONCE];
        int found = epoll_wait(watch, events, AT_ONCE, -1);
        if (found < 0 && errno != EINTR)
            err(1, "epoll_wait");
        for (int i = 0; i < found; i++) {
            struct job *job = &jobs[events[i].data.u32];
            notice(job, watch);
            left -= job->reaped != 0 && events[i].data.u32 < (uint32_t)ending;
        }
    }
    for (int i = 0; i < live; i++) {
        if (jobs[i].reaped)
            printf("%d %lld\n", i, (long long)jobs[i].reaped);
        else
            kill(jobs[i].pid, SIGKILL);
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}

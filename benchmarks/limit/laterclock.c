/* A preloaded library that puts the wall clock of one process ahead by $LATER_S whole seconds.
 *
 * For schedulers that know only minutes: theirs begins a few seconds after they were started, and a measurement need not wait
 * for a real one. Nothing but the reading of the clock is changed. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t later;

__attribute__((constructor)) static void read_later(void)
{
    const char *text = getenv("LATER_S");
    if (text)
        later = atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = syscall(SYS_clock_gettime, clock, at) != 0;
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += later;
    return failed ? -1 : 0;
}

time_t time(time_t *place)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (place)
        *place = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

/* A job that says when it ran: its first act is to look at the clock, its second to append "NANOSECONDS ID" to a file.
 *
 * usage: stamp FILE ID
 *
 * One write(2) with O_APPEND, so that a thousand of them at once keep their lines apart. Linked statically: it has to cost
 * next to nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct timespec began;
    clock_gettime(CLOCK_REALTIME, &began);
    if (argc != 3)
        return 2;
    char line[128];
    int length = snprintf(line, sizeof line, "%lld%09ld %.64s\n", (long long)began.tv_sec, began.tv_nsec, argv[2]);
    int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    return file >= 0 && write(file, line, length) == length ? 0 : 1;
}

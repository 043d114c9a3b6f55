"""Hold many live processes, and be told of each end through its pidfd and one epoll: as limit/exitloop.c, in Python.

python python_exits.py LIVE ENDING BEGIN_NS STEP_NS FILE PROGRAM
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time


def main() -> None:
    """Start them, watch them, and print when each was reaped."""
    live, ending, begin, step = map(int, sys.argv[1:5])
    words, program = sys.argv[5:7]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    watch = select.epoll()
    numbers: dict[int, int] = {}
    pids = []
    for number in range(live):
        due = begin + number * step if number < ending else 0
        pids.append(os.posix_spawn(program, [program, words, str(number), str(due)], os.environ, setsid=True))
        pidfd = os.pidfd_open(pids[-1])
        numbers[pidfd] = number
        watch.register(pidfd, select.EPOLLIN)
    print("ready", flush=True)
    reaped: dict[int, int] = {}
    while len(reaped) < ending:
        for pidfd, _ in watch.poll():
            if os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is not None:
                reaped[numbers[pidfd]] = time.time_ns()
                watch.unregister(pidfd)
                os.close(pidfd)
    for number, at in reaped.items():
        print(number, at)
    for number in set(range(live)) - set(reaped):
        os.kill(pids[number], signal.SIGKILL)
        os.waitpid(pids[number], 0)


if __name__ == "__main__":
    main()

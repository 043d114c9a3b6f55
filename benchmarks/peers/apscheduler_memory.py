"""APScheduler 3 with its jobs in memory, each a cron trigger of one second: a scheduler that keeps no record.

python apscheduler_memory.py DUE_NS COUNT PROGRAM [ARGUMENT ...]

"%" stands for the number of the copy, in six digits
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

from apscheduler.schedulers.blocking import BlockingScheduler


def run(words: list[str]) -> None:
    """Be a job: start the program, and wait for its end."""
    subprocess.run(words, stdin=subprocess.DEVNULL, check=False)


def main() -> None:
    """Load the jobs, and serve them until killed."""
    due = datetime.fromtimestamp(int(sys.argv[1]) // 10**9, UTC)
    when = {"month": due.month, "day": due.day, "hour": due.hour, "minute": due.minute, "second": due.second}
    scheduler = BlockingScheduler(timezone="UTC")
    for number in range(int(sys.argv[2])):
        words = [f"{number:06d}" if word == "%" else word for word in sys.argv[3:]]
        scheduler.add_job(run, "cron", args=[words], **when)
    print("ready:", flush=True)
    scheduler.start()


if __name__ == "__main__":
    main()

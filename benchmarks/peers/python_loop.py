"""What Python can do at its best: make so many launches durable by one commit, start them, reap them.

python python_loop.py DUE_NS COUNT LEDGER OUTPUT PROGRAM [ARGUMENT ...]

"%" stands for the number of the copy, in six digits
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time


def main() -> None:
    """Do it at the instant."""
    due_s, count = int(sys.argv[1]) / 1e9, int(sys.argv[2])
    ledger, output, job = sys.argv[3], sys.argv[4], sys.argv[5:]
    connection = sqlite3.connect(ledger, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    columns = "schedule TEXT, instant INTEGER, run TEXT, PRIMARY KEY (schedule, instant)"
    connection.execute(f"CREATE TABLE launches ({columns}) WITHOUT ROWID")
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    streams = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, written, 1), (os.POSIX_SPAWN_DUP2, written, 2)]
    numbers = [f"{number:06d}" for number in range(count)]
    while (left := due_s - time.time()) > 0:
        time.sleep(left)
    connection.execute("BEGIN IMMEDIATE")
    rows = ((f"schedule-{number}", int(due_s), f"run-{number}") for number in numbers)
    connection.executemany("INSERT INTO launches VALUES (?, ?, ?)", rows)
    connection.execute("COMMIT")
    for number in numbers:
        words = [number if word == "%" else word for word in job]
        os.posix_spawn(words[0], words, os.environ, file_actions=streams, setsid=True)
    for _ in numbers:
        os.wait()


if __name__ == "__main__":
    main()

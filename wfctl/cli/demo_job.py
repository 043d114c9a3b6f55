"""What the demo backs up, and the job that does it: a pinned script with two steps, as an operator would write it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

ROWS = 2000

#: pinned into the demo's store; it knows nothing of wfctl but three variables of its environment
JOB = '''"""Copy a live SQLite database, compressed; then prove that the copy is sound."""
import contextlib, gzip, hashlib, json, os, shutil, sqlite3, sys, tempfile

source, copy = os.environ["DEMO_SOURCE"], os.environ["DEMO_COPY"]


def make_copy(plain):
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(plain)) as new:
        old.backup(new)
    with open(plain, "rb") as raw, gzip.open(copy + ".part", "wb") as packed:
        shutil.copyfileobj(raw, packed)
    os.replace(copy + ".part", copy)
    print(f"{os.path.getsize(plain)} bytes copied into {os.path.getsize(copy)}")


def check_copy(plain):
    with gzip.open(copy, "rb") as packed, open(plain, "wb") as raw:
        shutil.copyfileobj(packed, raw)
    with contextlib.closing(sqlite3.connect(plain)) as found:
        answer = found.execute("pragma integrity_check").fetchone()[0]
        rows = found.execute("select count(*) from sale").fetchone()[0]
    with open(plain, "rb") as raw:
        digest = hashlib.sha256(raw.read()).hexdigest()
    with open(os.environ["WFCTL_OUTPUT"], "w") as output:
        json.dump({"integrity": answer, "rows": rows, "sha256": digest}, output)
    print(f"integrity {answer}, {rows} rows")
    sys.exit(0 if answer == "ok" else f"the copy is damaged: {answer}")


with tempfile.TemporaryDirectory() as place:
    {"copy": make_copy, "check": check_copy}[sys.argv[1]](os.path.join(place, "plain.db"))
'''


def make_database(path: Path) -> None:
    """Make the database that is backed up."""
    with sqlite3.connect(path) as made:
        made.execute("create table sale (id integer primary key, item text not null, cents integer not null)")
        rows = [(f"item {number % 37}", number * 7 % 9973) for number in range(ROWS)]
        made.executemany("insert into sale (item, cents) values (?, ?)", rows)
    made.close()


def is_sound(copy: Path, scratch: Path) -> str | None:
    """Given the compressed copy, return None when it unpacks to a sound database with every row, else what is wrong."""
    import gzip

    try:
        scratch.write_bytes(gzip.decompress(copy.read_bytes()))
        found = sqlite3.connect(scratch)
        try:
            answer = found.execute("pragma integrity_check").fetchone()[0]
            rows = found.execute("select count(*) from sale").fetchone()[0]
        finally:
            found.close()
    except (OSError, EOFError, sqlite3.Error) as error:
        return f"the copy cannot be read: {error}"
    if answer != "ok":
        return f"the copy is damaged: {answer}"
    return None if rows == ROWS else f"the copy has {rows} rows of {ROWS}"

"""Whether the nodes see the shared folder: a small job looks, once for each place that jobs are sent to (contract 3.0).

What was seen is kept in the folder itself, so that a restart asks nothing again; another folder, Python or partition is asked
about anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from wfctl.core.instants import format_instant
from wfctl.core.model import SlurmNeeds
from wfctl.slurm.arguments import of_probe, prefix_of
from wfctl.slurm.commands import JobLine, Rejected, Slurm, Unreachable
from wfctl.slurm.folder import Folder, write_whole
from wfctl.value import Value

_SEEN = "seen.json"
_AGAIN_S = 60.0  #: how long a failure stands before it is asked again
_LOOK_S = 0.3


class Verdict(Value):
    """What is known of one place that jobs are sent to."""

    is_seen: bool | None  #: None: not known yet
    words: str


class Probes:
    """Asks by small jobs, and remembers. Not for the driver's thread."""

    def __init__(self, slurm: Slurm, folder: Folder, store_id: str, script: Callable[[], Path], python: str) -> None:
        """`script`: returns the job's script on the shared folder. Raise OSError there."""
        self._slurm = slurm
        self._folder = folder
        self._prefix = f"{prefix_of(store_id)}probe-"
        self._script = script
        self._python = python
        self._lock = Lock()
        self._known: dict[str, Verdict] = {}
        self._failed_at: dict[str, float] = {}
        self._asked: dict[str, tuple[str, Path, float]] = {}  #: by place: the job, its file, when it was submitted

    @property
    def is_asking(self) -> bool:
        """Tell whether a small job is under way."""
        return bool(self._asked)

    def verdict(self, needs: SlurmNeeds) -> Verdict:
        """Return what is known of where these jobs go; where nothing is, ask. Raise OSError, Unreachable."""
        key = self._key(needs)
        with self._lock:
            known = self._known.get(key)
            is_stale = known is not None and known.is_seen is False and time.monotonic() - self._failed_at[key] > _AGAIN_S
            if known is not None and not is_stale:
                return known
            if known is None and key in self._remembered():
                return self._note(key, True, "seen before")
            if key in self._asked:
                return Verdict(is_seen=None, words="a small job looks whether its node sees the folder")
            return self._ask(key, needs)

    def conclude(self, lines: dict[str, JobLine], began: float) -> list[str]:
        """Given the jobs of the store by name, as of the monotonic time `began`, take in what small jobs have found.

        Return the places that are decided by now. Raise OSError.
        """
        decided = []
        with self._lock:
            for key, (name, path, since) in list(self._asked.items()):
                line = lines.get(name)
                verdict = self._found(path, line, is_missing=line is None and since < began)
                if verdict is not None:
                    del self._asked[key]
                    decided.append(key)
                    self._note(key, bool(verdict.is_seen), verdict.words)
                    self._remove(path)
        return decided

    def key_of(self, needs: SlurmNeeds) -> str:
        """Return the name of the place where such jobs go."""
        return self._key(needs)

    def now(self, needs: SlurmNeeds, patience_s: float) -> Verdict:
        """Ask anew, and wait so long for the answer; what is then still unanswered is withdrawn. Raise OSError, Unreachable."""
        key, until = self._key(needs), time.monotonic() + patience_s
        with self._lock:
            verdict = self._ask(key, needs)
        while verdict.is_seen is None:
            time.sleep(_LOOK_S)
            began = time.monotonic()
            lines = self._slurm.jobs(self._prefix)
            if key in self.conclude(lines, began):
                return self._known[key]
            if time.monotonic() > until:
                return self._withdraw(key, lines)
        return verdict

    def _ask(self, key: str, needs: SlurmNeeds) -> Verdict:
        script, token = self._script(), os.urandom(8).hex()
        path = self._folder.root / f"probe-{token}"
        write_whole(path, token.encode())
        name = f"{self._prefix}{token}"
        try:
            self._slurm.submit(of_probe(needs, name, path, script))
        except Rejected as error:
            self._remove(path)
            return self._note(key, False, f"Slurm refuses a small job there: {error}")
        except Unreachable:
            self._remove(path)
            raise
        self._asked[key] = (name, path, time.monotonic())
        return Verdict(is_seen=None, words="a small job looks whether its node sees the folder")

    def _found(self, path: Path, line: JobLine | None, *, is_missing: bool) -> Verdict | None:
        answer = path.with_name(f"{path.name}.seen")
        if line is not None and not line.is_over:
            return None
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            seen = json.loads(answer.read_bytes())
            if path.name.endswith(seen["token"]):
                return Verdict(is_seen=True, words=f"node {seen['node']} sees it (Python {seen['python']})")
        if line is not None:
            said = self._said(path)
            where = (
                f"node {line.nodes} does not see {self._folder.shared}, or has no {self._python}" if line.nodes else "no node"
            )
            code = f"{line.wait_status >> 8 & 0xFF}:{line.wait_status & 0x7F}"
            words = f"{where}: the small job that looked is {line.state}, exit {code}" + (f"; {said}" if said else "")
            return Verdict(is_seen=False, words=words)
        return (
            Verdict(is_seen=False, words="the small job that looked for it is gone without an answer") if is_missing else None
        )

    def _said(self, path: Path) -> str:
        with contextlib.suppress(OSError):
            lines = path.with_name(f"{path.name}.log").read_text("utf-8", "replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    def _withdraw(self, key: str, lines: dict[str, JobLine]) -> Verdict:
        with self._lock:
            name, path, _ = self._asked.pop(key)
        line = lines.get(name)
        self._slurm.cancel([name])
        self._remove(path)
        why = f" ({line.state}{f', {line.reason}' if line.reason else ''})" if line is not None else ""
        return Verdict(is_seen=None, words=f"not known yet: the small job that looks waits in Slurm's queue{why}")

    def _note(self, key: str, is_seen: bool, words: str) -> Verdict:
        verdict = self._known[key] = Verdict(is_seen=is_seen, words=words)
        if not is_seen:
            self._failed_at[key] = time.monotonic()
        elif words != "seen before":
            at = format_instant(datetime.now(UTC).replace(microsecond=0))
            kept = {**self._remembered(), key: {"at": at, "words": words}}
            write_whole(self._folder.root / _SEEN, json.dumps(kept, indent=2).encode() + b"\n")
        return verdict

    def _remembered(self) -> dict[str, object]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = json.loads((self._folder.root / _SEEN).read_bytes())
            return found if isinstance(found, dict) else {}
        return {}

    def _key(self, needs: SlurmNeeds) -> str:
        return json.dumps([needs.partition, needs.account, sorted(needs.options), self._python])

    def _remove(self, path: Path) -> None:
        for suffix in ("", ".seen", ".seen.part", ".part", ".log"):
            with contextlib.suppress(OSError):
                path.with_name(path.name + suffix).unlink()

"""Commands without the start of an interpreter: a process that has all of wfctl loaded forks once for each of them.

What it forks is a process like any other, with its own pid, streams, environment, directory and end; only the reading of the
code is behind it, which is most of the work of a short command. What is loaded when, how Python begins and what a terminal is
are no questions for it: those are asked of real starts.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_OFTEN = 5  #: from so many commands of one kind on it pays
_LENGTH = struct.Struct("!I")
_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_asked: Counter[tuple[tuple[str, str], ...]] = Counter()
_nurseries: dict[tuple[tuple[str, str], ...], Nursery] = {}
_lock = threading.Lock()


def run(words: Sequence[str], environ: Mapping[str, str], stdin: bytes, timeout: float) -> subprocess.CompletedProcess[bytes]:
    """Run `wfctl` in pipes to its end, as `subprocess.run` does."""
    begin = tuple(sorted(item for item in environ.items() if item[0].startswith(("PYTHON", "LANG", "LC_"))))
    with _lock:
        _asked[begin] += 1
        if begin not in _nurseries and _asked[begin] > _OFTEN:
            _nurseries[begin] = Nursery(dict(begin))
        nursery = _nurseries.get(begin)
    if nursery is None or nursery.limits != _limits():
        argv = [sys.executable, "-m", "wfctl", *words]
        return subprocess.run(argv, input=stdin, capture_output=True, env=dict(environ), timeout=timeout, check=False)
    return nursery.run(words, environ, stdin, timeout)


def close_all() -> None:
    """End the processes that fork."""
    while _nurseries:
        _nurseries.popitem()[1].close()


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]


class Nursery:
    """The process that forks, for commands whose interpreter begins alike. It ends with the process that made it."""

    def __init__(self, begin: Mapping[str, str]) -> None:
        self.limits = _limits()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
                env={**begin, "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
                cwd=PROJECT, pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        self._socket = ours

    def close(self) -> None:
        """End it; commands that it still has are killed."""
        self._socket.close()
        self._process.communicate()

    def run(
        self, words: Sequence[str], environ: Mapping[str, str], stdin: bytes, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(3)]
        (read_in, write_in), (read_out, write_out), (read_err, write_err) = pipes
        umask = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
        request = json.dumps([list(words), dict(environ), str(Path.cwd()), int(umask.split()[1], 8)]).encode()
        with ours:
            with theirs:
                socket.send_fds(self._socket, [b"!"], [theirs.fileno(), read_in, write_out, write_err])
            for end in (read_in, write_out, write_err):
                os.close(end)
            ours.sendall(_LENGTH.pack(len(request)) + request)
            try:
                out, err = _talk(write_in, read_out, read_err, stdin, time.monotonic() + timeout)
                ours.settimeout(timeout)
                status = struct.unpack("!i", ours.recv(4))[0]
            except TimeoutError:
                raise subprocess.TimeoutExpired(list(words), timeout) from None
        return subprocess.CompletedProcess([sys.executable, "-m", "wfctl", *words], status, out, err)


def _talk(write_in: int, read_out: int, read_err: int, stdin: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Write and read until nobody holds the other ends; all three are closed."""
    said: dict[int, bytearray] = {read_out: bytearray(), read_err: bytearray()}
    left = memoryview(stdin)
    os.set_blocking(write_in, False)
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        open_ends = {write_in, read_out, read_err}
        stack.callback(lambda: [os.close(end) for end in open_ends])
        selector.register(write_in, selectors.EVENT_WRITE)
        for end in said:
            selector.register(end, selectors.EVENT_READ)
        while open_ends:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                end, is_done = key.fd, False
                if end == write_in:
                    try:
                        left = left[os.write(end, left[:65536]) :] if left else left
                    except BrokenPipeError:
                        left = left[:0]
                    is_done = not left
                else:
                    piece = os.read(end, 65536)
                    said[end] += piece
                    is_done = not piece
                if is_done:
                    selector.unregister(end)
                    open_ends.remove(end)
                    os.close(end)
    return bytes(said[read_out]), bytes(said[read_err])


# In the process that forks ------------------------------------------------------------------------------------------------


def _serve(control: socket.socket) -> None:
    """Fork for each request until nobody can ask any more. Return in the forked process, which is to be the command."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of its end: pid, and who waits
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in children:
                    pid, asker = children.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(pid, 0)
                    with asker, contextlib.suppress(OSError):
                        asker.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
                    continue
                sign, descriptors, _, _ = socket.recv_fds(control, 1, 4)
                if not sign:
                    for pid, _ in children.values():
                        os.kill(pid, 9)
                    raise SystemExit
                asker = socket.socket(fileno=descriptors[0])
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    for each in (control, *(other for _, other in children.values())):
                        each.close()
                    _become(asker, descriptors[1:])
                    return
                for end in descriptors[1:]:
                    os.close(end)
                ended = os.pidfd_open(pid)
                children[ended] = pid, asker
                selector.register(ended, selectors.EVENT_READ)


def _become(asker: socket.socket, streams: Sequence[int]) -> None:
    """Take over what is asked for: words, environment, directory, mask and streams. Nothing else stays open."""
    (length,) = _LENGTH.unpack(_receive(asker, _LENGTH.size))
    words, environ, directory, umask = json.loads(_receive(asker, length))
    for number, end in enumerate(streams):
        os.dup2(end, number)
    asker.detach()
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(directory)
    os.umask(umask)
    sys.argv = [str(PROJECT / "wfctl/__main__.py"), *words]


def _receive(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        if not piece:
            raise SystemExit(1)
        found += piece
    return found


def _load() -> None:
    """Import all of wfctl, and what it imports only when it needs it."""
    import wfctl

    for module in pkgutil.walk_packages(wfctl.__path__, "wfctl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _end(status: object) -> None:
    """End as an interpreter does, but for taking all of its modules apart, which takes longer than the command."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = 120
    os._exit(int(status or 0) & 0xFF)


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from wfctl.__main__ import main

    try:
        main()
    except SystemExit as end:
        _end(end.code)

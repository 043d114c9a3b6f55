"""Becoming a keeper: the lock, the socket, and a process that has nothing left of who started it (contract 6.9, 9.2)."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
import stat
from pathlib import Path

from wfctl.keeper.journal import Journal
from wfctl.keeper.protocol import LOCK_NAME, PROTOCOL, SOCKET_NAME, KeeperHello, Origin
from wfctl.keeper.recorder import Recorder
from wfctl.keeper.server import KeeperServer
from wfctl.keeper.starting import UMASK
from wfctl.linux import boot_id, boottime_ns, set_process_name, set_subreaper

_READY, _HELD = b"ready", b"held"
_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_BACKLOG = 64


def start(directory: str, origin: Origin) -> str | None:
    """Make a keeper for that directory in the background. Return None once one serves it, be it another's, else what failed.

    For a process that does nothing else: every descriptor beyond the first three is closed.
    """
    os.closerange(3, max(os.sysconf("SC_OPEN_MAX"), 65_536))
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        os.setsid()
        if os.fork() == 0:
            _live(directory, place, told, origin)
        os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    with open(ready, "rb") as answer:
        word = answer.read()
    if word in (_READY, _HELD):
        return None
    return word.decode("utf-8", "replace") or "the keeper ended while it started"


def _live(directory: str, place: int, told: int, origin: Origin) -> None:
    """Be the keeper, from here to the end of the process."""
    status = 1
    try:
        _leave_the_starter()
        lock = _claim(place)
        if lock is None:
            os.write(told, _HELD)
            status = 0
            return
        server = _prepare(directory, place, origin)
        os.write(told, _READY)
        os.close(told)
        told = -1
        server.serve()
        status = 0
    except BaseException as error:
        if told >= 0:
            with contextlib.suppress(OSError):
                os.write(told, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:4000])
    finally:
        os._exit(status)  # the lock goes with the process, never before


def _leave_the_starter() -> None:
    os.chdir("/")
    os.umask(UMASK)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)


def _claim(place: int) -> int | None:
    """Return the descriptor that holds the lock, or None when another keeper does."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(LOCK_NAME, flags, 0o600, dir_fd=place)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(f"{LOCK_NAME} is no regular file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return descriptor


def _prepare(directory: str, place: int, origin: Origin) -> KeeperServer:
    wakeup = _catch_signals()
    set_subreaper()
    set_process_name("wfctl-keeper")
    hello = KeeperHello(
        protocol=PROTOCOL,
        pid=os.getpid(),
        since_ns=boottime_ns(),
        boot_id=boot_id(),
        origin=origin,
    )
    journal = None
    if origin is Origin.SUPERVISOR:
        with contextlib.suppress(OSError):  # without one each record is synced in its own file
            journal = Journal(Path(directory))
    recorder = Recorder(journal)
    server = KeeperServer(hello=hello, listener=_listen(place), directory=place, wakeup=wakeup, recorder=recorder)
    gc.collect()
    gc.freeze()
    return server


def _catch_signals() -> socket.socket:
    """Return where the number of each caught signal can be read. Caught, not ignored: so exec makes it the default again."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a limit of file sizes must not end it; each launch makes it the default
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    for number in _CAUGHT:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reader


def _listen(place: int) -> socket.socket:
    """Listen in that directory; the lock is held, so what lies there is nobody's."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET_NAME, dir_fd=place)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setblocking(False)
    os.umask(0o177)
    listener.bind(f"/proc/self/fd/{place}/{SOCKET_NAME}")
    os.umask(UMASK)
    listener.listen(_BACKLOG)
    return listener

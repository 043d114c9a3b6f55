"""The control socket as a file of the store: how it is bound, how it is reached, and who is at its other end.

Both go through `/proc/self/fd`, so that no store path is too long for a socket address (contract 9.2).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator

from wfctl.errors import CannotCreate, NoStore, NotAllowed
from wfctl.rpc.absent import SOCKET_NAME, nobody
from wfctl.value import Value

_BACKLOG = 128


class Peer(Value):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


def peer_of(connected: socket.socket) -> Peer:
    """Return who is at the other end of a unix socket, as the kernel noted it at connect or listen."""
    pid, uid, gid = struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return Peer(pid=pid, uid=uid, gid=gid)


def listen_control(directory_fd: int) -> socket.socket:
    """Given the store's directory, return a listening socket, mode 0600 from its first moment.

    It replaces a stale socket: the caller owns `scheduler.lock`, so nobody else listens. Anything but a socket is left alone.
    Raise CannotCreate.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _remove_stale(directory_fd)
        os.fchmod(listener.fileno(), 0o600)  # Linux makes the file with this mode, less the umask
        listener.bind(f"/proc/self/fd/{directory_fd}/{SOCKET_NAME}")
        os.chmod(SOCKET_NAME, 0o600, dir_fd=directory_fd)  # an umask may have taken the owner's bits
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotCreate(f"{SOCKET_NAME} cannot be made: {error.strerror or error}", {"errno": error.errno}) from error
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(directory_fd: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(SOCKET_NAME, dir_fd=directory_fd, follow_symlinks=False).st_mode):
            raise CannotCreate(f"{SOCKET_NAME} in the store is no socket; move it away", {"path": SOCKET_NAME})
        os.unlink(SOCKET_NAME, dir_fd=directory_fd)


def connect_control(store_path: str | os.PathLike[str], timeout: float) -> socket.socket:
    """Given a store's path, return a socket connected to its supervisor.

    Units: `timeout` in seconds; it runs when the supervisor's queue of newcomers is full.
    Raise NoStore, NoSupervisor when nobody listens, NotAllowed when the store or its listener is somebody else's, TimeoutError.
    """
    path = os.fspath(store_path)
    with _open_store(path) as directory_fd, _open_socket_file(path, directory_fd) as socket_fd:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A unix socket does not wait in connect() once it is non-blocking, so the limit is the kernel's to keep.
            whole, part = divmod(max(timeout, 0.001), 1.0)
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(whole), int(part * 1e6)))
            connecting.connect(f"/proc/self/fd/{socket_fd}")
            _check_listener(path, peer_of(connecting), os.fstat(directory_fd).st_uid)
        except BlockingIOError as error:
            connecting.close()
            raise TimeoutError("the supervisor takes no new connection") from error
        except ConnectionRefusedError as error:
            connecting.close()
            raise nobody(path) from error
        except PermissionError as error:
            connecting.close()
            raise _forbidden(path) from error
        except BaseException:
            connecting.close()
            raise
        return connecting


@contextlib.contextmanager
def _open_store(path: str) -> Iterator[int]:
    try:
        directory_fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoStore(f"there is no store at {path}; make one with `wfctl init`", {"path": path}) from error
    except PermissionError as error:
        raise _forbidden(path) from error
    try:
        yield directory_fd
    finally:
        os.close(directory_fd)


@contextlib.contextmanager
def _open_socket_file(path: str, directory_fd: int) -> Iterator[int]:
    """Hold the socket's file itself, not a link: what is checked is what is connected to."""
    try:
        socket_fd = os.open(SOCKET_NAME, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    except FileNotFoundError as error:
        raise nobody(path) from error
    except PermissionError as error:
        raise _forbidden(path) from error
    try:
        if not stat.S_ISSOCK(os.fstat(socket_fd).st_mode):
            raise nobody(path)
        yield socket_fd
    finally:
        os.close(socket_fd)


def _check_listener(path: str, peer: Peer, owner_uid: int) -> None:
    if peer.uid not in (0, owner_uid):
        data = {"path": path, "uid": peer.uid}
        raise NotAllowed(f"who listens for the store {path} is uid {peer.uid}, neither its owner nor root", data)


def _forbidden(path: str) -> NotAllowed:
    return NotAllowed(f"the store {path} belongs to another user", {"path": path})

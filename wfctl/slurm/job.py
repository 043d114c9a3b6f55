#!/usr/bin/python3 -IS
"""What a node runs for one execution: claim it, run its program, write down how that ended (contract 6.2, 6.4, 6.9, 6.11).

It stands alone: a node has no wfctl, and perhaps an old Python, so nothing newer than 3.6 is used. Whoever makes the file
`claim` of an execution first owns it: a second job of it finds the file and ends without a word to the program, and where the
executor came first the program never runs. The file `stop` is a letter box: a line in it asks for a stop, which so reaches the
program also while the controller is away.

The program is in the process group of the job, which Slurm signals and cleans up as a whole; this process is its leader, and
blocks every signal that it waits for.

Arguments: the directory of the execution on the shared folder, its run, and k; or `--probe FILE`: say in FILE.seen who sees it.
"""

# ruff: noqa: PTH104, PTH108, PTH208

import errno
import os
import resource
import sys
import time

try:
    import _signal as signal  # type: ignore[import-not-found] # `signal`, `json`, `socket` would take half of the start
except ImportError:
    import signal

LOOK_S = 3.0  # how often the letter box is looked at
GROUP_LOOK_S = 0.05
MARK_BYTES = 4096
OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
LEFT_BY_THE_JOB = ("output", "checkpoint", "interrupt")
PASSED_ON = (b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"ZE_AFFINITY_MASK", b"GPU_DEVICE_ORDINAL")
KEPT_BACK = (
    b"SLURM_EXPORT_ENV",
    b"SLURM_GET_USER_ENV",
)  # they would keep `srun` within the job from passing the environment on
TO_ALL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # Slurm sends these to the whole group
TO_US = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)  # these, where asked for, to the batch script alone
WAITED_FOR = {signal.SIGCHLD, *TO_ALL, *TO_US}
NAMES = {getattr(signal, name): name for name in dir(signal) if name.startswith("SIG") and "_" not in name}


class Refused(Exception):
    """The system did not start the program."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(number, what)
        self.number, self.what = number, what


class Execution:
    """The program, from its start to the end of its group. Times are microseconds since the epoch."""

    def __init__(self, pid: int, started_us: int) -> None:
        self.pid = pid
        self.started_us = started_us
        self.ended_us = 0
        self.status = -1
        self.cpu_us = 0
        self.max_rss_bytes = 0
        self.is_over = False
        self.is_given_up = False
        self.heard = []  # type: list[str]
        self.kill_at = -1.0  # monotonic; set once a stop was asked for

    def reap(self) -> None:
        """Take in the program's end, where it has ended; what else ended is of nobody."""
        while not self.is_over:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.is_over, self.status, self.ended_us = True, status, now_us()
                self.cpu_us = round((usage.ru_utime + usage.ru_stime) * 1e6)
                self.max_rss_bytes = usage.ru_maxrss * 1024

    def stop(self, grace_s: float) -> None:
        """TERM to the group at once, KILL after the grace; a later stop can only bring the KILL forward."""
        kill_at = time.monotonic() + min(max(0.0, grace_s), 1e9)
        if self.kill_at >= 0:
            self.kill_at = min(self.kill_at, kill_at)
            return
        self.kill_at = kill_at
        signal_group(signal.SIGTERM)
        signal_group(signal.SIGCONT)


def now_us() -> int:
    return int(time.time() * 1e6)


def node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def say(text: str) -> None:
    sys.stderr.write(f"wfctl: {text}\n")
    sys.stderr.flush()


# The claim -------------------------------------------------------------------------------------------------------------


def claim(directory: str) -> int:
    """Make the execution ours, for good, and return when; 0 where it was somebody's already. Raise OSError."""
    try:
        descriptor = os.open(directory + "/claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN, 0o600)
    except FileExistsError:
        return 0
    at = now_us()
    mark = {"by": "job", "job": os.environ.get("SLURM_JOB_ID"), "node": node(), "at": at}
    os.write(descriptor, as_json(mark) + b"\n")
    os.fsync(descriptor)
    os.close(descriptor)
    sync_directory(directory)
    return at


def asked_to_stop(directory: str) -> "tuple[float, bool]":
    """Return the grace in seconds of the last stop that was asked for, -1 where none was; and whether Slurm had given it up."""
    try:
        descriptor = os.open(directory + "/stop", os.O_RDONLY | OPEN)  # opened anew: so a network file system looks anew
        try:
            lines = os.read(descriptor, MARK_BYTES).split(b"\n")[:-1]
        finally:
            os.close(descriptor)
        grace, _, why = lines[-1].partition(b" ") if lines else (b"-1", b"", b"")
        return float(grace), why == b"given-up"
    except (OSError, ValueError):
        return -1.0, False


def acknowledge(directory: str) -> None:
    """Say that the stop was taken notice of: who waits knows that this node lives."""
    try:
        descriptor = os.open(directory + "/claim", os.O_WRONLY | os.O_APPEND | OPEN)
        os.write(descriptor, b"heard\n")
        os.fsync(descriptor)
        os.close(descriptor)
    except OSError as error:
        say(f"a stop was heard, which could not be said: {error.strerror}")


# The program -----------------------------------------------------------------------------------------------------------


class Request:
    """What is to be run: texts that end with a NUL each, as neither an argument nor a path may hold one."""

    def __init__(self, content: bytes) -> None:
        parts = content.split(b"\0")[:-1]
        self.cwd, self.stdout, self.stderr = parts[:3]
        self.umask, arguments = int(parts[3]), int(parts[4])
        self.argv = parts[5 : 5 + arguments]
        self.environment = dict(each.partition(b"=")[::2] for each in parts[5 + arguments :])


def read_request(directory: str) -> Request:
    """Read what is to be run, and remove it: it holds the values of environment files, which are recorded nowhere."""
    path = directory + "/request"
    with open(os.open(path, os.O_RDONLY | OPEN), "rb") as file:
        content = file.read()
    os.unlink(path)
    return Request(content)


def start(request: Request, started_us: int) -> Execution:
    """Start the program. Raise Refused."""
    what = "output"
    try:
        output, errors = open_output(request.stdout), open_output(request.stderr)
        given = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        reading, writing = os.pipe()  # not inherited beyond exec
        what = "fork"
        pid = os.fork()
    except OSError as error:
        raise Refused(error.errno or errno.EIO, what) from error
    if pid == 0:
        execute(request, (given, output, errors), writing)
    for descriptor in (given, output, errors, writing):
        os.close(descriptor)
    told = os.read(reading, 256)
    os.close(reading)
    if told:
        os.waitpid(pid, 0)
        number, _, place = told.decode("ascii").partition(" ")
        raise Refused(int(number), place)
    return Execution(pid, started_us)


def execute(request: Request, descriptors: "tuple[int, int, int]", writing: int) -> None:
    """In the child: become the program, or tell why not, and end."""
    what = "program"
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        for each in NAMES:
            if each not in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    signal.signal(each, signal.SIG_DFL)
                except (OSError, ValueError):
                    pass
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(request.umask)
        what = "cwd"
        os.chdir(request.cwd)
        what = "program"
        become(request)
    except OSError as error:
        tell(writing, error.errno or errno.EIO, what)
    except (ValueError, TypeError, KeyError):  # a NUL byte, an empty argv: no system would take it
        tell(writing, errno.EINVAL, what)
    os._exit(127)


def tell(writing: int, number: int, what: str) -> None:
    os.write(writing, f"{number} {what}".encode("ascii"))


def become(request: Request) -> None:
    """Execute the program, looked for on this node. Raise OSError."""
    argv, environment = request.argv, environment_of(request)
    places = [b""] if b"/" in argv[0] else [each for each in environment.get(b"PATH", b"").split(b":") if each[:1] == b"/"]
    failed = OSError(errno.ENOENT, "not there")
    for place in places:
        try:
            os.execve(place + b"/" + argv[0] if place else argv[0], argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                if error.errno != errno.EACCES:
                    raise
                failed = error
    raise failed


def environment_of(request: Request) -> "dict[bytes, bytes]":
    """Return what the request says, over what a program needs to know of its allocation."""
    found = {
        name: value
        for name, value in os.environb.items()
        if (name.startswith(b"SLURM") and name not in KEPT_BACK) or name in PASSED_ON
    }
    found.update(request.environment)
    return found


def open_output(path: bytes) -> int:
    """Open a stream's file to append, made 0600 if need be; a link, fifo or device there is refused."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | OPEN
    descriptor = os.open(path, flags, 0o600)
    if (os.fstat(descriptor).st_mode & 0o170000) != 0o100000:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    os.set_blocking(descriptor, True)
    return descriptor


# Its end ---------------------------------------------------------------------------------------------------------------


def wait(execution: Execution, directory: str) -> None:
    """Wait until the program has ended, and after a stop its whole group; obey the letter box meanwhile."""
    look_at = time.monotonic() + LOOK_S
    while True:
        now = time.monotonic()
        is_due = 0 <= execution.kill_at <= now
        if execution.is_over and (execution.kill_at < 0 or not others()):
            break
        if is_due:
            signal_group(signal.SIGKILL)
        pause = min(look_at - now, execution.kill_at - now if execution.kill_at > now else LOOK_S)
        if is_due or execution.is_over:
            pause = GROUP_LOOK_S
        told = signal.sigtimedwait(WAITED_FOR, max(0.0, pause))
        if told is not None and told.si_signo != signal.SIGCHLD and not is_of_group(told.si_pid):
            look_at = 0.0
            execution.heard.append(NAMES.get(told.si_signo, str(told.si_signo)))
            if told.si_signo in TO_US:
                os.kill(execution.pid, told.si_signo)
        execution.reap()
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_S
            grace, is_given_up = asked_to_stop(directory)
            if grace >= 0:
                if execution.kill_at < 0:
                    execution.is_given_up = is_given_up
                    acknowledge(directory)
                execution.stop(grace)
    if execution.kill_at >= 0:
        execution.ended_us = now_us()  # its time ends with its group


def signal_group(number: int) -> None:
    """Signal every other process of the group; we block what we may be sent, but nobody blocks a KILL."""
    if number != signal.SIGKILL:
        os.killpg(0, number)
        return
    for pid in others():
        try:
            os.kill(pid, number)
        except OSError:
            pass


def others() -> "list[int]":
    """Return the living processes of our group but ourselves."""
    own, found = os.getpgid(0), []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and group_of(name) == own:
            found.append(int(name))
    return found


def group_of(name: str) -> int:
    """Return the group of a living process; -1 for a dead one."""
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[2])


def is_of_group(pid: int) -> bool:
    return pid > 0 and group_of(str(pid)) == os.getpgid(0)


# Records ---------------------------------------------------------------------------------------------------------------


def write_end(directory: str, end: "dict[str, object]") -> None:
    """Write the exit record, whole and durable. Order: what the job wrote, then the record, which vouches for it."""
    for name in LEFT_BY_THE_JOB:
        sync_file(directory + "/" + name)
    part = directory + "/.end"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN, 0o600)
    os.write(descriptor, as_json(end) + b"\n")
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(part, directory + "/end")
    sync_directory(directory)


def as_json(value: object) -> bytes:
    """Return a table of texts, whole numbers, truths, lists of texts and nothings as JSON."""
    if isinstance(value, dict):
        return b"{" + b", ".join(as_json(key) + b": " + as_json(each) for key, each in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b", ".join(map(as_json, value)) + b"]"
    if isinstance(value, str):
        plain = value.encode("ascii", "replace").replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        return b'"' + bytes(each for each in plain if each >= 32) + b'"'
    if value is None:
        return b"null"
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode("ascii")


def sync_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | OPEN)
    except OSError:
        return  # it left none, or a link or something unreadable, which is no output
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    os.close(descriptor)


def sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def end_of(execution: Execution) -> "dict[str, object]":
    status = execution.status
    return {
        "kind": "ended",
        "pid": execution.pid,
        "started_us": execution.started_us,
        "ended_us": max(execution.ended_us, execution.started_us),
        "exit_status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "cpu_us": execution.cpu_us,
        "max_rss_bytes": execution.max_rss_bytes,
        "left_behind": len(others()),
        "heard": execution.heard,
        "was_stopped": execution.kill_at >= 0,
        "was_given_up": execution.is_given_up,
    }


def run(directory: str, name: str, k: int) -> int:
    """Do all of it; return the exit status for Slurm."""
    os.umask(0o077)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    started_us = claim(directory)
    if not started_us:
        say(f"{name}/{k} was claimed before: nothing is run")
        return 0
    whose = {"run": name, "k": k, "job": os.environ.get("SLURM_JOB_ID"), "node": node()}
    try:
        execution = start(read_request(directory), started_us)
    except (Refused, OSError) as error:
        number, what = (error.number, error.what) if isinstance(error, Refused) else (error.errno or errno.EIO, "record")
        end = {"kind": "refused", "errno": number, "what": what, "started_us": started_us, "ended_us": now_us()}
        write_end(directory, dict(end, **whose))
        return 126
    wait(execution, directory)
    write_end(directory, dict(end_of(execution), **whose))
    if os.WIFSIGNALED(execution.status):
        return 128 + os.WTERMSIG(execution.status)
    return os.WEXITSTATUS(execution.status)


def probe(path: str) -> int:
    """Say who sees a file of the shared folder."""
    os.umask(0o077)
    with open(path, "rb") as file:
        token = file.read(MARK_BYTES).decode("ascii")
    seen = {"token": token, "node": node(), "python": ".".join(map(str, sys.version_info[:3])), "user": os.geteuid()}
    part = path + ".part"
    with open(part, "wb") as out:
        out.write(as_json(seen))
        out.flush()
        os.fsync(out.fileno())
    os.rename(part, path + ".seen")
    return 0


if __name__ == "__main__":
    sys.exit(probe(sys.argv[2]) if sys.argv[1] == "--probe" else run(sys.argv[1], sys.argv[2], int(sys.argv[3])))

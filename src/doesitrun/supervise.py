"""One child under supervision: its logs, its memory, and the end of everything it started.

Run as a file by `isolate`, with `python -I -S supervise.py`, in a session of its own; it imports the standard
library only, so that it starts in a blink and needs no package of any stack.

Standard input: one line of JSON, {"argv", "folder", "env", "log_bytes", "memory_bytes"}. After it the pipe
stays open and silent: its end means that the harness gave up, or died, and everything is killed.
Standard output: one line of JSON when no descendant is left (see `Supervisor.report`), or {"error": sentence}.

What is covered: descendants that start sessions of their own, double-forked daemons (they are re-parented to this
process, a child subreaper), a SIGKILL of the harness. What is not: when this process itself gets a SIGKILL, the
child dies with it, but its own children only when the harness, still alive, sweeps them up. This is no sandbox
against code that means harm: the child runs as the same user.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CONTROL = 0
ANSWER = 1
CHUNK_BYTES = 1 << 18
SAMPLE_S = 0.1
"""Seconds between two looks at the memory, as long as a look is cheap."""
SAMPLE_SHARE = 0.1
"""The most of one core that looking at the memory may cost."""
PATIENCE_S = 10.0
"""Seconds after which a process that outlives SIGKILL (it hangs in a driver) is given up."""
OOM_SCORE = b"500"
"""Raised above the harness's own score, so that a host without memory loses the child first."""


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def read_proc(name: str) -> bytes:
    """The first 8192 bytes of a file below /proc; empty when the process is gone or the kernel has no such file."""
    try:
        file = os.open(f"/proc/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, 8192)
    except OSError:
        return b""
    finally:
        os.close(file)


def statistics() -> Iterator[tuple[int, bytes, int]]:
    """(process, state, parent) of every process that can be seen."""
    for entry in os.scandir("/proc"):
        fields = read_proc(f"{entry.name}/stat").rpartition(b")")[2].split(None, 2) if entry.name.isdigit() else ()
        if len(fields) > 1:
            yield int(entry.name), fields[0], int(fields[1])


def descendants(root: int) -> list[int]:
    """The living descendants of a process; zombies are left out, but not what hangs below them."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for pid, state, parent in statistics():
        children.setdefault(parent, []).append(pid)
        if state in b"ZX":
            zombies.add(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return [pid for pid in found if pid not in zombies]


def private_bytes(pid: int) -> int:
    """Resident memory less file-backed and shared pages: libraries and mapped weights are not counted again."""
    fields = read_proc(f"{pid}/statm").split()
    return max(0, int(fields[1]) - int(fields[2])) * resource.getpagesize() if len(fields) > 2 else 0


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since it booted; 0 where it does not say."""
    counts = [line.split()[1] for line in read_proc("vmstat").split(b"\n") if line.startswith(b"oom_kill ")]
    return int(counts[0]) if counts else 0


class Log:
    """A file that keeps the first and the last half of its cap, and says how much was dropped between them."""

    def __init__(self, path: str, source: int, cap: int) -> None:
        self.source = source
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self.head_left = cap // 2
        self.tail_bytes = cap - cap // 2
        self.tail = bytearray()
        self.dropped = 0

    def pump(self) -> bool:
        """Take what the pipe holds, one chunk at most. False when nothing is there or the writers are gone."""
        try:
            chunk = os.read(self.source, CHUNK_BYTES)
        except BlockingIOError:
            return False
        head = chunk[: self.head_left]
        self.head_left -= len(head)
        self.write(head)
        self.tail += chunk[len(head) :]
        if len(self.tail) > 2 * self.tail_bytes + CHUNK_BYTES:
            self.trim()
        return bool(chunk)

    def trim(self) -> None:
        surplus = max(0, len(self.tail) - self.tail_bytes)
        self.dropped += surplus
        del self.tail[:surplus]

    def write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.file, view) :]
            except OSError:  # the disk is full: the run goes on without the rest of its log
                self.dropped += len(view)
                return

    def finish(self) -> None:
        while self.pump():
            pass
        self.trim()
        if self.dropped:
            self.write(f"\n[doesitrun: {self.dropped} bytes were dropped here]\n".encode())
        self.write(self.tail)
        os.close(self.file)


class Supervisor:
    """The child, its logs and its descendants, from the start to the last of them."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.memory_limit: int | None = job["memory_bytes"]
        self.peak = 0
        self.leftovers: set[int] = set()
        self.status: int | None = None
        self.ended_by = "child"
        self.oom_kills = oom_kills()
        self.next_sample = time.monotonic() + SAMPLE_S / 4
        self.wake = wake_on_signals()
        outputs = [os.pipe(), os.pipe()]
        self.child = start(job, outputs[0][1], outputs[1][1])
        self.logs = {}
        for name, (source, sink) in zip(("stdout.log", "stderr.log"), outputs, strict=True):
            os.close(sink)
            os.set_blocking(source, False)
            self.logs[source] = Log(f"{job['folder']}/{name}", source, job["log_bytes"])

    def watch(self) -> None:
        """Return when the child has ended, the memory limit was passed, or the harness wants the end."""
        poller = select.poll()
        for source in (CONTROL, self.wake, *self.logs):
            poller.register(source, select.POLLIN)
        while self.status is None:
            wait_s = max(0.0, self.next_sample - time.monotonic())
            for source, _ in poller.poll(wait_s * 1000):
                if source in self.logs:
                    if not self.logs[source].pump():
                        poller.unregister(source)
                elif source == CONTROL or self.is_told_to_stop():
                    self.ended_by = "harness" if source == CONTROL else "signal"
                    return
            self.reap()
            if self.status is None and self.is_over_memory():
                self.ended_by = "memory"
                return

    def is_told_to_stop(self) -> bool:
        """Empty the wake-up pipe; True when a signal other than a child's end came through it."""
        return any(number != signal.SIGCHLD for number in os.read(self.wake, 4096))

    def is_over_memory(self) -> bool:
        now = time.monotonic()
        if now < self.next_sample:
            return False
        used = sum(private_bytes(pid) for pid in descendants(os.getpid()))
        self.peak = max(self.peak, used)
        cost_s = time.monotonic() - now
        self.next_sample = now + max(SAMPLE_S, cost_s / SAMPLE_SHARE)
        return self.memory_limit is not None and used > self.memory_limit

    def reap(self) -> bool:
        """Collect every dead child, adopted ones too. False when no child is left, dead or alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status = status

    def kill_all(self) -> list[int]:
        """SIGKILL all descendants until none is left; those that could not be killed are returned."""
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 0.001
        while self.reap():
            alive = descendants(os.getpid())
            if time.monotonic() > deadline:
                return alive
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            if self.leftovers.issuperset(alive):  # otherwise something is still forking: no time to lose
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.05)
            self.leftovers.update(alive)
        return []

    def finish(self) -> None:
        stuck = self.kill_all()
        for log in self.logs.values():
            log.finish()
        os.write(ANSWER, json.dumps(self.report(stuck)).encode() + b"\n")

    def report(self, stuck: list[int]) -> dict[str, Any]:
        """What the harness gets. `status` is waitpid's, null for a child that SIGKILL did not end."""
        return {
            "status": self.status,
            "ended_by": self.ended_by,
            "peak_bytes": self.peak,
            "leftovers": len(self.leftovers - {self.child}),
            "stuck": stuck,
            "oom_kills": oom_kills() - self.oom_kills,
        }


def wake_on_signals() -> int:
    """A pipe that becomes readable at a child's end, and when somebody asks this process to stop."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return source


def start(job: dict[str, Any], stdout: int, stderr: int) -> int:
    """Fork and start the child. Raises OSError when it cannot be started."""
    parent = os.getpid()
    failure, tell = os.pipe()
    child = os.fork()
    if child == 0:
        become(job, stdout, stderr, parent, tell)
    os.close(tell)
    code = os.read(failure, 16)
    os.close(failure)
    if code:
        os.waitpid(child, 0)
        raise OSError(int(code), os.strerror(int(code)))
    return child


def become(job: dict[str, Any], stdout: int, stderr: int, parent: int, tell: int) -> NoReturn:
    """Turn the forked process into the child; a failure is told as its errno through `tell`."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores the last two, and exec would keep that
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        expose_to_oom_killer()
        os.chdir(job["folder"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.execvpe(job["argv"][0], job["argv"], job["env"])  # noqa: S606  this module is the door through which children start
    except OSError as error:
        os.write(tell, str(error.errno).encode())
    except ValueError:  # a null byte in a word, or "=" in a variable's name
        os.write(tell, str(errno.EINVAL).encode())
    finally:
        os._exit(127)


def expose_to_oom_killer() -> None:
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(score, OOM_SCORE)
    except OSError:  # not allowed in some containers, and only a courtesy
        return


def read_line(source: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(source, CHUNK_BYTES)
        if not chunk:
            sys.exit(1)  # the harness died before it said what to do
        line += chunk
    return line


def main() -> NoReturn:
    """Do one job; the process ends without Python's clean-up, so that the harness need not wait for it."""
    job = json.loads(read_line(CONTROL))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        supervisor = Supervisor(job)
    except OSError as error:
        os.write(ANSWER, json.dumps({"error": str(error)}).encode() + b"\n")
        os._exit(1)
    try:
        supervisor.watch()
    finally:
        supervisor.finish()
        os._exit(0)


if __name__ == "__main__":
    main()

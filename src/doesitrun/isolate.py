"""One child process at a time: its time, memory, logs and environment. The only place that starts processes.

A child gets a session of its own under a supervisor (`supervise.py`), an empty standard input, a chosen
environment, a wall-clock limit per stage and a memory limit on it and all its descendants together. At the end,
however it comes, every descendant is killed: a daemon that was left behind too, and also when the harness itself
is killed. There is no limit on address space: accelerator runtimes reserve huge ranges.

This is no sandbox: a child can read and write whatever its user can.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from doesitrun.environment import child_environment
from doesitrun.errors import IsolationError, StackError
from doesitrun.outcomes import Stage

__all__ = ["Ended", "Limits", "child_environment", "read_log", "read_result", "run", "run_script", "sweep"]

STDOUT = "stdout.log"
STDERR = "stderr.log"
STAGE_FILE = "stage"
RESULT_FILE = "result.json"
CHILD_STAGES = (Stage.START, Stage.LOAD, Stage.COMPILE, Stage.RUN, Stage.EXIT)

POLL_S = 0.1
WATCH_S = 0.5
PATIENCE_S = 20.0
"""Seconds that a supervisor gets to kill everything; it gives a process that SIGKILL does not end 10 of them."""
MARK = "DOESITRUN_CHILD"
"""Variable that names the run in the environment of every descendant, so that orphans can be found."""

Watch = Callable[[Stage, float], None]


@dataclass(frozen=True)
class Limits:
    """What a child may use. Seconds of wall clock per stage; `math.inf` is no limit."""

    start_s: float = 600.0
    load_s: float = 1800.0
    compile_s: float = 3600.0
    run_s: float = 1800.0
    exit_s: float = 60.0
    memory_bytes: int | None = None
    """Private memory of the child and its descendants together; None is no limit."""
    log_bytes: int = 8_000_000
    """Each of the two logs keeps this much: the first half and the last half."""

    def of(self, stage: Stage) -> float:
        """Seconds that a stage may last."""
        return float(getattr(self, f"{stage.value}_s", math.inf))


@dataclass(frozen=True)
class Ended:
    """How a child ended. Either `exit_status` or `signal` is None."""

    exit_status: int | None
    signal: int | None
    stage: Stage
    """The last stage that the child announced."""
    timed_out: bool = False
    memory_exceeded: bool = False
    wall_s: float = 0.0
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage, in the order in which they were entered."""
    peak_bytes: int = 0
    """Most private memory of all descendants together, as sampled about every 0.1 s."""
    leftovers: int = 0
    """Processes besides the child that had to be killed."""
    oom_kills: int = 0
    """Processes that the host's kernel killed for memory meanwhile."""


Start = Callable[[Sequence[str], Path, Mapping[str, str], Limits, Watch | None], Ended]
"""What `run` is: a pool has its own, which may run the child elsewhere."""


# ---------------------------------------------------------------------------------- one child
def run(argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
    """Run a command in `folder` (made if absent) until it ends or passes a limit, and kill whatever it leaves.

    The folder gets stdout.log and stderr.log, and the child may write its `stage` there. `watch` is called with the
    stage and the seconds since it began: at each change and about twice a second. Raises IsolationError when the
    command cannot be started or watched; KeyboardInterrupt and what `watch` raises kill everything and come through.
    """
    folder = folder.resolve()
    _prepare(folder)
    mark = uuid.uuid4().hex
    job = {
        "argv": list(argv),
        "folder": str(folder),
        "env": dict(env) | {MARK: mark},
        "log_bytes": limits.log_bytes,
        "memory_bytes": limits.memory_bytes,
    }
    clock = _StageClock(folder / STAGE_FILE, limits, watch)
    timed_out = False
    with _Supervisor(job, mark) as supervisor:
        while not supervisor.has_answered(POLL_S):
            clock.tick()
            if not timed_out and clock.is_over:
                timed_out = True
                supervisor.stop()
    clock.finish()
    return _ended(supervisor.answer, clock, timed_out=timed_out)


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STAGE_FILE).unlink(missing_ok=True)
    except OSError as error:
        message = f"the folder {folder} cannot be written ({error.strerror}); choose another workspace or free some space"
        raise IsolationError(message) from error


def _ended(answer: Mapping[str, Any] | None, clock: _StageClock, *, timed_out: bool) -> Ended:
    common: dict[str, Any] = {"stage": clock.stage, "wall_s": clock.wall_s, "stage_s": clock.seconds}
    if answer is None:  # somebody killed the supervisor
        return Ended(None, signal.SIGKILL, timed_out=timed_out, **common)
    status = answer["status"]
    is_exit = status is not None and os.WIFEXITED(status)
    return Ended(
        os.WEXITSTATUS(status) if is_exit else None,
        None if is_exit else (signal.SIGKILL if status is None else os.WTERMSIG(status)),
        timed_out=timed_out and answer["ended_by"] == "harness",
        memory_exceeded=answer["ended_by"] == "memory",
        peak_bytes=answer["peak_bytes"],
        leftovers=answer["leftovers"],
        oom_kills=answer["oom_kills"],
        **common,
    )


class _StageClock:
    """Follows the stage file: which stage it is, and since when."""

    def __init__(self, path: Path, limits: Limits, watch: Watch | None) -> None:
        self.path, self.limits, self.watch = path, limits, watch
        self.stage = Stage.START
        self.seconds: dict[str, float] = {}
        self.started = self.began = self.ticked = self.watched = time.monotonic()
        self.call(self.started)

    @property
    def is_over(self) -> bool:
        """True when the stage, all its turns together, has lasted longer than it may."""
        return self.seconds.get(self.stage.value, 0.0) + self.ticked - self.began > self.limits.of(self.stage)

    @property
    def wall_s(self) -> float:
        return self.ticked - self.started

    def call(self, now: float) -> None:
        if self.watch is not None:
            self.watch(self.stage, now - self.began)
        self.watched = now

    def tick(self) -> None:
        now = time.monotonic()
        stage, age_s = self.read()
        if stage is not self.stage:
            self.close(max(self.ticked, now - age_s))
            self.stage = stage
            self.call(now)
        elif now - self.watched >= WATCH_S:
            self.call(now)
        self.ticked = now

    def read(self) -> tuple[Stage, float]:
        """The stage that the file names and how long ago it was written; the former stage for any other word."""
        try:
            age_s = time.time() - self.path.stat().st_mtime
            with self.path.open("rb") as file:
                stage = Stage(file.read(64).decode("ascii", "replace").strip())
        except (OSError, ValueError):
            return self.stage, 0.0
        return (stage if stage in CHILD_STAGES else self.stage), max(0.0, age_s)

    def close(self, now: float) -> None:
        self.seconds[self.stage.value] = self.seconds.get(self.stage.value, 0.0) + now - self.began
        self.began = now

    def finish(self) -> None:
        self.tick()
        self.close(self.ticked)


class _Supervisor:
    """The harness's end of a supervisor process. Leaving the context kills every descendant."""

    def __init__(self, job: Mapping[str, Any], mark: str) -> None:
        self.mark = mark
        self.answer: dict[str, Any] | None = None
        self.received = b""
        self.deadline = math.inf
        script = Path(__file__).with_name("supervise.py")
        try:
            self.process = subprocess.Popen(  # noqa: S603  our own interpreter and file
                [sys.executable, "-I", "-S", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=child_environment(os.environ, {}, keep_token=False),
            )
        except OSError as error:
            message = f"no process can be started ({error.strerror}); close some programs and try again"
            raise IsolationError(message) from error
        self.job = json.dumps(job).encode() + b"\n"

    def __enter__(self) -> Self:
        try:
            self.send(self.job)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:  # it is dead already, which the missing answer will show
            return

    def has_answered(self, wait_s: float) -> bool:
        """True when the supervisor is done, or gone. Raises IsolationError when it could not start the child."""
        assert self.process.stdout is not None
        poller = select.poll()
        poller.register(self.process.stdout, select.POLLIN)
        if not poller.poll(wait_s * 1000):
            return time.monotonic() > self.deadline
        chunk = os.read(self.process.stdout.fileno(), 65536)
        self.received += chunk
        if chunk and not chunk.endswith(b"\n"):
            return False
        self.answer = json.loads(self.received) if self.received.endswith(b"\n") else None
        if self.answer is not None and "error" in self.answer:
            program = json.loads(self.job)["argv"][0]
            message = f"{program} cannot be started: {self.answer['error']}; check that it exists and may be executed"
            raise IsolationError(message)
        return True

    def stop(self) -> None:
        """Ask for the end of everything; the answer follows."""
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            return
        self.deadline = time.monotonic() + PATIENCE_S
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return

    def end(self) -> None:
        """Return when no descendant is left."""
        self.stop()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
        if self.answer is None:
            sweep(self.mark)


def sweep(mark: str) -> None:
    """SIGKILL every process that carries the run's mark: what a supervisor left that was itself killed."""
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + PATIENCE_S
    while (pids := [pid for pid in _processes() if wanted in _environment(pid)]) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.02)


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """The variables that a process was started with; none for zombies and other users' processes."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


# ---------------------------------------------------------------------------------- what a child left
def read_log(folder: Path) -> str:
    """stdout.log and then stderr.log of a folder; bytes that are not UTF-8 are replaced, a missing log is empty."""
    texts = []
    for name in (STDOUT, STDERR):
        try:
            texts.append((folder / name).read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(text.rstrip("\n") for text in texts if text.strip())


def read_result(folder: Path) -> dict[str, Any] | None:
    """What the child left in result.json; None when it is absent, cut off, not JSON or no object."""
    try:
        result = json.loads((folder / RESULT_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None


# ---------------------------------------------------------------------------------- scripts that run in a stack
def run_script(
    script: Path,
    python: str,
    request: Mapping[str, Any],
    folder: Path,
    *,
    limits: Limits | None = None,
    env: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    start: Start = run,
) -> dict[str, Any]:
    """Run `python script REQUEST.json ANSWER.json` in `folder` and return the answer.

    `limits.start_s` bounds the whole. `start` runs the child. `env` defaults to the harness's own without its secrets. Raises StackError,
    with the script's last words, when there is no answer; IsolationError when the Python cannot be started.
    """
    limits = limits or Limits()
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    request_file, answer_file = folder / "request.json", folder / "answer.json"
    answer_file.unlink(missing_ok=True)
    request_file.write_text(json.dumps(request), encoding="utf-8")
    environment = child_environment(os.environ, {}, keep_token=False) if env is None else env
    argv = [python, str(script.resolve()), str(request_file), str(answer_file)]
    ended = start(argv, folder, environment, limits, watch)
    why = _why_no_answer(ended, limits)
    if why is None:
        try:
            answer = json.loads(answer_file.read_bytes())
        except (OSError, ValueError):
            answer = None
        if isinstance(answer, dict):
            return answer
        why = "left no answer"
    last = _last_words(folder)
    message = f"{script.stem} {why}{f': {last}' if last else ''}; see {folder / STDERR}"
    raise StackError(message)


def _why_no_answer(ended: Ended, limits: Limits) -> str | None:
    """What went wrong with a script, or None when its answer may be read."""
    if ended.timed_out:
        return f"took longer than {limits.of(ended.stage):g} s"
    if ended.memory_exceeded:
        return f"took more than {(limits.memory_bytes or 0) / 1e9:.3g} GB of memory"
    if ended.signal is not None:
        return f"was ended by signal {ended.signal}"
    return f"failed with exit status {ended.exit_status}" if ended.exit_status else None


def _last_words(folder: Path) -> str:
    """The last line of stderr.log with something on it, cut to 300 characters."""
    try:
        lines = (folder / STDERR).read_bytes().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

"""A target's open questions, asked one after the other with small real runs; one that fails stops no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doesitrun import isolate
from doesitrun.doctor.gather import Watch, locate
from doesitrun.environment import child_environment
from doesitrun.errors import DoesItRunError
from doesitrun.isolate import Limits
from doesitrun.stacks import INSTACK
from doesitrun.targets.checks import Observed, Program, Question, Step

OVER_S = 86_400.0


@dataclass(frozen=True)
class Answer:
    """What became of a question. `answer` is None when it could not be answered; then `why_not` says why."""

    id: str
    question: str
    answer: str | None
    why_not: str
    emulated: bool
    """True: it was asked of an emulated device, and nothing is proved for the real one."""
    ran: tuple[str, ...]
    """The steps: task and request."""
    observed: tuple[Observed, ...]
    seconds: float


@dataclass(frozen=True)
class Room:
    """Where questions are asked: the stack's Python, the cores that may be used, a folder for what is left behind."""

    python: str
    cores: tuple[int, ...]
    folder: Path
    environment: Mapping[str, str]
    emulated: bool
    memory_bytes: int


def ask(questions: Sequence[Question], room: Room, watch: Watch) -> Iterator[Answer]:
    """One answer per question, in their order, as they come. Each step is a process of its own with a time limit."""
    for number, question in enumerate(questions, 1):
        watch(f"question {number} of {len(questions)}: {question.id}")
        started = time.monotonic()
        with beside(question.beside, room, room.folder / question.id / "beside") as printed:
            observed = tuple(_step(step, index, question, room) for index, step in enumerate(question.steps, 1))
        yield _answer(question, observed, printed(), room.emulated, time.monotonic() - started)


def _answer(question: Question, observed: tuple[Observed, ...], printed: str, emulated: bool, seconds: float) -> Answer:
    answer = question.conclude(observed, printed)
    failures = [each.failure for each in observed if each.failure]
    why_not = "" if answer is not None else "; ".join(dict.fromkeys(failures)) or "the runs told nothing about it"
    ran = tuple(f"{step.task} {dict(step.request)}" for step in question.steps)
    return Answer(question.id, question.text, answer, why_not, emulated, ran, observed, round(seconds, 1))


def _step(step: Step, number: int, question: Question, room: Room) -> Observed:
    if step.cores > len(room.cores):
        return Observed(None, f"it needs {step.cores} free cores, and there are {len(room.cores)}")
    own = room.folder / question.id
    values = {"{folder}": str(own), "{core}": str(room.cores[0])}
    environment = child_environment(room.environment, {k: _filled(v, values) for k, v in step.environment.items()}, keep_token=False)
    limits = Limits(start_s=question.limit_s, memory_bytes=room.memory_bytes)
    folder = own / str(number)
    try:
        return Observed(
            isolate.run_script(INSTACK / "examine.py", room.python, _request(step, room.cores), folder, limits=limits, env=environment)
        )
    except DoesItRunError as error:
        return Observed(None, str(error))


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _request(step: Step, cores: Sequence[int]) -> dict[str, Any]:
    """The step's request; groups name cores by their place among those that may be used."""
    request = {"task": step.task, **step.request}
    if "groups" in request:
        request["groups"] = [[cores[place] for place in group] for group in request["groups"]]
    return request


# ---------------------------------------------------------------------------------- a program beside the runs
class _Enough(Exception):  # noqa: N818  it is no error
    """The runs are over: the program beside them can stop."""


@contextmanager
def beside(program: Program | None, room: Room, folder: Path) -> Iterator[Callable[[], str]]:
    """Runs the program until the block ends; what is yielded returns what it printed, "" if it is not there."""
    path = None if program is None else locate(program, room.python)[0]
    if program is None or path is None:
        yield lambda: ""
        return
    over = threading.Event()
    argv = [path, *program.arguments]
    thread = threading.Thread(target=_run_until, args=(over, argv, folder, dict(room.environment)), daemon=True)
    thread.start()
    try:
        yield lambda: _printed(folder)
    finally:
        over.set()
        thread.join(isolate.PATIENCE_S)


def _run_until(over: threading.Event, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    def watch(*_: object) -> None:
        if over.is_set():
            raise _Enough

    try:
        isolate.run(argv, folder, child_environment(environment, {}, keep_token=False), Limits(start_s=OVER_S), watch)
    except (_Enough, DoesItRunError):
        return


def _printed(folder: Path) -> str:
    path = folder / isolate.STDOUT
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

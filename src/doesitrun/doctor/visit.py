"""One visit to an environment: facts, checks and, if asked, the target's open questions; and the report of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from doesitrun import __version__
from doesitrun.doctor.examination import Answer, Room, ask
from doesitrun.doctor.gather import Watch, gather, probe
from doesitrun.doctor.judge import has_problem, judge
from doesitrun.errors import DoesItRunError, StackError, UsageError
from doesitrun.files import reaching, write_whole
from doesitrun.records import dumps
from doesitrun.settings import Settings, StackSettings
from doesitrun.stacks import configured
from doesitrun.targets import TARGETS
from doesitrun.targets.checks import Check, Question, Status, is_emulated

MEMORY_SHARE = 0.92
"""Of the host's memory, what a question's run may take."""


@dataclass(frozen=True)
class Report:
    """What was found in one stack. `answers` is empty unless the questions were asked."""

    stack: str
    python: str
    target: str
    device: str
    emulated: bool
    """True: the device was emulated on the CPU, and nothing here is a result for a real one."""
    date: str
    doesitrun: str
    versions: Mapping[str, str]
    checks: tuple[Check, ...]
    open_questions: tuple[str, ...] = ()
    """Ids of the questions that can be asked."""
    answers: tuple[Answer, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return not has_problem(self.checks)


def chosen(settings: Settings, stack: str | None, target: str | None) -> dict[str, StackSettings]:
    """The stacks to visit: the one that is named, or all that may have the target. Raises UsageError, StackError."""
    known = configured(settings)
    if target is not None and target not in TARGETS:
        raise UsageError(f"There is no target {target!r}: choose one of {', '.join(TARGETS)}.")
    if stack is not None and stack not in known:
        raise UsageError(f"There is no stack {stack!r}: doesitrun.toml has {', '.join(known) or 'none'}.")
    if stack is not None:
        return {stack: known[stack]}
    found = {name: wanted for name, wanted in known.items() if target is None or wanted.target in (None, target)}
    if not found:
        raise StackError("There is no stack to look at: pip install 'doesitrun[stack]', or name a Python that has torch in doesitrun.toml.")
    return found


def visit(name: str, wanted: StackSettings, target: str | None, workspace: Path, watch: Watch) -> Report:
    """The checks of one stack. A stack whose Python does not start gets a report, too."""
    watch(f"stack {name}")
    try:
        probed = probe(wanted.python)
    except DoesItRunError as error:
        broken = Check("python", Status.PROBLEM, str(error), f"Correct stacks.{name}.python in doesitrun.toml.")
        return _report(name, wanted.python, target or wanted.target or "", {}, (broken,))
    target = target or wanted.target or _concerned(probed)
    facts = gather(wanted.python, target, probed, workspace, watch)
    return _report(name, wanted.python, target, probed, judge(target, facts))


def _concerned(probed: Mapping[str, Any]) -> str:
    """The first target of which the machine or the stack has anything: the best ones come first."""
    return next(name for name, target in TARGETS.items() if target.CHECKUP.concerns(probed))


def _report(name: str, python: str, target: str, probed: Mapping[str, Any], checks: tuple[Check, ...]) -> Report:
    distributions: Mapping[str, str] = probed.get("distributions", {})
    detected = TARGETS[target].detect(probed) if probed else None
    wanted = dict.fromkeys(("torch", "transformers", "accelerate", *TARGETS[target].VERSION_COLUMNS.values())) if target else {}
    versions = {each: distributions[each] for each in wanted if each in distributions}
    versions |= {key: str(probed[key]) for key in ("python", "os") if key in probed}
    return Report(
        stack=name,
        python=python,
        target=target,
        device=detected.device if detected else "",
        emulated=is_emulated(distributions),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        doesitrun=__version__,
        versions=versions,
        checks=checks,
        open_questions=tuple(question.id for question in TARGETS[target].CHECKUP.questions) if target else (),
    )


# ---------------------------------------------------------------------------------- questions
def examine(report: Report, ids: Sequence[str], workspace: Path, watch: Watch) -> tuple[Report, Path]:
    """The report with its answers, and the file that it was written to.

    Raises UsageError for an unknown question, StackError for a stack whose Python does not start.
    """
    questions = _wanted(report, ids)
    probed = probe(report.python)
    detected = TARGETS[report.target].detect(probed)
    cores = TARGETS[report.target].CHECKUP.cores(dict(os.environ), detected.cores if detected else 0)
    path = _file(workspace, report)
    room = Room(
        python=report.python,
        cores=tuple(cores),
        folder=path.with_suffix(""),
        environment=dict(os.environ),
        emulated=report.emulated,
        memory_bytes=int(probed["host_memory_bytes"] * MEMORY_SHARE),
    )
    answers: list[Answer] = []
    for answer in ask(questions, room, watch):
        answers.append(answer)
        report = dataclasses.replace(report, answers=tuple(answers))
        _write(path, report)  # after each: what was learned outlives a stop
    return report, path


def _wanted(report: Report, ids: Sequence[str]) -> list[Question]:
    known = {question.id: question for question in TARGETS[report.target].CHECKUP.questions} if report.target else {}
    for name in ids:
        if name not in known:
            raise UsageError(f"There is no question {name!r} about {report.target}: choose from {', '.join(known) or 'none'}.")
    return [question for name, question in known.items() if not ids or name in ids]


def _file(workspace: Path, report: Report) -> Path:
    """A new file doctor/DATE-STACK[-emulated].json of the workspace, with a folder of the same name for the runs."""
    folder = workspace.resolve() / "doctor"
    stack = "".join(c if c.isalnum() else "_" for c in report.stack)
    stem = f"{report.date[:19].replace(':', '')}-{stack}{'-emulated' if report.emulated else ''}"
    with reaching(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            path = folder / f"{stem}{f'-{number}' if number > 1 else ''}.json"
            try:
                path.with_suffix("").mkdir()
            except FileExistsError:
                continue
            return path
    raise AssertionError  # pragma: no cover - the loop has no end


def _write(path: Path, report: Report) -> None:
    with reaching(path):
        write_whole(path, dumps(report).encode())

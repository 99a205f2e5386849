"""The Python environments that models are run in: what doesitrun.toml names, probed in a child process."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from doesitrun import isolate
from doesitrun.errors import DoesItRunError, StackError, UsageError
from doesitrun.records import Stack
from doesitrun.settings import Settings, StackSettings
from doesitrun.targets import TARGETS

DEFAULT_NAME = "default"
INSTACK = Path(str(resources.files("doesitrun"))) / "instack"


def configured(settings: Settings) -> dict[str, StackSettings]:
    """The stacks that doesitrun.toml names, or else this very Python if it has torch."""
    if settings.stacks:
        return dict(settings.stacks)
    if importlib.util.find_spec("torch") is None:
        return {}
    return {DEFAULT_NAME: StackSettings(python=sys.executable)}


def probe(name: str, wanted: StackSettings) -> tuple[Stack, ...]:
    """What the stack can run, one record per target, the best first. Raises StackError."""
    if not Path(wanted.python).is_file():
        raise StackError(
            f"Stack {name!r}: there is no Python at {wanted.python}: give its full path as stacks.{name}.python in doesitrun.toml."
        )
    if wanted.target is not None and wanted.target not in TARGETS:
        raise UsageError(f"Stack {name!r}: there is no target {wanted.target!r}: write one of {', '.join(TARGETS)} in doesitrun.toml.")
    folder = Path(tempfile.mkdtemp(prefix="doesitrun-probe-"))
    facts = isolate.run_script(INSTACK / "probe.py", wanted.python, {}, folder)
    shutil.rmtree(folder, ignore_errors=True)  # a probe that failed leaves its log there
    found = tuple(_stack(name, wanted.python, target, facts) for target in TARGETS if wanted.target in (None, target))
    return tuple(stack for stack in found if stack is not None)


def choose(settings: Settings, name: str | None, target: str | None) -> Stack:
    """The stack called `name` (or the first one that has the target). Raises UsageError, StackError."""
    known = configured(settings)
    if target is not None and target not in TARGETS:
        raise UsageError(f"There is no target {target!r}: choose one of {', '.join(TARGETS)}.")
    if name is not None and name not in known:
        raise UsageError(f"There is no stack {name!r}: doesitrun.toml has {', '.join(known) or 'none'}.")
    if not known:
        raise StackError("This Python has no torch: pip install 'doesitrun[stack]', or name a Python that has it in doesitrun.toml.")
    for each in [name] if name is not None else known:
        for stack in probe(each, known[each]):
            if target in (None, stack.target):
                return stack
    wanted = f"the target {target}" if target else "a target"
    raise StackError(f"No stack has {wanted}: `doesitrun stacks` shows what each one has and lacks.")


@dataclass(frozen=True)
class Surveyed:
    """A configured stack and what it can run, or why it cannot be used."""

    name: str
    python: str
    stacks: tuple[Stack, ...] = ()
    problem: str = ""


def survey(settings: Settings) -> list[Surveyed]:
    """Every configured stack. One that cannot be used is named, and hides no other."""
    return [_surveyed(name, wanted) for name, wanted in configured(settings).items()]


def _surveyed(name: str, wanted: StackSettings) -> Surveyed:
    try:
        found = probe(name, wanted)
    except DoesItRunError as error:
        return Surveyed(name, wanted.python, problem=str(error))
    lacking = "" if found else "It has no torch, or not the target that it is meant for: pip install 'doesitrun[stack]' there."
    return Surveyed(name, wanted.python, found, lacking)


def stand_in(stack: Stack, target: str | None, device: str | None) -> Stack:
    """The stack as if it had `target` and `device`, which planning needs no more of than their names.

    Raises UsageError for a device of another target.
    """
    wanted = target or stack.target
    if wanted not in TARGETS:
        raise UsageError(f"There is no target {wanted!r}: choose one of {', '.join(TARGETS)}.")
    if wanted == stack.target:
        return stack
    first = next(iter(TARGETS[wanted].DEVICES))
    return dataclasses.replace(stack, target=wanted, device=device or first, compiler=TARGETS[wanted].COMPILER, compiler_version="")


def _stack(name: str, python: str, target: str, facts: Mapping[str, Any]) -> Stack | None:
    found = TARGETS[target].detect(facts)
    if found is None:
        return None
    distributions: Mapping[str, str] = facts["distributions"]
    columns = {"torch": "torch", "transformers": "transformers", "accelerate": "accelerate", **TARGETS[target].VERSION_COLUMNS}
    versions = {column: distributions[name] for column, name in columns.items() if name in distributions}
    drivers = {f"{module}_driver": version for module, version in facts["kernel_modules"].items()}
    return Stack(
        name=name,
        python=python,
        target=target,
        device=found.device,
        cores=found.cores,
        host_memory_bytes=facts["host_memory_bytes"],
        versions={**versions, **drivers, "python": facts["python"], "os": facts["os"]},
        compiler=TARGETS[target].COMPILER,
        compiler_version=found.compiler_version,
        notes=found.notes,
        machine=found.machine or found.device,
    )

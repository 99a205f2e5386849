"""What `doctor` is told of an environment and what it says of it; a target adds its own part as a `Checkup`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """Runs go on, but something is likely to surprise."""
    PROBLEM = "problem"
    """Runs will fail, or what they say will be wrong."""
    UNKNOWN = "unknown"
    """It could not be found out."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `advice` is one sentence; it is empty only when all is well."""

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Program:
    """A command that `doctor` runs, with an empty standard input, for what it prints."""

    command: str
    arguments: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Where it may lie besides the folders of PATH and the one of the stack's Python."""
    variable: str | None = None
    """An environment variable that names another command to use instead."""


@dataclass(frozen=True)
class Ran:
    """What a program did. `path` is None when it was not found, `status` when it did not end in time."""

    path: str | None
    on_path: bool = False
    status: int | None = None
    output: str = ""
    last_words: str = ""


@dataclass(frozen=True)
class Holder:
    """A process that holds a device."""

    pid: int
    command: str
    device: str


@dataclass(frozen=True)
class Facts:
    """What was gathered, without any judgement."""

    python: str
    probe: Mapping[str, Any]
    """The answer of `instack/probe.py`."""
    imported: Mapping[str, Any] = field(default_factory=dict)
    """The answer of `instack/imports.py`; empty when it left none."""
    import_failure: str = ""
    """Why there is no such answer."""
    programs: Mapping[str, Ran] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
    forbidden_devices: tuple[str, ...] = ()
    """Device files that this user may not open."""
    memory_available_bytes: int | None = None
    graphs_folder: str = ""
    graphs_failure: str = ""
    """Why no file could be written there."""
    workspace_free_bytes: int | None = None
    hub_folder: str = ""
    hub_free_bytes: int | None = None

    @property
    def installed(self) -> Mapping[str, str]:
        """Distributions of the stack: name -> version."""
        found: Mapping[str, str] = self.probe.get("distributions", {})
        return found

    @property
    def is_emulated(self) -> bool:
        """True for a stack whose device is emulated, which its versions say."""
        return is_emulated(self.installed)

    def seen(self, path: str) -> Any:
        """What the stack has at a dotted path, after its imports; None if there is nothing."""
        return self.imported.get("seen", {}).get(path)


@dataclass(frozen=True)
class Trap:
    """An environment variable that changes what a run does, when it has a value that `bites`."""

    variable: str
    bites: Callable[[str], bool]
    status: Status
    advice: str


@dataclass(frozen=True)
class Step:
    """One run of `instack/examine.py`, in a process of its own."""

    task: str
    request: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    """Cores that it needs; it is not run where there are fewer."""


@dataclass(frozen=True)
class Observed:
    """What a step left: its answer, or why there is none."""

    answer: Mapping[str, Any] | None
    failure: str = ""


@dataclass(frozen=True)
class Question:
    """Something that only a real run can tell.

    `conclude` gets one observation per step, and what `beside` printed, and returns the answer, or None when the
    observations give none.
    """

    id: str
    text: str
    steps: tuple[Step, ...]
    conclude: Callable[[Sequence[Observed], str], str | None]
    limit_s: float = 900.0
    """Seconds that each step may take."""
    beside: Program | None = None
    """A program that runs as long as the steps do."""


@dataclass(frozen=True)
class Checkup:
    """What `doctor` asks and judges for one target."""

    concerns: Callable[[Mapping[str, Any]], bool]
    """True when the probe shows anything of this target, be it incomplete."""
    checks: Callable[[Facts], tuple[Check, ...]]
    traps: tuple[Trap, ...] = ()
    modules: tuple[str, ...] = ("torch", "transformers")
    """Modules that are imported, in this order."""
    look: tuple[str, ...] = ()
    """Dotted paths that are looked up after the imports; one that ends with () is called."""
    programs: tuple[Program, ...] = ()
    questions: tuple[Question, ...] = ()
    cores: Callable[[Mapping[str, str], int], Sequence[int]] = lambda _, count: range(count)
    """The cores that may be used, from the environment's variables and the number that was detected."""


# ---------------------------------------------------------------------------------- judging
def is_emulated(distributions: Mapping[str, str]) -> bool:
    return any("emulated" in version for version in distributions.values())


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version's public part: "2.13.0+cpu" is (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def is_set(value: str) -> bool:
    return value != ""


def is_true(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "on")


def is_false(value: str) -> bool:
    return value.strip().lower() in ("0", "false", "no", "off")


def trapped(environment: Mapping[str, str], traps: Sequence[Trap]) -> tuple[Check, ...]:
    """One check per variable that bites."""
    return tuple(
        Check(f"variable {trap.variable}", trap.status, f"it is {environment[trap.variable]!r}", trap.advice)
        for trap in traps
        if trap.variable in environment and trap.bites(environment[trap.variable])
    )


def compiles(target_device: str, backend: str, environment: Mapping[str, str] | None = None) -> Question:
    """The question that every target can be asked: does torch.compile work, with the numbers of the CPU?"""

    def conclude(observed: Sequence[Observed], _: str) -> str | None:
        found = observed[0].answer
        if found is None:
            return None
        verdict = "as close to float32 as rounding allows" if found["error"] <= 2 * found["rounding"] else "WRONG"
        return (
            f"torch.compile(backend={backend!r}) works on {target_device}: {found['first_s']:.1f} s for the first call, "
            f"{found['second_s'] * 1000:.1f} ms for the second; its numbers are {verdict} "
            f"(off by {found['error']:.2g}, where bfloat16 on the CPU is off by {found['rounding']:.2g})"
        )

    step = Step("compile_small", {"device": target_device, "backend": backend}, environment or {})
    return Question("compile", "Does torch.compile work, and with the right numbers?", (step,), conclude)

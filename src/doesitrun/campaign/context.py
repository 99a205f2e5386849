"""What is asked of the composer, and where it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.plan.outlines import Outline, Problem
from doesitrun.plan.planner import PlanOptions
from doesitrun.pool import HERE, Seat
from doesitrun.records import Device, Dtype, Plan, Refusal, Stack, Task
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace


@dataclass(frozen=True)
class Ask:
    """What the user asks of one model; None leaves it to the planner."""

    model: str
    revision: str | None = None
    task: str | None = None
    device: str | None = None
    cores: int | None = None
    dtype: Dtype = Dtype.BFLOAT16
    new_tokens: int = 32
    prompt: str | None = None
    trust_remote_code: bool = False
    reference: str | None = None
    """Another checkpoint to compare with, instead of the model's own weights."""
    thorough: bool = False
    """True runs the probes, too."""


@dataclass(frozen=True)
class Progress:
    """What is being done now (plan, start, load, compile, run, exit, reference or judge), and for how long."""

    step: str
    elapsed_s: float
    expected_s: float | None = None
    """What the step took the last time; None where it was never done."""


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Context:
    """Where models are run: one stack, one workspace, and who hears of it."""

    stack: Stack
    settings: Settings
    workspace: Workspace
    watch: Watch
    warn: Callable[[str], None]
    """Is told, in a sentence, what the user should know but need not act on at once."""
    graphs: str | None = None
    """URL of a store that compiled graphs are pulled from before a run; None takes that of the settings."""
    seat: Seat = HERE
    """Under it children are started: here, or on the cores that a campaign gives to the model."""


@dataclass(frozen=True)
class Prepared:
    """A model that was looked at: its plan, or why it has none. The first two are None where it could not be read."""

    checkpoint: Checkpoint | None
    outline: Outline | Problem | None
    device: Device
    task: Task
    options: PlanOptions
    plan: Plan | Refusal

"""The Hub's rankings taken, each ranked model planned, and a selection made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from doesitrun.campaign.context import Ask, Context, Prepared, Progress
from doesitrun.campaign.planning import prepare_opened
from doesitrun.errors import StackError, UsageError
from doesitrun.hub import rankings
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.hub.traffic import Traffic, Waiting
from doesitrun.outcomes import Reason
from doesitrun.plan.outlines import Outline
from doesitrun.plan.planner import fits
from doesitrun.records import Dtype, Forecast, Ranked, Refusal
from doesitrun.select import Hand, Pace, Selected, Wanted, choose
from doesitrun.store import snapshots
from doesitrun.store.published import timed_runs
from doesitrun.targets import DEVICES, TARGETS
from doesitrun.tasks import TASKS

BATCH = 200
"""Models that one process of the stack outlines: its imports take seconds, a model a tenth of one."""
BROKEN = 3
"""So many models in a row that a process of their own cannot outline are the stack's fault."""


@dataclass(frozen=True)
class RankAsk:
    """Which rankings to take, and what to plan them for."""

    tasks: tuple[str, ...]
    orders: tuple[str, ...]
    top: int
    devices: tuple[str, ...] = ()
    """Products to plan for; none leaves planning away."""
    dtype: Dtype = Dtype.BFLOAT16


@dataclass(frozen=True)
class Taken:
    """What was taken: the day, the lines, the forecasts by target, the files, and what left out."""

    day: str
    ranked: tuple[Ranked, ...]
    forecasts: dict[str, tuple[Forecast, ...]] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    requests: int = 0
    waited_s: float = 0.0


def devices_of(targets: Sequence[str], device: str | None) -> tuple[str, ...]:
    """The products to plan for: the one named, or the first of each target (of all of them where none is named)."""
    if device is not None:
        if device not in DEVICES:
            raise UsageError(f"There is no device {device!r}: choose one of {', '.join(DEVICES)} with --device.")
        return (device,)
    for target in targets:
        if target not in TARGETS:
            raise UsageError(f"There is no target {target!r}: choose one of {', '.join(TARGETS)}.")
    return tuple(next(iter(TARGETS[target].DEVICES)) for target in targets or TARGETS)


def rank(
    ask: RankAsk, root: Path, budget: int, context: Context | None, warn: Callable[[str], None], watch: Callable[[Progress], None]
) -> Taken:
    """Takes the rankings, plans every model, and keeps both in the workspace. Raises HubError, StackError, UsageError.

    What was read is kept at once: after an error, the next call goes on from there. Without a context nothing is planned.
    """
    for task in ask.tasks:
        if task not in TASKS:
            raise UsageError(f"There is no task {task!r}: choose one of {', '.join(TASKS)}.")
    day = datetime.now(UTC).date().isoformat()
    traffic = Traffic(budget=budget, watch=lambda waiting: watch(_waiting(waiting)))
    with traffic.governed():
        listed, files = _listings(ask, root, day, warn, watch)
        found = _read(listed, watch) if context is not None else {}
    forecasts: dict[str, list[Forecast]] = {}
    if context is not None:
        tasks = {each.ranked.model_id: each.ranked.task for each in listed}
        for batch in _batches(sorted(found)):
            watch(Progress(f"planning, {batch[-1][0]} of {len(found)}", 0.0))
            for line in _forecasts({name: found[name] for _, name in batch}, tasks, ask, context):
                forecasts.setdefault(line.target, []).append(line)
            for target, planned in forecasts.items():  # kept after every batch
                files[f"plans/{target}"] = snapshots.write_forecasts(root, day, target, planned)
    ranked = tuple(each.ranked for each in listed)
    by_target = {name: tuple(planned) for name, planned in forecasts.items()}
    return Taken(day, ranked, by_target, tuple(files.values()), traffic.asked, traffic.waited_s)


def _waiting(waiting: Waiting) -> Progress:
    return Progress(f"waiting {waiting.seconds:.0f} s: {waiting.why}", 0.0)


def _listings(
    ask: RankAsk, root: Path, day: str, warn: Callable[[str], None], watch: Callable[[Progress], None]
) -> tuple[list[rankings.Listed], dict[str, Path]]:
    """Every place of the rankings asked for; each ranking is in its file before the next one is taken."""
    listed: list[rankings.Listed] = []
    files: dict[str, Path] = {}
    for task in ask.tasks:
        for order in ask.orders:
            watch(Progress(f"listing {task} by {order}", 0.0))
            taken = rankings.take(task, order, ask.top)
            for private in (each for each in taken if each.private):
                warn(f"{private.ranked.model_id} is private, so it is left out: rankings are published.")
            public = [each for each in taken if not each.private]
            if not public:
                warn(f"The Hub lists no model for {task} by {order}.")
                continue
            files["ranking"] = snapshots.write_ranking(root, day, [each.ranked for each in public])
            listed += public
    return listed, files


def _read(listed: Sequence[rankings.Listed], watch: Callable[[Progress], None]) -> dict[str, Checkpoint | Refusal]:
    once = list({each.ranked.model_id: each for each in listed}.values())
    step = max(1, len(once) // 10)

    def seen(count: int) -> None:
        if count % step == 0:
            watch(Progress(f"reading configs, {count} of {len(once)}", 0.0))

    return rankings.read_all(once, seen)


def _batches(names: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """The names in batches, each with its number."""
    for start in range(0, len(names), BATCH):
        yield [(start + place + 1, name) for place, name in enumerate(names[start : start + BATCH])]


# ---------------------------------------------------------------------------------- forecasts
def _forecasts(found: dict[str, Checkpoint | Refusal], tasks: dict[str, str], ask: RankAsk, context: Context) -> list[Forecast]:
    now = datetime.now(UTC).replace(microsecond=0)
    pairs = [(name, device) for name in found for device in ask.devices]
    asks = [Ask(name, task=tasks[name], device=device, dtype=ask.dtype) for name, device in pairs]
    prepared = _prepared(asks, [found[name] for name, _ in pairs], context)
    return [_forecast(each, tasks[name], context, now) for (name, _), each in zip(pairs, prepared, strict=True)]


def _prepared(asks: Sequence[Ask], opened: Sequence[Checkpoint | Refusal], context: Context) -> list[Prepared]:
    """The plans; a model that takes the outlining process down is found by halves, and gets its reason."""
    broken = 0

    def halves(start: int, end: int) -> list[Prepared]:
        nonlocal broken
        try:
            prepared = prepare_opened(asks[start:end], opened[start:end], context)
        except StackError as error:
            names = sorted({ask.model for ask in asks[start:end]})
            if len(names) == 1:
                broken += 1
                if broken == BROKEN:
                    raise
                refused = Refusal(names[0], opened[start].revision, Reason.HARNESS_ERROR, f"The stack could not outline it: {error}")
                return prepare_opened(asks[start:end], [refused] * (end - start), context)
            middle = next(place for place in range((start + end) // 2, end) if asks[place].model != asks[place - 1].model)
            return halves(start, middle) + halves(middle, end)
        broken = 0
        return prepared

    return halves(0, len(asks)) if asks else []


def _forecast(prepared: Prepared, task: str, context: Context, now: datetime) -> Forecast:
    plan, checkpoint, outline = prepared.plan, prepared.checkpoint, prepared.outline
    known = outline if isinstance(outline, Outline) else None
    base = Forecast(
        model_id=plan.model_id,
        revision=plan.revision,
        outcome="excluded",
        reason=None,
        detail=None,
        task=task,
        target=prepared.device.target,
        device=prepared.device.name,
        cores=None,
        tp=None,
        ep=None,
        sizes=None,
        dtype=prepared.options.dtype.value,
        weights_bytes=None,
        max_rank_bytes=None,
        capacity_bytes=None,
        architecture=plan.architecture or None,
        model_type=plan.model_type or None,
        notes=None,
        transformers=context.stack.versions.get("transformers"),
        planned_at=now,
    )
    if isinstance(plan, Refusal):
        detail = plan.detail or plan.reason.meaning
        return dataclasses.replace(base, reason=plan.reason.value, detail=detail, weights_bytes=plan.weights_bytes or None)
    sizes: list[int] = []
    if checkpoint is not None and known is not None:
        sizes = [fit.cores for fit in fits(checkpoint, known, prepared.device, prepared.task, prepared.options) if fit.holds]
    return dataclasses.replace(
        base,
        outcome="plan",
        cores=plan.cores,
        tp=plan.tp,
        ep=plan.ep,
        sizes=sizes,
        weights_bytes=plan.weights_bytes,
        max_rank_bytes=plan.rank_bytes.total,
        capacity_bytes=plan.capacity_bytes or None,
        notes="; ".join(plan.notes) or None,
    )


# ---------------------------------------------------------------------------------- selection
@dataclass(frozen=True)
class SelectAsk:
    """How many models to choose, and from what."""

    target: str | None = None
    date: str | None = None
    top: int = 500
    count: int | None = None
    core_hours: float | None = None
    hand: Hand = field(default_factory=Hand)


def select(ask: SelectAsk, root: Path) -> tuple[list[Selected], Path]:
    """The selection, and the file that keeps it. Raises WorkspaceError where no ranking was taken, and UsageError."""
    day, ranked = snapshots.read_ranking(root, ask.date)
    planned = snapshots.planned_targets(root, day)
    target = ask.target or next((name for name in TARGETS if name in planned), next(iter(TARGETS)))
    if target not in TARGETS:
        raise UsageError(f"There is no target {target!r}: choose one of {', '.join(TARGETS)}.")
    forecasts = snapshots.read_forecasts(root, target, day)
    device = forecasts[0].device if forecasts else next(iter(TARGETS[target].DEVICES))
    wanted = Wanted(target, device, day, ask.top, ask.count, ask.core_hours, ask.hand, Pace.of(timed_runs(root, target)))
    lines = choose(ranked, forecasts, wanted)
    return lines, snapshots.write_selection(root, day, target, lines)

"""Many models through the layers: every model of a list gets its row, on as many cores as there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from doesitrun import rows
from doesitrun.campaign import expectation, trial
from doesitrun.campaign.context import Ask, Context, Watch
from doesitrun.campaign.downloads import Downloads, Fetch
from doesitrun.campaign.events import Listen, Planned, Planning, Summed
from doesitrun.campaign.listing import Listed
from doesitrun.campaign.survey import survey
from doesitrun.campaign.working import RETRIES, Item, work
from doesitrun.errors import WorkspaceError
from doesitrun.outcomes import Outcome, Reason, Result, Stage
from doesitrun.pool import Pool, Seat
from doesitrun.pool.schedule import could_fit
from doesitrun.records import Plan, Refusal, Row, Stack
from doesitrun.store.accounts import Counts, accounting, winner
from doesitrun.store.owner import only_one
from doesitrun.targets import DEVICES, TARGETS

LOCK = "campaign.lock"
OpenPool = Callable[[Stack], Pool]


@dataclass(frozen=True)
class Choice:
    """How a campaign is conducted. `again` runs models that have a settled row, too; `fetches` is false where nodes download."""

    again: bool = False
    retries: int = RETRIES
    disk_limit_bytes: int | None = None
    fetches: bool = True


@dataclass(frozen=True)
class Summary:
    """What a campaign came to: the counts of each stack, by its name and target."""

    counts: Mapping[str, Counts]

    @property
    def is_complete(self) -> bool:
        """True when something was planned, and every model of every stack has its row."""
        return bool(self.counts) and all(counts.is_complete for counts in self.counts.values())

    @property
    def is_decided(self) -> bool:
        """True when it is complete and nothing is left INCONCLUSIVE."""
        return self.is_complete and not any(counts.inconclusive for counts in self.counts.values())


def conduct(listed: Sequence[Listed], contexts: Sequence[Context], open_pool: OpenPool, choice: Choice, listen: Listen) -> Summary:
    """Gives every listed model a row on every stack, and returns their counts; the dataset is exported.

    What was settled earlier is not run again, so a campaign that was stopped, or killed, goes on where it was. Contexts
    share one workspace. Raises WorkspaceError when another campaign is at work there, UsageError, StackError, and
    KeyboardInterrupt after everything was stopped and written down.
    """
    first = contexts[0]
    for context in contexts:
        trial.refuse_emulated(context)
    with only_one(first.workspace.root / LOCK):
        for unknown in first.workspace.settle_interrupted().unknown:
            first.warn(unknown.problem)
        try:
            sheets = [_sheet(listed, context, choice, listen) for context in contexts]
            for group in _by_device(sheets):
                _run(group, open_pool, choice, listen)
        finally:
            trial.export(first)
        return _summary(sheets, listen)


# ---------------------------------------------------------------------------------- what is to be done
@dataclass(frozen=True)
class _Sheet:
    """One stack's models: the ids of all, and the plans that are to be run."""

    context: Context
    planned: tuple[str, ...]
    plans: tuple[Plan, ...]
    past: expectation.Past

    @property
    def name(self) -> str:
        return _name(self.context.stack)


def _name(stack: Stack) -> str:
    return f"{stack.name} ({stack.target})"


@dataclass
class _Draft:
    """A sheet while it is written."""

    settled: frozenset[str]
    planned: dict[str, None] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    refused: int = 0

    def is_new(self, plan_id: str) -> bool:
        """Notes the plan; False when the list names it twice."""
        if plan_id in self.planned:
            return False
        self.planned[plan_id] = None
        return True


def _sheet(listed: Sequence[Listed], context: Context, choice: Choice, listen: Listen) -> _Sheet:
    earlier = context.workspace.rows()
    for broken in earlier.broken:
        context.warn(broken.problem)
    draft = _Draft(frozenset() if choice.again else _settled(earlier.rows, context.stack))
    past = expectation.past(earlier.rows, context.stack.target)
    del earlier  # thousands of rows with their scripts
    for each in listed:
        if each.reason is not None:
            _note_refusal(_refusal(each, each.reason), each.ask, context, draft, each.stage)
    asks = [each.ask for each in listed if each.reason is None]
    for number, (ask, prepared) in enumerate(zip(asks, survey(asks, context), strict=True), start=1):
        if isinstance(prepared.plan, Refusal):
            _note_refusal(prepared.plan, ask, context, draft)
        elif draft.is_new(prepared.plan.plan_id) and prepared.plan.plan_id not in draft.settled:
            draft.plans.append(prepared.plan)
        listen(Planning(_name(context.stack), number, len(asks)))
    settled = sum(plan_id in draft.settled for plan_id in draft.planned)
    listen(Planned(_name(context.stack), len(draft.planned), settled, draft.refused, len(draft.plans)))
    return _Sheet(context, tuple(draft.planned), tuple(draft.plans), past)


def _refusal(listed: Listed, reason: Reason) -> Refusal:
    ask = listed.ask
    return Refusal(ask.model, ask.revision or "", reason, listed.detail, ask.task or "")


def _note_refusal(refusal: Refusal, ask: Ask, context: Context, draft: _Draft, stage: Stage = Stage.PLAN) -> None:
    plan_id = rows.refusal_plan_id(refusal, context.stack, ask.dtype, ask.new_tokens)
    if draft.is_new(plan_id) and plan_id not in draft.settled:
        draft.refused += 1
        trial.refuse(refusal, ask, context, stage)


def _settled(found: Iterable[Row], stack: Stack) -> frozenset[str]:
    """Plans that have a result on this very stack; an INCONCLUSIVE one says nothing."""
    attempts: dict[str, list[Row]] = {}
    for row in _of_stack(found, stack):
        attempts.setdefault(str(row.plan_id), []).append(row)
    best = {plan_id: winner(of_plan) for plan_id, of_plan in attempts.items()}
    return frozenset(plan_id for plan_id, row in best.items() if row is not None and row.result is not Result.INCONCLUSIVE)


def _of_stack(found: Iterable[Row], stack: Stack) -> Iterator[Row]:
    """The rows of the pair that the stack is."""
    pair = (stack.target, stack.compiler, stack.compiler_version, stack.versions.get("transformers"))
    return (row for row in found if (row.target, row.compiler, row.compiler_version, row.library_version) == pair)


# ---------------------------------------------------------------------------------- doing it
def _by_device(sheets: Sequence[_Sheet]) -> list[list[_Sheet]]:
    """Sheets that share a pool, in the order in which they came."""
    groups: dict[tuple[str, str], list[_Sheet]] = {}
    for sheet in sheets:
        groups.setdefault((sheet.context.stack.target, sheet.context.stack.device), []).append(sheet)
    return [group for group in groups.values() if any(sheet.plans for sheet in group)]


def _run(group: Sequence[_Sheet], open_pool: OpenPool, choice: Choice, listen: Listen) -> None:
    with closing(open_pool(group[0].context.stack)) as pool:
        items: list[Item] = []
        fetches: dict[str, Fetch] = {}
        for sheet in group:
            for plan in sheet.plans:
                item = _item(plan, sheet, pool)
                if not could_fit(pool.places(), item.need):
                    trial.give_up(plan, _too_few(item), sheet.context)
                    continue
                items.append(item)
                if choice.fetches and not plan.is_local:
                    fail = partial(_give_up, plan, sheet.context)
                    fetches[item.key] = Fetch(plan.model_id, plan.revision, plan.weights_bytes, plan.trust_remote_code, fail)
        if not items:
            return
        root = group[0].context.workspace.root
        with closing(Downloads(items, fetches, root, choice.disk_limit_bytes)) as supply:
            work(items, pool, listen, supply, choice.retries)


def _item(plan: Plan, sheet: _Sheet, pool: Pool) -> Item:
    most = max((place.cores for place in pool.places()), default=0)
    need = expectation.need(plan, DEVICES[plan.device], most, sheet.past)
    return Item(f"{plan.plan_id} {sheet.name}", plan.model_id, need, partial(_attempt, plan, sheet.context), TARGETS[plan.target].visible)


def _attempt(plan: Plan, context: Context, seat: Seat, watch: Watch) -> Row:
    """The row of one attempt; what went wrong with us, not with the model, is a row, too, and stops no other model."""
    seated = dataclasses.replace(context, seat=seat, watch=watch)
    try:
        return trial.attempt(plan, None, seated)
    except WorkspaceError:
        raise  # a full disk, say: nothing more can be written down
    except Exception as error:  # noqa: BLE001
        return trial.close_pending(plan, Outcome(Stage.VERIFY, Reason.HARNESS_ERROR, f"{type(error).__name__}: {error}"), seated)


def _give_up(plan: Plan, context: Context, outcome: Outcome) -> Row:
    return trial.give_up(plan, outcome, context)


def _too_few(item: Item) -> Outcome:
    return Outcome(Stage.START, Reason.DEVICE_MISSING, f"It needs {item.need.cores} cores side by side, which no machine of the pool has.")


def _summary(sheets: Sequence[_Sheet], listen: Listen) -> Summary:
    found = sheets[0].context.workspace.rows().rows if sheets else ()
    counts = {sheet.name: accounting(_of_stack(found, sheet.context.stack), sheet.planned) for sheet in sheets}
    for name, each in counts.items():
        listen(Summed(name, each))
    return Summary(counts)

"""Every model of a list gets its row, and the counts add up: the composer, with a pretended planner and pretended attempts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from doesitrun.campaign import Ask, Choice, Context, Listed, Prepared, Summary, conduct, many, trial
from doesitrun.campaign.events import Event, Planned, Summed
from doesitrun.errors import UsageError
from doesitrun.outcomes import Outcome, Reason, Result, Stage
from doesitrun.plan.planner import PlanOptions
from doesitrun.pool import LocalPool
from doesitrun.records import Dtype, Plan, RankBytes, Refusal, Row, Stack
from doesitrun.rows import ended_row, pending_row
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace, write_row
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS

STACK = Stack("a", "/python", "cpu", "cpu", 4, 10**11, {"torch": "2.13.0", "transformers": "5.24.0"}, "inductor", "2.13.0")
NEWER = dataclasses.replace(STACK, name="b", versions={"torch": "2.13.0", "transformers": "5.25.0"})
TASK = TASKS["text-generation"]
CHOICE = Choice(fetches=False)
ENDS: dict[str, Outcome] = {
    "passes": Outcome(Stage.RUN),
    "fails": Outcome(Stage.RUN, Reason.CRASH, "It crashed."),
    "unsure": Outcome(Stage.START, Reason.NETWORK, "The network was down."),
}


def plan(model: str, cores: int = 1) -> Plan:
    ranks = RankBytes(sharded=10**6)
    return Plan(
        f"org/{model}", "0" * 40, f"org/{model}", TASK.name, "cpu", "cpu", cores, cores, 1, Dtype.BFLOAT16, 32, 10**6, ranks, 10**9, "Hi"
    )


def survey(asks: Sequence[Ask], context: Context) -> Iterator[Prepared]:
    for ask in asks:
        found: Plan | Refusal = plan(ask.model)
        if ask.model.startswith("refused"):
            found = Refusal(f"org/{ask.model}", "0" * 40, Reason.TOO_LARGE, "It is too large.", TASK.name)
        yield Prepared(None, None, DEVICES["cpu"], TASK, PlanOptions(), found)


@dataclasses.dataclass
class Runs:
    """What was attempted, in order; the moment an attempt should be cut off."""

    models: list[str] = dataclasses.field(default_factory=list)
    interrupt_at: str | None = None

    def attempt(self, found: Plan, _: object, context: Context) -> Row:
        name = found.model_id.removeprefix("org/")
        self.models.append(name)
        row = pending_row(found, context.stack, "run.py", datetime.now(UTC))
        folder = context.workspace.new_attempt(found.plan_id, row)
        if name == self.interrupt_at:
            raise KeyboardInterrupt
        return write_row(folder, ended_row(row, ENDS[name.rstrip("0123456789")], datetime.now(UTC)))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(many, "survey", survey)
    monkeypatch.setattr(trial, "attempt", found.attempt)
    return found


Campaign = Callable[..., tuple[Summary, list[Event]]]


@pytest.fixture
def campaign(tmp_path: Path, runs: Runs) -> Campaign:
    def call(models: Sequence[str | Listed], stacks: Sequence[Stack] = (STACK,), choice: Choice = CHOICE) -> tuple[Summary, list[Event]]:
        events: list[Event] = []
        contexts = [Context(stack, Settings(), Workspace(tmp_path), lambda _: None, pytest.fail) for stack in stacks]
        listed = [each if isinstance(each, Listed) else Listed(Ask(each)) for each in models]
        summary = conduct(listed, contexts, lambda stack: LocalPool(stack.cores, stack.host_memory_bytes), choice, events.append)
        return summary, events

    return call


def results(root: Path) -> Counter[Any]:
    return Counter(row.result for row in Workspace(root).rows().rows)


def test_every_model_has_a_row_and_the_counts_add_up(campaign: Campaign, runs: Runs, tmp_path: Path) -> None:
    """H6: a class of tests used to be left out without a word."""
    left_out = Listed(Ask("org/copy", revision="1" * 40), Reason.DUPLICATE, "It is a copy of org/passes.", Stage.SELECT)
    summary, events = campaign(["passes", "fails", "refused", left_out, "unsure", "passes2"])
    (counts,) = summary.counts.values()
    assert str(counts) == "6 planned = 2 PASS + 1 FAIL + 2 EXCLUDED + 1 INCONCLUSIVE + 0 pending"
    assert (summary.is_complete, summary.is_decided) == (True, False)
    assert Counter(runs.models) == {"passes": 1, "passes2": 1, "fails": 1, "unsure": 3}
    assert results(tmp_path) == {Result.PASS: 2, Result.FAIL: 1, Result.EXCLUDED: 2, Result.INCONCLUSIVE: 3}
    (copy,) = [row for row in Workspace(tmp_path).rows().rows if row.reason is Reason.DUPLICATE]
    assert (copy.stage, copy.model_id, copy.revision, copy.exclusion) == (Stage.SELECT, "org/copy", "1" * 40, left_out.detail)
    assert [event.to_run for event in events if isinstance(event, Planned)] == [4]
    assert isinstance(events[-1], Summed)
    assert list(tmp_path.glob("data/cpu/*/*.parquet"))


def test_a_fault_of_ours_in_one_model_is_its_row_and_stops_no_other(campaign: Campaign, runs: Runs, tmp_path: Path) -> None:
    """H5: a crash used to lose the others' results."""
    summary, _ = campaign(["passes1", "unknown", "passes2"], choice=Choice(retries=0, fetches=False))  # ENDS has no such end
    assert str(next(iter(summary.counts.values()))) == "3 planned = 2 PASS + 0 FAIL + 0 EXCLUDED + 1 INCONCLUSIVE + 0 pending"
    (row,) = [row for row in Workspace(tmp_path).rows().rows if row.result is Result.INCONCLUSIVE]
    assert (row.reason, row.error) == (Reason.HARNESS_ERROR, "KeyError: 'unknown'")


def test_what_is_settled_is_not_run_again_unless_asked(campaign: Campaign, runs: Runs, tmp_path: Path) -> None:
    campaign(["passes", "fails", "refused", "unsure"], choice=Choice(retries=0, fetches=False))
    runs.models.clear()
    summary, events = campaign(["passes", "fails", "refused", "unsure", "passes2"], choice=Choice(retries=0, fetches=False))
    assert sorted(runs.models) == ["passes2", "unsure"]
    assert [(event.settled, event.refused, event.to_run) for event in events if isinstance(event, Planned)] == [(3, 0, 2)]
    assert next(iter(summary.counts.values())).planned == 5
    runs.models.clear()
    campaign(["passes", "fails"], choice=Choice(again=True, fetches=False))
    assert sorted(runs.models) == ["fails", "passes"]


def test_several_stacks_give_several_pairs(campaign: Campaign, runs: Runs, tmp_path: Path) -> None:
    summary, _ = campaign(["passes", "fails"], stacks=(STACK, NEWER))
    assert Counter(runs.models) == {"passes": 2, "fails": 2}
    assert {name: str(counts)[:9] for name, counts in summary.counts.items()} == {"a (cpu)": "2 planned", "b (cpu)": "2 planned"}
    assert sorted(path.name for path in tmp_path.glob("data/cpu/*/*.parquet")) == [
        "transformers-5.24.0.parquet",
        "transformers-5.25.0.parquet",
    ]
    runs.models.clear()
    summary, _ = campaign(["passes"], stacks=(NEWER,))
    assert (runs.models, summary.is_decided) == ([], True)


def test_a_campaign_that_was_cut_off_is_a_part_until_it_is_called_again(campaign: Campaign, runs: Runs, tmp_path: Path) -> None:
    """H11: a part used to be shown as the whole."""
    runs.interrupt_at = "passes1"
    with pytest.raises(KeyboardInterrupt):
        campaign(["passes1", "passes2"])
    done = results(tmp_path)
    assert done[None] == 1
    found = many.accounting(Workspace(tmp_path).rows().rows, [plan("passes1").plan_id, plan("passes2").plan_id])
    assert (found.is_complete, found.pending >= 1) == (False, True)
    runs.interrupt_at = None
    # This very process is the dead owner here, so its pending row is not taken for one of a dead process.
    (tmp_path / "attempts" / plan("passes1").plan_id / "1" / "owner.json").unlink()
    summary, _ = campaign(["passes1", "passes2"])
    assert summary.is_decided
    assert Counter(row.model_id for row in Workspace(tmp_path).rows().rows if row.result is Result.PASS) == {
        "org/passes1": 1,
        "org/passes2": 1,
    }


def test_an_empty_campaign_is_not_complete(campaign: Campaign) -> None:
    """H15: an empty run used to be a point of the trend."""
    summary, _ = campaign([])
    assert (summary.is_complete, summary.is_decided) == (False, False)
    assert not Summary({}).is_complete


def test_a_plan_for_more_cores_than_any_machine_has_is_inconclusive_and_not_tried(
    campaign: Campaign, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = dataclasses.replace(plan("passes", 8), target="neuron", device="trn2")
    prepared = Prepared(None, None, DEVICES["trn2"], TASK, PlanOptions(), wide)
    monkeypatch.setattr(many, "survey", lambda asks, context: iter([prepared]))
    monkeypatch.setattr(trial.script, "render", lambda *_: "run.py")
    stack = dataclasses.replace(STACK, target="neuron", device="trn2")
    summary, _ = campaign(["passes"], stacks=(stack,))
    assert runs.models == []
    (counts,) = summary.counts.values()
    assert (counts.inconclusive, counts.is_complete) == (1, True)


def test_an_emulated_device_gets_no_campaign_into_a_workspace_that_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.tempfile, "gettempdir", lambda: "/elsewhere")
    stack = dataclasses.replace(STACK, versions={**STACK.versions, "torch_neuronx": "2.13+emulated"})
    context = Context(stack, Settings(), Workspace(tmp_path), lambda _: None, pytest.fail)
    with pytest.raises(UsageError, match="emulated"):
        conduct([Listed(Ask("passes"))], [context], lambda _: pytest.fail("opened"), CHOICE, lambda _: None)

"""The selection: one line per model, the same every time, and each with its reason."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.errors import UsageError, WorkspaceError
from doesitrun.outcomes import Fault, Reason, Stage
from doesitrun.records import Forecast, Ranked
from doesitrun.select import Hand, Pace, Selected, Timed, Wanted, choose
from doesitrun.select.hand import Pin, Skip, load_hand, parse_hand
from doesitrun.store.snapshots import read_ranking, read_selection, write_forecasts, write_ranking, write_selection

SHA = "0123456789abcdef0123456789abcdef01234567"
NEURON = Wanted("neuron", "trn2", "2026-11-30")


def ranked(name: str, rank: int, by: str = "trending", **values: Any) -> Ranked:
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Ranked))
    known = {"model_id": name, "task": "text-generation", "by": by, "rank": rank, "parameters": 10**9, "architecture": "A", "sha": SHA}
    return Ranked(**unknown | known | values)


def forecast(name: str, reason: Reason | None = None, **values: Any) -> Forecast:
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Forecast))
    known = {"model_id": name, "outcome": "excluded" if reason else "plan", "reason": reason, "target": "neuron", "device": "trn2"}
    if reason is None:
        known |= {"cores": 1, "weights_bytes": 2 * 10**9}
    return Forecast(**unknown | known | values)


def chosen(lines: list[Selected]) -> list[str]:
    return [line.model_id for line in lines if line.chosen]


def line_of(lines: list[Selected], name: str) -> Selected:
    (found,) = [line for line in lines if line.model_id == name]
    return found


def test_the_more_popular_goes_first_and_both_rankings_count() -> None:
    lines = [ranked("o/both", 5), ranked("o/both", 5, "downloads"), ranked("o/one", 1, architecture="B"), ranked("o/late", 400)]
    found = choose(lines, [], NEURON)
    assert chosen(found) == ["o/both", "o/one", "o/late"]
    assert [line.place for line in found] == [1, 2, 3]
    assert (found[0].trending_rank, found[0].downloads_rank, found[0].ranked_on, found[0].revision) == (5, 5, "2026-11-30", SHA)


def test_a_new_architecture_and_a_new_size_go_before_a_second_one_of_the_same() -> None:
    lines = [ranked("o/first", 1), ranked("o/same", 2), ranked("o/arch", 9, architecture="B"), ranked("o/size", 9, parameters=5 * 10**9)]
    assert chosen(choose(lines, [], NEURON)) == ["o/first", "o/arch", "o/size", "o/same"]


def test_what_costs_fewer_core_hours_goes_first() -> None:
    lines = [ranked("o/dear", 1), ranked("o/cheap", 1, "downloads", architecture="B")]
    plans = [forecast("o/dear", cores=16, weights_bytes=150 * 10**9), forecast("o/cheap", cores=1)]
    found = choose(lines, plans, NEURON)
    assert chosen(found) == ["o/cheap", "o/dear"]
    assert (found[1].cores, found[1].weights_bytes) == (16, 150 * 10**9)
    assert (found[1].est_core_hours or 0) > 16 * 10 / 60


def test_fine_tunes_and_quantisations_of_a_covered_base_name_it() -> None:
    lines = [
        ranked("o/base", 50),
        ranked("o/tuned", 1, base_model="o/base", base_relation="finetune"),
        ranked("o/awq", 2, base_model="o/tuned", base_relation="quantized"),
        ranked("o/seeing", 60, base_model="o/base", base_relation="finetune", architecture="Vision"),
    ]
    found = choose(lines, [], NEURON)
    assert chosen(found) == ["o/tuned", "o/seeing"], "another architecture is no copy"
    assert "stands for 2 more" in found[0].detail
    base, awq = line_of(found, "o/base"), line_of(found, "o/awq")
    assert (base.reason, base.detail) == (Reason.NOT_PRIORITIZED, "o/tuned, which was made from it, is chosen.")
    assert (awq.reason, awq.detail) == (Reason.DUPLICATE, "A quantisation of o/tuned, which is chosen.")
    assert (awq.base_model, awq.stage) == ("o/tuned", Stage.SELECT)


def test_an_unquantised_member_stands_for_its_family_though_a_quantised_one_is_more_popular() -> None:
    lines = [ranked("o/fp8", 1, base_model="o/base", base_relation="quantized"), ranked("o/base", 300)]
    assert chosen(choose(lines, [], NEURON)) == ["o/base"]
    without = choose(lines, [forecast("o/base", Reason.GATED)], NEURON)
    assert chosen(without) == ["o/fp8"], "but where the base cannot be run, the other one is"


def test_a_family_that_goes_round_in_circles_ends() -> None:
    lines = [ranked("o/a", 1, base_model="o/b"), ranked("o/b", 2, base_model="o/a"), ranked("o/self", 3, base_model="o/self")]
    assert {line.model_id for line in choose(lines, [], NEURON)} == {"o/a", "o/b", "o/self"}


def test_what_has_no_plan_is_excluded_with_the_planners_words() -> None:
    lines = [ranked("o/big", 1), ranked("o/ok", 2), ranked("o/shut", 3)]
    plans = [forecast("o/big", Reason.TOO_LARGE, detail="900 GB."), forecast("o/shut", Reason.GATED, detail="o/shut is gated.")]
    found = choose(lines, plans, NEURON)
    big, shut = line_of(found, "o/big"), line_of(found, "o/shut")
    assert (big.chosen, big.reason, big.detail, big.stage, big.place) == (False, Reason.TOO_LARGE, "900 GB.", Stage.PLAN, None)
    assert (shut.reason, shut.detail) == (Reason.GATED, "o/shut is gated.")
    assert chosen(found) == ["o/ok"]


@pytest.mark.parametrize("reason", [Reason.HUB_ERROR, Reason.HARNESS_ERROR, "a_reason_of_tomorrow"])
def test_what_only_the_harness_could_not_plan_is_not_held_against_a_model(reason: Any) -> None:
    assert chosen(choose([ranked("o/m", 1)], [forecast("o/m", reason)], NEURON)) == ["o/m"]


def test_budgets_are_kept_and_said() -> None:
    lines = [ranked(f"o/m{n}", n + 1, architecture=f"A{n}") for n in range(5)]
    plans = [forecast(f"o/m{n}", cores=4 if n == 1 else 1) for n in range(5)]
    two = choose(lines, plans, dataclasses.replace(NEURON, count=2))
    assert len(chosen(two)) == 2
    assert "2 models that tell more" in line_of(two, "o/m4").detail
    hours = Pace().core_hours(2 * 10**9, 1) * 3.5
    three = choose(lines, plans, dataclasses.replace(NEURON, core_hours=hours))
    assert chosen(three) == ["o/m0", "o/m2", "o/m3"]
    assert "do not fit" in line_of(three, "o/m1").detail
    assert line_of(three, "o/m1").reason is Reason.NOT_PRIORITIZED


def test_only_the_tops_are_looked_at() -> None:
    lines = [ranked("o/in", 10), ranked("o/out", 11), ranked("o/out", 11, "downloads")]
    assert [line.model_id for line in choose(lines, [], dataclasses.replace(NEURON, top=10))] == ["o/in"]


def test_decisions_by_hand_win_and_say_so() -> None:
    pins = {"o/pinned": Pin("o/pinned", "Asked for."), "o/unranked": Pin("o/unranked", "New.", task="image-text-to-text", revision="main")}
    hand = Hand(pins, {"o/skipped": Skip("o/skipped", "Its server is gone.", "https://example.org/1")})
    lines = [ranked("o/best", 1), ranked("o/skipped", 2), ranked("o/pinned", 400, base_model="o/best", base_relation="finetune")]
    plans = [forecast("o/pinned", Reason.TOO_LARGE, detail="Much too large.")]
    found = choose(lines, plans, dataclasses.replace(NEURON, hand=hand, count=2))
    assert chosen(found) == ["o/pinned", "o/unranked"]
    assert found[0].detail.startswith("Pinned: Asked for.")
    assert "Much too large" in found[0].detail
    assert (found[1].task, found[1].revision, found[1].pinned) == ("image-text-to-text", "main", True)
    skipped = line_of(found, "o/skipped")
    assert (skipped.detail, skipped.link, skipped.reason) == ("Its server is gone.", "https://example.org/1", Reason.NOT_PRIORITIZED)
    assert not line_of(found, "o/best").chosen


NAMES = st.integers(0, 12).map("o/m{}".format)
RANKED = st.builds(
    ranked,
    NAMES,
    st.integers(1, 40),
    st.sampled_from(["trending", "downloads"]),
    base_model=st.none() | NAMES,
    base_relation=st.sampled_from([None, "quantized", "finetune"]),
    architecture=st.sampled_from([None, "A", "B"]),
    parameters=st.none() | st.integers(1, 10**12),
)


@given(st.lists(RANKED, max_size=20), st.lists(NAMES, max_size=6), st.integers(0, 2**32), st.none() | st.integers(1, 5))
def test_every_model_gets_exactly_one_line_whatever_the_order_of_the_input(
    lines: list[Ranked], refused: list[str], seed: int, count: int | None
) -> None:
    lines = list({(line.model_id, line.by): line for line in lines}.values())
    plans = [forecast(name, Reason.TOO_LARGE) for name in sorted(set(refused))]
    wanted = dataclasses.replace(NEURON, count=count)
    found = choose(lines, plans, wanted)
    assert sorted(line.model_id for line in found) == sorted({line.model_id for line in lines})
    assert [line.place for line in found if line.chosen] == list(range(1, len(chosen(found)) + 1))
    assert count is None or len(chosen(found)) <= count
    for line in found:
        assert line.detail
        assert line.chosen == (line.reason is None)
        assert line.reason is None or line.reason.fault is not Fault.HARNESS
        assert Selected.from_json(line.to_json()) == line
    Random(seed).shuffle(lines)
    assert choose(lines, plans, wanted) == found


def test_past_runs_tell_what_a_run_takes() -> None:
    pace = Pace.of([Timed(2 * 10**9, 1, seconds) for seconds in (100, 300, 200)])
    assert pace.core_hours(10**9, 1) == pytest.approx(200 / 3600)
    assert pace.core_hours(10**9, 2) > pace.core_hours(10**9, 1), "other cores were not timed: the prior"


# ---------------------------------------------------------------------------------- selection.toml
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[pinn]]\nmodel = "a"', "did you mean pin?"),
        ('[[pin]]\nmodle = "a"\nreason = "x"', "did you mean model?"),
        ('[[skip]]\nmodel = "a"\nreason = "x"', "it lacks link"),
        ('[[skip]]\nmodel = "a"\nreason = "x"\nlink = "see there"', "https://"),
        ('[[pin]]\nmodel = "a"\nreason = 3', "reason must be text"),
        ('[pin]\nmodel = "a"', "list of tables"),
        ('[[pin]]\nmodel = "a"\nreason = "x"\n[[pin]]\nmodel = "a"\nreason = "y"', "twice"),
        ('[[pin]]\nmodel = "a"\nreason = "x"\n[[skip]]\nmodel = "a"\nreason = "y"\nlink = "https://e.org"', "both pinned and skipped"),
        ("pin = [", "not valid TOML"),
    ],
)
def test_a_wrong_decision_file_is_refused_with_the_way_out(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "selection.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said.replace("?", r"\?")) as refused:
        load_hand(path)
    assert str(path) in str(refused.value)


def test_the_example_in_the_documentation_is_valid_and_no_file_is_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tomllib

    from doesitrun.select import hand

    example = (hand.__doc__ or "").partition("\n\n")[2]
    assert len(parse_hand(tomllib.loads(example)).pins) == 1
    monkeypatch.chdir(tmp_path)
    assert load_hand() == Hand()
    with pytest.raises(UsageError, match="--decisions"):
        load_hand(tmp_path / "none.toml")


# ---------------------------------------------------------------------------------- files
def test_snapshots_read_back_and_a_later_ranking_of_the_day_replaces_only_its_own(tmp_path: Path) -> None:
    old = [ranked("o/a", 1), ranked("o/b", 2), ranked("o/a", 1, "downloads")]
    write_ranking(tmp_path, "2026-11-29", [ranked("o/old", 1)])
    write_ranking(tmp_path, "2026-11-30", old)
    write_ranking(tmp_path, "2026-11-30", [ranked("o/c", 1)])
    day, lines = read_ranking(tmp_path)
    assert (day, [(line.by, line.model_id) for line in lines]) == ("2026-11-30", [("downloads", "o/a"), ("trending", "o/c")])
    assert lines[0] == old[2]
    assert read_ranking(tmp_path, "2026-11-29")[1][0].model_id == "o/old"
    with pytest.raises(WorkspaceError, match="doesitrun rank"):
        read_ranking(tmp_path, "2026-01-01")
    with pytest.raises(UsageError, match="is no date"):
        read_ranking(tmp_path, "yesterday")


def test_a_selection_reads_back_and_a_broken_one_is_one_sentence(tmp_path: Path) -> None:
    lines = choose([ranked("o/a", 1), ranked("o/\ud800", 2)], [forecast("o/a", Reason.TOO_LARGE)], NEURON)
    path = write_selection(tmp_path, "2026-11-30", "neuron", lines)
    assert [line.model_id for line in read_selection(tmp_path, "neuron")] == ["o/\ufffd", "o/a"]
    path.write_text('{"model_id": "o/a", "chosen": tru')
    with pytest.raises(WorkspaceError, match="is no selection"):
        read_selection(tmp_path, "neuron")
    with pytest.raises(WorkspaceError, match="doesitrun select --target cuda"):
        read_selection(tmp_path, "cuda")


def many(count: int) -> tuple[list[Ranked], list[Forecast]]:
    draw = Random(1)
    lines, plans = [], []
    for number in range(count):
        base = f"o/m{draw.randrange(number)}" if number > 10 and draw.random() < 0.4 else None
        shape = {"architecture": f"A{int(draw.paretovariate(1)) % 80}", "parameters": int(10 ** draw.uniform(7, 12))}
        lines.append(ranked(f"o/m{number}", number // 2 + 1, ("trending", "downloads")[number % 2], base_model=base, **shape))
        reason = None if draw.random() < 0.7 else Reason.TOO_LARGE
        plans.append(forecast(f"o/m{number}", reason))
    return lines, plans


def test_ten_thousand_models_are_selected_in_five_seconds_without_torch(tmp_path: Path) -> None:
    lines, plans = many(10_000)
    write_ranking(tmp_path, "2026-11-30", lines)
    write_forecasts(tmp_path, "2026-11-30", "neuron", plans)
    code = (
        "import sys, time; from pathlib import Path; from doesitrun.campaign.ranking import SelectAsk, select\n"
        "started = time.process_time(); found, _ = select(SelectAsk(count=3000, top=10**6), Path(sys.argv[1]))\n"
        "print(len(found), sum(line.chosen for line in found), time.process_time(), 'torch' in sys.modules)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    found, taken, seconds, torch = done.stdout.split()
    print(f"10,000 models: {seconds} s of processor time, {time.monotonic() - started:.1f} s in all")
    assert (found, taken, torch) == ("10000", "3000", "False")
    assert float(seconds) < 5

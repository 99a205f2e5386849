"""Which lines a query gives, and what they say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from doesitrun.catalog import Catalog, Each, Line, Query, Size, Sort, View, as_json, choices, find, open_data, page
from doesitrun.catalog.columns import lower, names_of, version_key
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Row
from doesitrun.store.table import clean_text
from tests.pure.published import NEW, OLD, forecast, plan, publish, rank, refused, row

PASS, FAIL, EXCLUDED, INCONCLUSIVE = Result.PASS, Result.FAIL, Result.EXCLUDED, Result.INCONCLUSIVE


def catalog(folder: Path, *rows: Row) -> Catalog:
    return open_data(publish(folder, rows)).current()


def lines(data: Catalog, **filters: object) -> tuple[Line, ...]:
    return find(data, Query(**filters)).lines  # type: ignore[arg-type]


def names(data: Catalog, **filters: object) -> list[str]:
    return [line.model_id for line in lines(data, **filters)]


def one(data: Catalog, **filters: object) -> Line:
    (line,) = lines(data, **filters)
    return line


# ---------------------------------------------------------------------------------- which row speaks for a model
def test_a_line_says_what_its_row_says(tmp_path: Path) -> None:
    line = one(catalog(tmp_path, row(wall_s=61, hbm_peak_gb=1.5, weights_bytes=12 * 10**8, cores=2)))
    assert (line.model_id, line.result, line.cores, line.wall_s, line.peak_gb, line.weights_gb) == (
        "Qwen/Qwen3-0.6B",
        "PASS",
        2,
        61,
        1.5,
        1.2,
    )
    assert line.rests_on == ("reference", "executed", "numbers")
    assert str(line.pair) == "neuron/neuronx-cc-2.28.0.0/transformers-5.24.0"
    assert line.tested_at == row().tested_at
    assert (line.why, line.forecast, line.rank) == ("", None, None)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([row(versions=OLD, day=9), row(result=FAIL, day=1)], (FAIL, NEW), id="the newest versions, whenever tested"),
        pytest.param(
            [row(versions=OLD), row(result=INCONCLUSIVE, reason=Reason.NETWORK)], (PASS, OLD), id="an inconclusive run says nothing"
        ),
        pytest.param([row(versions=OLD), row(result=EXCLUDED, reason=Reason.NOT_PRIORITIZED)], (PASS, OLD), id="a choice says little"),
        pytest.param(
            [row(versions=OLD), row(result=EXCLUDED, reason=Reason.TOO_LARGE)], (EXCLUDED, NEW), id="an incompatibility says much"
        ),
        pytest.param([row(result=INCONCLUSIVE, reason=Reason.NETWORK)], (INCONCLUSIVE, NEW), id="better than nothing"),
        pytest.param([row(cores=4), row(cores=1, result=FAIL, day=5)], (PASS, NEW), id="it runs if it runs on some cores"),
        pytest.param(
            [row(cores=4, revision="a" * 40), row(cores=4, revision="b" * 40, result=FAIL, day=5)], (FAIL, NEW), id="of the newest revision"
        ),
        pytest.param(
            [row(versions=("2.9.0", "5.0.0")), row(versions=("2.10.0", "5.0.0"), result=FAIL)], (FAIL, ("2.10.0", "5.0.0")), id="10 > 9"
        ),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_one_row_speaks_for_a_model(tmp_path: Path, rows: list[Row], expected: tuple[Result, tuple[str, str]], order: int) -> None:
    line = one(catalog(tmp_path, *rows[::order]))
    assert (line.result, (line.compiler_version, line.library_version)) == (expected[0], expected[1])


def test_a_pass_is_told_on_the_fewest_cores(tmp_path: Path) -> None:
    assert one(catalog(tmp_path, row(cores=8, day=3), row(cores=2), row(cores=4))).cores == 2


def test_targets_and_tasks_have_their_own_lines(tmp_path: Path) -> None:
    data = catalog(tmp_path, row(), row(target="cpu", result=FAIL, neuronx_cc=None), row(task="image-text-to-text", result=FAIL))
    assert len(lines(data)) == 3
    assert one(data, target="cpu").result == "FAIL"
    assert one(data, target="neuron", task="text-generation").result == "PASS"


def test_a_line_per_pair_when_asked(tmp_path: Path) -> None:
    data = catalog(tmp_path, row(versions=OLD, result=FAIL), row(cores=1), row(cores=2))
    assert [(line.compiler_version, line.result) for line in lines(data, each=Each.PAIR, sort=Sort.COMPILER)] == [
        (OLD[0], "FAIL"),
        (NEW[0], "PASS"),
    ]


def test_version_and_core_filters_choose_before_a_row_speaks(tmp_path: Path) -> None:
    data = catalog(tmp_path, row(versions=OLD, result=FAIL), row(cores=1), row(cores=8, result=FAIL))
    assert one(data).result == "PASS"
    assert one(data, compiler_version=OLD[0]).result == "FAIL"
    assert one(data, library_version=NEW[1]).result == "PASS"
    assert one(data, cores=8).result == "FAIL"
    assert lines(data, cores=16) == ()


# ---------------------------------------------------------------------------------- filters
def test_any_part_of_a_name_finds_it_whatever_its_case(tmp_path: Path) -> None:
    data = catalog(tmp_path, row("Qwen/Qwen3-0.6B"), row("org/my-QWEN-tune"), row("meta/Llama"), row("org/a.*b"))
    assert sorted(names(data, text="qWeN")) == ["Qwen/Qwen3-0.6B", "org/my-QWEN-tune"]
    assert names(data, text=".*") == ["org/a.*b"]
    assert names(data, text="n/Q") == ["Qwen/Qwen3-0.6B"]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), min_size=1, max_size=6),
    st.text(st.characters(), max_size=3),
)
def test_any_text_finds_exactly_the_names_that_have_it(models: list[str], text: str) -> None:
    wanted = clean_text(text)
    found, (codes,) = names_of([pa.array(models, pa.string())])
    shown = found.shown.to_pylist()
    assert [shown[code] for code in codes] == models
    mask = found.matching(text)
    lowered = "".join(map(lower, wanted))
    assert [name for name, hit in zip(shown, mask, strict=True) if hit] == [name for name in shown if lowered in "".join(map(lower, name))]
    assert all(shown[found.number(name)] == name for name in models)


def test_results_reasons_architecture_and_size_filter_lines(tmp_path: Path) -> None:
    plan(
        tmp_path, forecast("big/model", weights_bytes=16 * 10**9), forecast("a/small", architecture="Qwen3ForCausalLM", weights_bytes=10**9)
    )
    data = catalog(tmp_path, row("big/model", FAIL), row("a/small"), row("un/known", EXCLUDED, reason=Reason.GATED))
    assert names(data, result="FAIL") == ["big/model"]
    assert names(data, result="nonsense") == []
    assert names(data, reason="gated") == ["un/known"]
    assert names(data, architecture="Qwen3ForCausalLM") == ["a/small"]
    assert names(data, architecture="Nothing") == []
    assert names(data, size=Size.UP_TO_20) == ["big/model"]
    assert one(data, architecture="LlamaForCausalLM").weights_gb == 16.0


def test_lines_are_counted_over_all_pages(tmp_path: Path) -> None:
    data = catalog(tmp_path, *(row(f"m/{n}", FAIL if n % 3 else PASS, day=n) for n in range(9)))
    found = find(data, Query(offset=2, limit=3))
    assert (found.total, found.counts) == (9, {"PASS": 3, "FAIL": 6})
    assert [line.model_id for line in found.lines] == ["m/6", "m/5", "m/4"]
    assert find(data, Query(offset=50)).lines == ()


def test_an_empty_answer_says_what_to_do(tmp_path: Path) -> None:
    data = catalog(tmp_path / "a", row())
    assert "'zzz'" in find(data, Query(text="zzz")).advice
    assert "result FAIL" in find(data, Query(result="FAIL")).advice
    assert "doesitrun rank" in find(data, Query(view=View.TRENDING)).advice
    (tmp_path / "b").mkdir()
    assert "doesitrun demo" in find(open_data(tmp_path / "b").current(), Query()).advice
    assert find(data, Query()).advice == ""


# ---------------------------------------------------------------------------------- order
OF_MODELS = (Sort.MODEL, Sort.TASK, Sort.ARCHITECTURE, Sort.WEIGHTS, Sort.RANK, Sort.DOWNLOADS, Sort.LIKES)
RESULTS = ("PASS", "FAIL", "EXCLUDED", "INCONCLUSIVE")


@pytest.mark.parametrize("sort", list(Sort))
@pytest.mark.parametrize("view", list(View))
def test_every_column_sorts_both_ways_with_nothing_last(tmp_path: Path, sort: Sort, view: View) -> None:
    rank(tmp_path, "b/b", "a/a", "d/untested", "C/c", by=view.value)
    plan(tmp_path, forecast("C/c"), forecast("d/untested", weights_bytes=10**9))
    rows = [
        row("b/b", wall_s=5, hbm_peak_gb=2.0, cores=2, day=3),
        row("a/a", FAIL, OLD, wall_s=9, day=1, weights_bytes=10**6),
        row("C/c", EXCLUDED, reason=Reason.GATED, cores=None, tested_at=None),
    ]
    data = catalog(tmp_path, *rows)

    def keys(*, descending: bool) -> list[Any]:
        found = lines(data, sort=sort, descending=descending, view=view)
        assert len(found) == (3 if view is View.SELECTED else 4)
        # What a forecast says of versions and cores is not sorted by: these are columns of results.
        return [getattr(line, sort.value) if line.row is not None or sort in OF_MODELS else None for line in found]

    up, down = keys(descending=False), keys(descending=True)
    known = [key for key in up if key not in (None, "", ())]
    assert up[len(known) :] == [key for key in up if key in (None, "", ())]
    assert down[: len(known)] == known[::-1]
    assert known == sorted(known, key=lambda key: RESULTS.index(key) if key in RESULTS else key.lower() if isinstance(key, str) else key)


def test_the_last_tested_come_first_unasked(tmp_path: Path) -> None:
    assert names(catalog(tmp_path, row("m/a", day=1), row("m/b", day=3), row("m/c", tested_at=None), row("m/d", day=2))) == [
        "m/b",
        "m/d",
        "m/a",
        "m/c",
    ]


versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){2}((rc|a|b)[0-9])?(\+[a-z]{2}[0-9])?", fullmatch=True)


@given(versions, versions)
def test_versions_sort_as_packaging_sorts_them(left: str, right: str) -> None:
    if Version(left) < Version(right):
        assert version_key("") < version_key(left) < version_key(right)


# ---------------------------------------------------------------------------------- the Hub's own order
def test_a_ranking_keeps_the_hubs_order_and_says_what_is_known(tmp_path: Path) -> None:
    rank(tmp_path, "t/tested", "t/planned", "t/refused", "t/choice", "t/nothing", "t/excluded")
    plan(tmp_path, forecast("t/planned"), refused("t/refused", Reason.HEADS_NOT_DIVISIBLE, "9 heads."), forecast("t/tested"))
    rows = [row("t/tested"), row("t/choice", EXCLUDED, reason=Reason.NOT_PRIORITIZED), row("t/excluded", EXCLUDED, reason=Reason.TOO_LARGE)]
    data = catalog(tmp_path, *rows, row("other/model"))
    found = {line.model_id: line for line in lines(data, view=View.TRENDING)}
    assert list(found) == ["t/tested", "t/planned", "t/refused", "t/choice", "t/nothing", "t/excluded"]
    assert [line.rank for line in found.values()] == [1, 2, 3, 4, 5, 6]
    assert (found["t/tested"].result, found["t/tested"].forecast, found["t/tested"].downloads) == ("PASS", None, 1000)
    planned = found["t/planned"]
    assert planned.result == ""
    assert planned.forecast is not None
    assert planned.why.startswith("Forecast: 4 cores of trn2, tensor parallel 4, 16.0 GB of weights")
    assert planned.why.endswith("8 cores would do, too. Not tested.")
    assert (found["t/refused"].result, found["t/refused"].fault) == ("", "incompatible")
    assert found["t/refused"].why == "Forecast: no plan on trn2. 9 heads. (Incompatible.)"
    assert found["t/choice"].why == "Nobody has queued it. (Left out by choice.)"
    assert found["t/excluded"].why == "Its weights do not fit the most cores. (Incompatible.)"
    assert (found["t/nothing"].why, found["t/nothing"].forecast) == ("Not tested, and not planned either.", None)
    assert names(data, view=View.TRENDING, result="untested") == ["t/planned", "t/refused", "t/nothing"]
    assert names(data, view=View.TRENDING, reason="heads_not_divisible") == ["t/refused"]
    assert lines(data, view=View.DOWNLOADS) == ()


def test_a_forecast_never_looks_like_a_result(tmp_path: Path) -> None:
    rank(tmp_path, "t/planned")
    plan(tmp_path, forecast("t/planned"))
    value = as_json(one(catalog(tmp_path, row()), view=View.TRENDING))
    assert (value["kind"], value["result"], value["forecast"]["cores"]) == ("forecast", "", 4)


def test_a_ranking_is_joined_by_task(tmp_path: Path) -> None:
    rank(tmp_path, "m/a", "m/b", task="image-text-to-text")
    data = catalog(tmp_path, row("m/a"), row("m/b", task=None))
    assert [(line.model_id, line.result) for line in lines(data, view=View.TRENDING)] == [("m/a", ""), ("m/b", "PASS")]


def test_the_newest_ranking_and_plans_count(tmp_path: Path) -> None:
    rank(tmp_path, "m/old", day="2026-01-01")
    rank(tmp_path, "m/new", day="2026-02-01")
    plan(tmp_path, forecast("m/new", cores=8), day="2026-01-01")
    plan(tmp_path, forecast("m/new", cores=2), day="2026-02-01")
    data = catalog(tmp_path, row())
    assert data.ranking is not None
    assert data.ranking.day == "2026-02-01"
    line = one(data, view=View.TRENDING)
    assert line.forecast is not None
    assert (line.model_id, line.forecast.cores) == ("m/new", 2)


def test_what_the_newest_day_does_not_have_is_of_the_day_before(tmp_path: Path) -> None:
    """One day need not have every order and every model: what it has replaces, and nothing else is lost."""
    rank(tmp_path, "m/old", day="2026-01-01", by="downloads")
    rank(tmp_path, "m/new", day="2026-02-01", by="trending")
    plan(tmp_path, forecast("m/old", cores=8), forecast("m/new", cores=8), day="2026-01-01")
    plan(tmp_path, forecast("m/new", cores=2), day="2026-02-01")
    data = catalog(tmp_path, row())
    assert [(line.model_id, line.forecast and line.forecast.cores) for line in lines(data, view=View.DOWNLOADS)] == [("m/old", 8)]
    assert [(line.model_id, line.forecast and line.forecast.cores) for line in lines(data, view=View.TRENDING)] == [("m/new", 2)]
    assert len(page(data, "m/new").forecasts) == 1


# ---------------------------------------------------------------------------------- selectors and addresses
def test_selectors_offer_what_is_there(tmp_path: Path) -> None:
    rank(tmp_path, "m/x", task="image-text-to-text")
    plan(tmp_path, refused("m/x", Reason.GATED))
    cpu = row("m/b", FAIL, ("2.13.0", "5.24.0"), target="cpu", compiler="inductor", neuronx_cc=None, cores=3)
    data = catalog(tmp_path, row("m/a", versions=OLD), row("m/a"), cpu)
    every = choices(data)
    assert (every.targets, every.cores, every.results) == (("neuron", "cpu"), (1, 3), ("PASS", "FAIL"))
    assert set(every.reasons) == {"device_oom", "gated"}
    assert every.tasks == ("image-text-to-text", "text-generation")
    assert choices(data, "neuron").compiler_versions == (NEW[0], OLD[0])
    assert [str(pair) for pair in choices(data, "neuron").pairs] == [
        "neuron/neuronx-cc-2.28.0.0/transformers-5.24.0",
        "neuron/neuronx-cc-2.27.1.0/transformers-5.23.0",
    ]
    assert choices(data, "cpu").cores == (3,)


texts = st.text(max_size=10).filter(bool)
queries = st.builds(
    Query,
    text=st.text(st.characters(), max_size=10),
    view=st.sampled_from(View),
    each=st.sampled_from(Each),
    descending=st.booleans(),
    **{name: st.none() | texts for name in ("task", "result", "reason", "architecture", "target", "compiler_version", "library_version")},
    size=st.none() | st.sampled_from(Size),
    sort=st.none() | st.sampled_from(Sort),
    cores=st.none() | st.integers(0, 10**6),
    offset=st.integers(0, 2**31 - 1),
    limit=st.integers(0, 2**31 - 1),
)


@given(queries)
def test_a_query_survives_an_address(query: Query) -> None:
    assert Query.from_parameters(query.parameters()) == query


@given(
    st.dictionaries(
        st.sampled_from(["view", "q", "size", "cores", "sort", "desc", "offset", "limit", "each", "other"]), st.text(max_size=30)
    )
)
def test_nonsense_in_an_address_is_passed_over(parameters: dict[str, str]) -> None:
    query = Query.from_parameters(parameters)
    assert query.text == parameters.get("q", "")
    assert 0 <= query.offset < 2**31


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("small")
    rank(folder, "m/a", "m/b", "m/c")
    plan(folder, forecast("m/c"))
    return catalog(folder, row("m/a"), row("m/b", FAIL, OLD))


@given(queries)
def test_no_query_fails(small: Catalog, query: Query) -> None:
    found = find(small, dataclasses.replace(query, offset=query.offset % 5))
    assert len(found.lines) <= found.total == sum(found.counts.values())
    assert bool(found.advice) == (found.total == 0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(Result), st.integers(1, 3), st.integers(0, 9)), max_size=30)
)
def test_what_speaks_is_what_a_plain_loop_finds(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, Result, int, int]]
) -> None:
    """Against a second, slow way to say which row speaks for a model."""
    reasons = {FAIL: Reason.CRASH, EXCLUDED: Reason.NOT_PRIORITIZED, INCONCLUSIVE: Reason.NETWORK}
    rows = [
        row(f"m/{m}", result, (f"2.{v}", "5.0"), day * 100 + n, cores=cores, reason=reasons.get(result))
        for n, (m, v, result, cores, day) in enumerate(made)
    ]
    data = catalog(tmp_path_factory.mktemp("d"), *rows)
    expected = {}
    for name in {each.model_id for each in rows}:
        of_model = [each for each in rows if each.model_id == name]
        tiers = {PASS: 0, FAIL: 0, EXCLUDED: 1, INCONCLUSIVE: 2}
        best = {}
        for version in {each.compiler_version for each in of_model}:
            with_pair = [each for each in of_model if each.compiler_version == version]
            best[version] = min(
                with_pair,
                key=lambda r: (tiers[r.result], r.result is not PASS, r.cores if r.result is PASS else 0, -r.tested_at.timestamp()),
            )
        chosen = min(best.items(), key=lambda item: (tiers[item[1].result], -int(item[0][2:])))[1]
        expected[name] = (chosen.result, chosen.compiler_version, chosen.cores, chosen.tested_at)
    found = {line.model_id: (line.result, line.compiler_version, line.cores, line.tested_at) for line in lines(data)}
    assert found == expected


def test_rows_lie_in_the_order_that_is_promised(tmp_path: Path) -> None:
    data = catalog(tmp_path, *(row(f"m/{n % 5}", PASS if n % 2 else FAIL, (f"2.{n % 3}", "5.0"), n) for n in range(40)))
    key = data.columns.group(len(data.pairs))
    assert (np.diff(key) >= 0).all()

"""Two pairs side by side, figures over many lines, and the feed of changes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.catalog import Catalog, ChangeKind, Event, Line, Query, View, atom, compare, coverage, events, open_data, pair_named
from doesitrun.errors import UsageError
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Row
from tests.pure.published import DAY, NEW, OLD, publish, rank, row

PASS, FAIL, EXCLUDED, INCONCLUSIVE = Result.PASS, Result.FAIL, Result.EXCLUDED, Result.INCONCLUSIVE
ATOM = "{http://www.w3.org/2005/Atom}"


def catalog(folder: Path, *rows: Row) -> Catalog:
    return open_data(publish(folder, rows)).current()


def kinds(data: Catalog) -> dict[str, str]:
    found = compare(data, pair_named(data, OLD[0]), pair_named(data, NEW[0]))
    assert sum(found.counts.values()) == len(found.changes) + found.counts[ChangeKind.SAME]
    return {change.model_id: change.kind.value for change in found.changes}


# ---------------------------------------------------------------------------------- comparing
def test_what_became_of_every_model(tmp_path: Path) -> None:
    before = [
        row("m/fixed", FAIL, OLD),
        row("m/broken", PASS, OLD),
        row("m/slower", PASS, OLD, warm_run_s=1.0),
        row("m/faster", PASS, OLD, warm_run_s=1.0),
        row("m/same", PASS, OLD, warm_run_s=1.0),
        row("m/gone", PASS, OLD),
        row("m/unclear", PASS, OLD),
        row("m/failing", FAIL, OLD),
    ]
    after = [
        row("m/fixed", PASS),
        row("m/broken", FAIL),
        row("m/slower", PASS, warm_run_s=1.2),
        row("m/faster", PASS, warm_run_s=0.5),
        row("m/same", PASS, warm_run_s=1.19),
        row("m/new", PASS),
        row("m/unclear", INCONCLUSIVE, reason=Reason.NETWORK),
        row("m/failing", FAIL),
    ]
    data = catalog(tmp_path, *before, *after)
    assert kinds(data) == {f"m/{kind}": kind for kind in ("fixed", "broken", "slower", "faster", "new", "gone", "unclear")}
    found = compare(data, pair_named(data, OLD[0]), pair_named(data, NEW[0]), slower=1.1)
    assert {change.model_id for change in found.changes if change.kind is ChangeKind.SLOWER} == {"m/slower", "m/same"}
    slower = next(change for change in found.changes if change.model_id == "m/slower")
    assert slower.ratio == pytest.approx(1.2)


def test_seconds_on_other_cores_are_not_compared(tmp_path: Path) -> None:
    assert kinds(catalog(tmp_path, row(versions=OLD, warm_run_s=1.0), row(cores=4, warm_run_s=9.0))) == {}


def test_wall_time_is_compared_where_no_warm_pass_is_known(tmp_path: Path) -> None:
    assert kinds(catalog(tmp_path, row("m/a", versions=OLD, wall_s=10), row("m/a", wall_s=30))) == {"m/a": "slower"}


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(Result), st.booleans(), st.none() | st.floats(min_value=0)), max_size=12)
)
def test_comparing_the_other_way_round_mirrors_every_change(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[str, Result, bool, float | None]]
) -> None:
    rows = [row(f"m/{m}", result, OLD if old else NEW, n, warm_run_s=warm) for n, (m, result, old, warm) in enumerate(made)]
    data = catalog(tmp_path_factory.mktemp("d"), row("m/z", versions=OLD), row("m/z"), *rows)
    old, new = pair_named(data, OLD[0]), pair_named(data, NEW[0])
    there, back = compare(data, old, new).counts, compare(data, new, old).counts
    mirrored = {"fixed": "broken", "broken": "fixed", "slower": "faster", "faster": "slower", "new": "gone", "gone": "new"}
    assert {ChangeKind(mirrored.get(kind, kind)): count for kind, count in there.items()} == back
    assert compare(data, old, old).changes == ()


def test_a_pair_is_named_by_any_part_that_is_its_own(tmp_path: Path) -> None:
    data = catalog(tmp_path, row(versions=OLD), row(), row(versions=("2.28.0.0", "5.25.0")))
    assert pair_named(data, "5.25").library_version == "5.25.0"
    assert str(pair_named(data, "neuron/neuronx-cc-2.28.0.0/transformers-5.24.0")).endswith("5.24.0")
    with pytest.raises(UsageError, match=r"2 pairs have '2\.28'"):
        pair_named(data, "2.28")
    with pytest.raises(UsageError, match=r"no pair '9\.9'.*neuron/neuronx-cc-2\.28"):
        pair_named(data, "9.9")


# ---------------------------------------------------------------------------------- coverage
def test_figures_count_every_line_once(tmp_path: Path) -> None:
    rank(tmp_path, "m/a", "m/untested")
    rows = [
        row("m/a", wall_s=30, hbm_peak_gb=2.0),
        row("m/b", FAIL, wall_s=10, cores=4, weights_bytes=10**9),
        row("m/c", EXCLUDED, reason=Reason.TOO_LARGE, cores=None, tp=None, wall_s=99),
        row("m/d", FAIL, reason=Reason.CRASH),
    ]
    data = catalog(tmp_path, *rows)
    found = coverage(data, Query(limit=1))
    assert (found.all.passed, found.all.failed, found.all.excluded, found.all.total) == (1, 2, 1, 4)
    assert [(tally.name, tally.total) for tally in found.by_cores] == [("", 1), ("1", 2), ("4", 1)]
    assert [(tally.name, tally.total) for tally in found.by_size] == [("0-2 GB", 1), ("", 3)]
    assert found.wall_s == (10.0, 30.0)
    assert found.peak_gb == (2.0,)
    assert {(result, reason, count) for result, reason, _, count in found.reasons} == {
        ("FAIL", "device_oom", 1),
        ("FAIL", "crash", 1),
        ("EXCLUDED", "too_large", 1),
    }
    assert coverage(data, Query(text="m/b")).all.total == 1
    assert coverage(data, Query(view=View.TRENDING)).all.total == 1
    for tallies in (found.by_architecture, found.by_cores, found.by_size, found.by_pair):
        assert sum(tally.total for tally in tallies) == 4


# ---------------------------------------------------------------------------------- the feed
def test_a_change_is_a_result_that_differs_from_the_pair_before(tmp_path: Path) -> None:
    rows = [
        row("m/a", FAIL, OLD, day=0),
        row("m/a", PASS, day=5),
        row("m/b", PASS, OLD, day=1),
        row("m/b", PASS, day=6),
        row("m/c", PASS, OLD, day=2),
        row("m/c", INCONCLUSIVE, day=7, reason=Reason.NETWORK),
    ]
    found = events(catalog(tmp_path, *rows))
    assert [(e.model_id, e.before and e.before.result, e.after.result) for e in found] == [
        ("m/a", "FAIL", "PASS"),
        ("m/c", None, "PASS"),
        ("m/b", None, "PASS"),
        ("m/a", None, "FAIL"),
    ]
    assert len(events(catalog(tmp_path, *rows), limit=2)) == 2
    assert events(catalog(tmp_path, *rows), target="cpu") == ()


def test_the_feed_is_atom_with_one_stable_entry_per_change(tmp_path: Path) -> None:
    data = catalog(tmp_path, row("m/a", FAIL, OLD, day=0), row("m/a", PASS, day=5))
    text = atom(events(data), "Changes", "https://example.org/app")
    feed = ET.fromstring(text)
    entries = feed.findall(f"{ATOM}entry")
    assert [entry.findtext(f"{ATOM}title") for entry in entries] == ["m/a: FAIL became PASS", "m/a: FAIL, its first result on neuron"]
    assert feed.findtext(f"{ATOM}updated") == entries[0].findtext(f"{ATOM}updated")
    assert entries[0].find(f"{ATOM}link").attrib["href"].startswith("https://example.org/app/model?model=m%2Fa&target=neuron")
    identities = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(identities)) == 2
    assert text == atom(events(data), "Changes", "https://example.org/app")
    ET.fromstring(atom((), "None yet", "https://example.org"))


@given(st.text(st.characters()), st.text(st.characters()))
def test_no_text_breaks_the_feed(name: str, why: str) -> None:
    line = Line(name, why=why, target=why, result="FAIL", tested_at=DAY)
    feed = ET.fromstring(atom([Event(DAY, name, why, None, line)], name, "https://example.org"))
    assert len(feed.findall(f"{ATOM}entry")) == 1

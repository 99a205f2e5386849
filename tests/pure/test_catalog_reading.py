"""Opening a place: every shape ever published, hostile content, and files that change or break while they are read."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import doesitrun
from doesitrun.catalog import Query, Source, View, as_json, find, open_data, page
from doesitrun.errors import UsageError, WorkspaceError
from doesitrun.outcomes import Result
from doesitrun.records import COLUMNS, Row
from doesitrun.store.table import fitted, to_parquet
from tests.pure.published import NEW, OLD, forecast, plan, publish, rank, row
from tests.pure.test_table import any_row, reference_files

PASS, FAIL = Result.PASS, Result.FAIL
FILE = "data/neuron/neuronx-cc-2.28.0.0/transformers-5.24.0.parquet"


def results(source: Source) -> dict[str, str]:
    return {line.model_id: line.result for line in find(source.refresh(), Query()).lines}


# ---------------------------------------------------------------------------------- shapes
def test_both_shapes_of_the_reference_are_read_with_ours(tmp_path: Path) -> None:
    reference_files(tmp_path)
    publish(tmp_path, [row("org/ours")])
    data = open_data(tmp_path).current()
    assert (data.row_count, data.notices) == (3, ())
    found = {line.model_id: line for line in find(data, Query()).lines}
    assert (found["org/model"].result, found["org/model"].cores, found["org/model"].task) == ("PASS", 4, "")
    assert page(data, "org/model").run_py == "print()"


def test_what_an_older_file_does_not_say_is_taken_from_what_it_says(tmp_path: Path) -> None:
    table = pa.table({"model_id": ["m/a"], "result": ["PASS"], "tp": [8], "neuronx_cc": ["2.25.1"], "transformers": ["5.1.0"]})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data/old.parquet")
    (line,) = find(open_data(tmp_path).current(), Query()).lines
    assert (line.target, line.compiler, line.compiler_version, line.library_version, line.cores) == (
        "neuron",
        "neuronx-cc",
        "2.25.1",
        "5.1.0",
        8,
    )


def test_rows_that_prove_nothing_are_not_shown(tmp_path: Path) -> None:
    pending = dataclasses.replace(row("m/pending"), result=None)
    publish(tmp_path, [row("m/real"), pending, row("m/emulated", torch_neuronx="2.13+emulated"), dataclasses.replace(row(), model_id=None)])
    data = open_data(tmp_path).current()
    assert list(results(open_data(tmp_path))) == ["m/real"]
    assert data.row_count == 1


@pytest.mark.parametrize("place", [FILE, "", "data", "data/neuron"])
def test_a_file_and_any_folder_above_it_can_be_opened(tmp_path: Path, place: str) -> None:
    rank(publish(tmp_path, [row()]), "m/ranked")
    assert open_data(tmp_path / place).current().row_count == 1


def test_a_ranking_alone_is_no_row(tmp_path: Path) -> None:
    rank(tmp_path, "m/ranked")
    plan(tmp_path, forecast("m/ranked"))
    data = open_data(tmp_path).current()
    assert data.row_count == 0
    assert [line.result for line in find(data, Query(view=View.TRENDING)).lines] == [""]


def test_what_is_nowhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"There is no .*absent.*hf://datasets/ORG/NAME"):
        open_data(tmp_path / "absent")
    with pytest.raises(UsageError, match="hf://datasets/ORG/NAME"):
        open_data("hf://models/a/b")


@settings(max_examples=25)
@given(st.lists(any_row, max_size=4))
def test_any_rows_are_listed_and_shown_as_they_are(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    """NUL, right-to-left, 100 kB, times of other centuries: whatever a column can hold."""
    folder = tmp_path_factory.mktemp("d")
    whole = [fitted(each) for each in rows]
    (folder / "a.parquet").write_bytes(to_parquet(whole))
    data = open_data(folder).current()
    shown = [each for each in whole if each.model_id is not None and each.result is not None and not each.is_emulated]
    assert data.row_count == len(shown)
    for line in find(data, Query()).lines:
        found = page(data, line.model_id, Query(target=line.target, task=line.task))
        texts = {each.run_py for each in shown if each.model_id == line.model_id}
        assert found.values["run_py"] in texts
        as_json(found)
    found_ids = {line.model_id for line in find(data, Query(text="\0")).lines}
    assert found_ids == {each.model_id for each in shown if "\0" in (each.model_id or "")}


# ---------------------------------------------------------------------------------- change
def test_new_data_show_up_and_nothing_else_is_read_again(tmp_path: Path) -> None:
    source = open_data(publish(tmp_path, [row("m/a"), row("m/b", versions=OLD)]))
    first = source.refresh()
    assert source.refresh() is first
    publish(tmp_path, [row("m/a", FAIL), row("m/c")])
    second = source.refresh()
    assert second.version == first.version + 1
    assert results(source) == {"m/a": "FAIL", "m/b": "PASS", "m/c": "PASS"}
    kept = {file.name: file for file in first.files}
    assert [file.name for file in second.files if kept[file.name] is file] == [
        "data/neuron/neuronx-cc-2.27.1.0/transformers-5.23.0.parquet"
    ]
    (tmp_path / FILE).unlink()
    assert results(source) == {"m/b": "PASS"}
    rank(tmp_path, "m/b")
    assert find(source.refresh(), Query(view=View.TRENDING)).total == 1


def test_no_place_is_looked_at_more_often_than_asked(tmp_path: Path) -> None:
    publish(tmp_path, [row("m/a")])
    seldom, often = open_data(tmp_path, every_s=3600), open_data(tmp_path, every_s=0)
    publish(tmp_path, [row("m/a", FAIL)])
    assert seldom.current().version == 1
    assert often.current().version == 2


@pytest.mark.parametrize("damage", ["empty", "half", "no footer", "other bytes", "not UTF-8", "wrong type", "folder"])
def test_a_broken_file_leaves_the_old_data_up_and_says_so(tmp_path: Path, damage: str) -> None:
    source = open_data(publish(tmp_path, [row("m/a", run_py="print(1)\n"), row("m/b", versions=OLD)]))
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage in ("not UTF-8", "wrong type"):
        bad = pa.array([b"\xff"], pa.binary()).view(pa.string()) if damage == "not UTF-8" else pa.array(["four"])
        pq.write_table(pa.table({"model_id": bad if damage == "not UTF-8" else ["m/x"], "result": ["PASS"], "cores": bad}), path)
    else:
        damaged = {"empty": b"", "half": whole[: len(whole) // 2], "no footer": whole[:-8], "other bytes": os.urandom(4000)}
        path.write_bytes(damaged[damage])
    data = source.refresh()
    assert {line.model_id for line in find(data, Query()).lines} == ({"m/b"} if damage == "folder" else {"m/a", "m/b"})
    if damage == "folder":
        return  # a folder is no file: this one is gone
    (notice,) = data.notices
    assert "transformers-5.24.0.parquet" in notice
    assert notice.endswith("Its rows from before are shown.")
    assert page(data, "m/a").run_py == "print(1)\n"
    assert source.refresh().notices == data.notices
    publish(tmp_path, [row("m/a", FAIL)])
    assert source.refresh().notices == ()
    assert results(source)["m/a"] == "FAIL"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = publish(tmp_path_factory.mktemp("d"), [row(f"m/{n}", run_py="print()\n", error="e" * 20) for n in range(20)]) / FILE
    return path, path.read_bytes()


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_no_flipped_byte_stops_the_server(served: tuple[Path, bytes], flips: list[tuple[int, int]], near_the_end: bool) -> None:
    """Either the file is read, or there is a notice; the footer, where most goes wrong, is hit half of the time."""
    path, whole = served
    path.write_bytes(whole)
    source = open_data(path)
    damaged = bytearray(whole)
    for place, value in flips:
        damaged[-1 - place % 6000 if near_the_end else place % len(whole)] = value
    path.unlink()
    path.write_bytes(damaged)
    data = source.refresh()
    assert data.notices or data.row_count <= 20
    for line in find(data, Query()).lines[:2]:
        page(data, line.model_id)


def test_a_file_that_was_never_whole_hides_no_other(tmp_path: Path) -> None:
    publish(tmp_path, [row("m/a"), row("m/b", versions=OLD)])
    (tmp_path / FILE).write_bytes(b"PAR1")
    data = open_data(tmp_path).current()
    assert [line.model_id for line in find(data, Query()).lines] == ["m/b"]
    assert data.notices[0].endswith("What it holds is not shown.")


def test_a_broken_ranking_or_plan_leaves_the_one_before(tmp_path: Path) -> None:
    rank(publish(tmp_path, [row()]), "m/a", day="2026-01-01")
    plan(tmp_path, forecast("m/a"), day="2026-01-01")
    for name in ("rankings/2026-01-02.parquet", "plans/2026-01-02/neuron.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"PAR1 half of a file")
    data = open_data(tmp_path).current()
    (line,) = find(data, Query(view=View.TRENDING)).lines
    assert line.forecast is not None
    assert len(data.notices) == 2


def test_a_place_that_goes_away_leaves_the_old_data_up(tmp_path: Path) -> None:
    source = open_data(publish(tmp_path / "d", [row("m/a")]))
    (tmp_path / "d").rename(tmp_path / "e")
    data = source.refresh()
    assert data.row_count == 1
    assert "The data from before are shown." in data.notices[0]
    (tmp_path / "e").rename(tmp_path / "d")
    assert source.refresh().notices == ()


def test_a_file_overwritten_in_place_costs_the_page_its_text_but_not_the_line(tmp_path: Path) -> None:
    data = open_data(publish(tmp_path, [row("m/a", run_py="print(1)\n")])).current()
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate(100)
    found = page(data, "m/a")
    assert (found.line.result, found.run_py) == ("PASS", "")
    assert "not shown" in found.notices[0]


# ---------------------------------------------------------------------------------- Python
def test_load_gives_every_column_and_lookup_every_line(tmp_path: Path) -> None:
    reference_files(tmp_path)
    publish(tmp_path, [row("org/ours"), row("org/ours", FAIL, target="cpu", neuronx_cc=None)])
    frame = doesitrun.load(tmp_path)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns)[: len(COLUMNS)] == [column.name for column in COLUMNS]
    assert len(frame) == 4
    lines = doesitrun.lookup("OURS", data=tmp_path, target="neuron")
    assert list(lines["model_id"]) == ["org/ours"]
    assert list(lines["kind"]) == ["result"]
    assert len(doesitrun.lookup("nothing", data=tmp_path)) == 0
    assert list(doesitrun.lookup(data=tmp_path, sort="model_id", result="PASS")["result"]) == ["PASS", "PASS"]
    with pytest.raises(UsageError, match="There is no view"):
        doesitrun.lookup(data=tmp_path, view="best")
    with pytest.raises(TypeError):
        doesitrun.lookup(data=tmp_path, colour="red")
    with pytest.raises(AttributeError):
        doesitrun.nothing  # noqa: B018


def test_a_look_up_needs_neither_pandas_nor_torch(tmp_path: Path) -> None:
    rank(publish(tmp_path, [row("m/a"), row("m/b", FAIL, NEW)]), "m/a", "m/c")
    plan(tmp_path, forecast("m/c"))
    code = """
import sys
from doesitrun.catalog import Query, Sort, View, compare, coverage, events, find, open_data, page
data = open_data(sys.argv[1]).current()
for view in View:
    find(data, Query(text="m", view=view, sort=Sort.WALL))
page(data, "m/b"), coverage(data), events(data), compare(data, data.pairs[0], data.pairs[0])
print(sorted({"pandas", "torch", "gradio", "huggingface_hub", "fsspec"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The workspace: attempts as folders, and the dataset as a function of them."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun import files
from doesitrun.errors import WorkspaceError
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import Dtype, PlanId, Row
from doesitrun.store.workspace import Broken, Workspace, parquet_name, read_row, write_row

PLAN = str(PlanId("org/model", "0123456789ab", "text-generation", "cpu", "cpu", 1, 1, 1, Dtype.BFLOAT16, 32))
OTHER = str(PlanId("org/other", "main", "text-generation", "cpu", "cpu", 1, 1, 1, Dtype.BFLOAT16, 32))
STACK = Row(
    model_id="org/model", target="cpu", compiler="inductor", compiler_version="2.13.0+cpu", library="transformers", library_version="5.24.0"
)
PAIR = "data/cpu/inductor-2.13.0+cpu/transformers-5.24.0.parquet"


def ended(result: Result, **values: object) -> Row:
    return dataclasses.replace(STACK, result=result, tested_at=datetime(2026, 1, 1, tzinfo=UTC), **values)


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "results")


def attempt(space: Workspace, result: Result | None, plan_id: str = PLAN, **values: object) -> Path:
    folder = space.new_attempt(plan_id, STACK)
    if result is not None:
        write_row(folder, ended(result, **values))
    return folder


def owner(folder: Path, **values: object) -> None:
    path = folder / "owner.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def published(space: Workspace) -> list[tuple[str, int]]:
    frame = pd.read_parquet(space.root / PAIR)
    return list(zip(frame["result"], frame["attempt"], strict=True))


# ------------------------------------------------------------------------------ attempts
def test_attempts_are_numbered_from_one_and_begin_as_pending_rows(space: Workspace) -> None:
    assert [space.new_attempt(PLAN, STACK) for _ in range(3)] == [space.attempts / PLAN / str(n) for n in (1, 2, 3)]
    rows = space.rows().rows
    assert [(row.plan_id, row.attempt, row.result, row.model_id) for row in rows] == [(PLAN, n, None, "org/model") for n in (1, 2, 3)]
    assert rows[0].run_id == f"{PLAN}/1"
    assert space.folder(rows[1]) == space.attempts / PLAN / "2"


def test_no_two_callers_are_given_one_folder(space: Workspace) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: space.new_attempt(PLAN), range(40)))
    assert sorted(int(folder.name) for folder in folders) == list(range(1, 41))


def test_rows_come_in_the_order_of_plan_and_number(space: Workspace) -> None:
    for _ in range(11):
        space.new_attempt(OTHER)
    space.new_attempt(PLAN)
    assert [(row.plan_id, row.attempt) for row in space.rows().rows] == [(PLAN, 1), *((OTHER, n) for n in range(1, 12))]


def test_a_row_is_written_as_it_is_returned(space: Workspace) -> None:
    folder = space.new_attempt(PLAN)
    written = write_row(folder, ended(Result.FAIL, reason=Reason.CRASH, error="\ud800\0" + "é" * 100_000))
    assert written.error == "�\0" + "é" * 100_000
    assert read_row(folder) == written
    assert sorted(path.name for path in folder.iterdir()) == ["owner.json", "row.json"]


def test_a_row_of_another_plan_or_with_a_huge_number_is_refused(space: Workspace) -> None:
    folder = space.new_attempt(PLAN)
    for row, sentence in ((Row(plan_id=OTHER), "does not belong"), (Row(attempt=2), "does not belong"), (Row(tp=2**40), "column tp")):
        with pytest.raises(WorkspaceError, match=sentence):
            write_row(folder, row)
    assert [row.result for row in space.rows().rows] == [None]


@pytest.mark.parametrize("plan_id", ["", "..", ".hidden", "a/b", "a\0", "é", "x" * 201, "a\n"])
def test_a_name_that_could_leave_the_workspace_is_refused(space: Workspace, plan_id: str) -> None:
    with pytest.raises(WorkspaceError, match="cannot name a folder"):
        space.new_attempt(plan_id)
    assert not space.root.exists()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"model_id": "x',
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"result": "MAYBE"}',
        b'{"tp": 1e3}',
        b'{"tested_at": 5}',
        b'{"result": []}',
        b"[" * 100_000,
        b'{"tp": ' + b"9" * 5000 + b"}",
        b'{"plan_id": "other", "attempt": 1}',
        b'{"tested_at": "2026-01-01"}',
    ],
)
def test_a_broken_row_is_reported_and_hides_no_other(space: Workspace, damage: bytes) -> None:
    first, second = attempt(space, Result.PASS), attempt(space, Result.PASS)
    (first / "row.json").write_bytes(damage)
    found = space.rows()
    assert [row.attempt for row in found.rows] == [2]
    (broken,) = found.broken
    assert broken.folder == first
    assert str(first / "row.json") in broken.problem
    export = space.export()
    assert export.warnings == (broken.problem,)
    assert published(space) == [("PASS", 2)]
    assert not space.settle_interrupted().rows
    assert second.exists()


def test_a_missing_or_unreadable_row_is_reported(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = attempt(space, Result.PASS)
    (folder / "row.json").unlink()
    assert isinstance(read_row(folder), Broken)
    (folder / "row.json").mkdir()
    assert space.rows().broken[0].folder == folder


def test_what_is_no_attempt_is_passed_over(space: Workspace) -> None:
    attempt(space, Result.PASS)
    for name in ("notes", "01", "0", ".new-abc", "²"):
        (space.attempts / PLAN / name).mkdir()
    (space.attempts / PLAN / "7").write_text("a file")
    (space.attempts / "exported.json").write_text("{}")
    assert len(space.rows().rows) == 1
    assert space.rows().broken == ()
    assert space.new_attempt(PLAN).name == "8"


def test_a_row_of_a_later_version_is_read(space: Workspace) -> None:
    folder = attempt(space, Result.PASS)
    values = json.loads((folder / "row.json").read_text())
    (folder / "row.json").write_text(json.dumps(values | {"column_of_tomorrow": {"a": 1}}))
    assert space.rows().rows[0].result is Result.PASS


# ------------------------------------------------------------------------------ interrupted
def test_a_pending_row_of_a_live_process_stays(space: Workspace) -> None:
    attempt(space, None)
    assert space.settle_interrupted().rows == ()
    assert space.rows().rows[0].result is None


@pytest.mark.parametrize("dead", [{"started_s": 1.0}, {"pid": 2**22 + 5}, {"pid": -1}, {"pid": 10**30}])
def test_a_pending_row_of_a_dead_process_becomes_interrupted(space: Workspace, dead: dict) -> None:
    folder = attempt(space, None)
    owner(folder, **dead)
    (folder / "stage").write_text("compile\n")
    (folder / ".0123456789ab.tmp").write_text("half")
    (row,) = space.settle_interrupted().rows
    assert (row.result, row.reason, row.stage) == (Result.INCONCLUSIVE, Reason.INTERRUPTED, Stage.COMPILE)
    assert row.model_id == "org/model"
    assert "The run was stopped." in row.error
    assert row.tested_at is not None
    assert space.rows().rows == (row,)
    assert not list(folder.glob("*.tmp"))
    assert space.settle_interrupted().rows == ()


def test_an_attempt_without_owner_is_dead_and_without_stage_was_starting(space: Workspace) -> None:
    folder = attempt(space, None)
    (folder / "owner.json").unlink()
    (folder / "stage").write_bytes(b"\xff" * 10_000_000)
    assert space.settle_interrupted().rows[0].stage is Stage.START


def test_a_finished_row_of_a_dead_process_stays(space: Workspace) -> None:
    owner(attempt(space, Result.FAIL), started_s=1.0)
    assert space.settle_interrupted().rows == ()
    assert space.rows().rows[0].result is Result.FAIL


def test_what_runs_on_another_host_is_left_and_named(space: Workspace) -> None:
    owner(attempt(space, None), host="elsewhere")
    broken = attempt(space, None)
    (broken / "owner.json").write_text("{")
    settled = space.settle_interrupted()
    assert settled.rows == ()
    assert ["elsewhere" in unknown.problem for unknown in settled.unknown] == [True, False]
    assert settled.unknown[1].folder == broken


def test_litter_of_killed_processes_goes_and_that_of_live_ones_stays(space: Workspace) -> None:
    alive = attempt(space, None).rename(space.attempts / PLAN / ".new-alive")
    dead = attempt(space, None).rename(space.attempts / PLAN / ".new-dead")
    owner(dead, started_s=1.0)
    fresh, stale = space.attempts / PLAN / ".new-fresh", space.attempts / PLAN / ".new-stale"
    fresh.mkdir()
    stale.mkdir()
    os.utime(stale, (time.time() - 3600,) * 2)
    space.settle_interrupted()
    assert [path.exists() for path in (alive, dead, fresh, stale)] == [True, False, True, False]


def test_a_workspace_that_does_not_exist_is_empty(space: Workspace) -> None:
    assert space.rows().rows == ()
    assert space.settle_interrupted().rows == ()
    assert not space.root.exists()


# ------------------------------------------------------------------------------ export
def test_the_dataset_is_a_function_of_the_attempts(space: Workspace, tmp_path: Path) -> None:
    attempt(space, Result.PASS)
    attempt(space, Result.INCONCLUSIVE)
    attempt(space, None)
    export = space.export()
    assert export.files == (space.root / PAIR,)
    assert (export.card, export.removed, export.warnings) == (space.root / "README.md", (), ())
    assert published(space) == [("PASS", 1)]
    copy = Workspace(tmp_path / "copy")
    shutil.copytree(space.attempts, copy.attempts)
    (copy.attempts / "exported.json").unlink()
    copy.export()
    for name in (PAIR, "README.md"):
        assert (copy.root / name).read_bytes() == (space.root / name).read_bytes()


def test_a_second_export_of_the_same_attempts_writes_nothing(space: Workspace) -> None:
    attempt(space, Result.PASS)
    first = space.export()
    before = {path: path.stat().st_ino for path in space.root.rglob("*") if path.is_file()}
    assert space.export() == first
    assert {path: path.stat().st_ino for path in space.root.rglob("*") if path.is_file()} == before


def test_a_new_row_replaces_the_file_and_the_card(space: Workspace) -> None:
    attempt(space, Result.PASS)
    space.export()
    attempt(space, Result.FAIL)
    attempt(space, Result.EXCLUDED, OTHER)
    assert space.export().warnings == ()
    assert published(space) == [("FAIL", 2), ("EXCLUDED", 1)]
    assert "| 0 | 1 | 1 | 0 | 2 |" in (space.root / "README.md").read_text()


def test_files_that_no_attempt_backs_go_with_their_empty_folders(space: Workspace) -> None:
    attempt(space, Result.PASS)
    space.export()
    shutil.rmtree(space.attempts / PLAN)
    attempt(space, Result.PASS, OTHER, compiler_version="3")
    export = space.export()
    assert export.removed == (space.root / PAIR,)
    assert [path.name for path in (space.root / "data" / "cpu").iterdir()] == ["inductor-3"]


def test_somebody_elses_file_is_never_overwritten_and_nothing_else_changes(space: Workspace) -> None:
    attempt(space, Result.PASS)
    foreign = space.root / PAIR
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    attempt(space, Result.PASS, OTHER, compiler_version="1")
    with pytest.raises(WorkspaceError, match=re.escape(str(foreign)) + ".*move it away"):
        space.export()
    assert foreign.read_bytes() == b"mine"
    assert list(space.root.rglob("*.parquet")) == [foreign]
    assert not (space.root / "README.md").exists()


def test_a_fetched_dataset_is_neither_overwritten_nor_removed(space: Workspace, tmp_path: Path) -> None:
    there = Workspace(tmp_path / "there")
    attempt(there, Result.FAIL)
    attempt(there, Result.PASS, OTHER, compiler_version="1")
    there.export()
    shutil.copytree(there.root / "data", space.root / "data")
    kept = {path: path.read_bytes() for path in space.root.rglob("*.parquet")}
    assert space.export().removed == ()
    attempt(space, Result.PASS)
    with pytest.raises(WorkspaceError, match="was not written by this workspace"):
        space.export()
    assert {path: path.read_bytes() for path in space.root.rglob("*.parquet")} == kept


def test_a_file_of_ours_that_was_changed_is_neither_overwritten_nor_removed(space: Workspace) -> None:
    folder = attempt(space, Result.PASS)
    space.export()
    frame = pd.read_parquet(space.root / PAIR)
    frame["my_column"] = 1
    frame.to_parquet(space.root / PAIR)
    attempt(space, Result.FAIL)
    with pytest.raises(WorkspaceError, match="changed since"):
        space.export()
    shutil.rmtree(folder.parent)
    for _ in range(2):
        export = space.export()
        assert export.removed == ()
        assert "so it was kept" in export.warnings[0]
    assert (space.root / PAIR).exists()


def test_a_card_with_edits_is_kept_and_named(space: Workspace) -> None:
    attempt(space, Result.PASS)
    space.export()
    (space.root / "README.md").write_text("my words")
    attempt(space, Result.FAIL)
    for _ in range(2):
        export = space.export()
        assert export.card is None
        assert len(export.warnings) == 1
        assert "README.md was written by somebody else" in export.warnings[0]
    assert (space.root / "README.md").read_text() == "my words"
    (space.root / "README.md").unlink()
    assert space.export().card == space.root / "README.md"


def test_the_ledger_cannot_name_files_outside(space: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_bytes(b"x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    space.attempts.mkdir(parents=True)
    (space.attempts / "exported.json").write_text(json.dumps({"../precious": [digest], str(outside): [digest]}))
    assert space.export().removed == ()
    assert outside.exists()


def test_an_empty_workspace_has_a_card_that_says_so(space: Workspace) -> None:
    export = space.export()
    assert export.files == ()
    assert "Nothing yet" in export.card.read_text()


def test_published_files_have_the_mode_that_the_umask_gives(space: Workspace) -> None:
    attempt(space, Result.PASS)
    space.export()
    old = os.umask(0)
    os.umask(old)
    assert (space.root / PAIR).stat().st_mode & 0o777 == 0o666 & ~old
    assert (space.attempts / PLAN / "1").stat().st_mode & 0o777 == 0o777 & ~old


# ------------------------------------------------------------------------------ names of files
@pytest.mark.parametrize(
    ("row", "name"),
    [
        (STACK, PAIR),
        (Row(target="cpu"), "data/cpu/none/none.parquet"),
        (Row(), "data/none/none/none.parquet"),
        (Row(target="neuron", compiler="neuronx-cc"), "data/neuron/neuronx-cc-unknown/none.parquet"),
        (Row(target="../..", compiler="a/b", compiler_version="1-2"), "data/~2e.~2f../a~2fb-1~2d2/none.parquet"),
        (Row(target="cpu", compiler="_x", compiler_version="é\ud800"), "data/cpu/~5fx-~c3~a9~ed~a0~80/none.parquet"),
    ],
)
def test_a_rows_file_is_named_after_target_and_versions(row: Row, name: str) -> None:
    assert parquet_name(row) == name


@given(*[st.text(st.characters(), min_size=1, max_size=150)] * 5)
def test_any_version_gives_a_safe_path(target: str, compiler: str, compiler_version: str, library: str, library_version: str) -> None:
    row = Row(target=target, compiler=compiler, compiler_version=compiler_version, library=library, library_version=library_version)
    assert re.fullmatch(r"data(/[A-Za-z0-9~][A-Za-z0-9._+~-]{0,209}){3}", parquet_name(row))


@given(st.tuples(*[st.text("a-.~/_", min_size=1, max_size=4)] * 2), st.tuples(*[st.text("a-.~/_", min_size=1, max_size=4)] * 2))
def test_unlike_versions_have_unlike_paths(one: tuple[str, str], two: tuple[str, str]) -> None:
    names = {parquet_name(Row(compiler=name, compiler_version=version)) for name, version in (one, two)}
    assert len(names) == len({one, two})


# ------------------------------------------------------------------------------ a disk that refuses
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "disk is full: free some space"),
        (errno.EACCES, "permission is denied"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "mend that"),
    ],
)
def test_a_disk_that_refuses_is_one_sentence_and_leaves_no_litter(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, code: int, sentence: str
) -> None:
    folder = attempt(space, Result.PASS)

    def refuse(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", refuse)
    before = sorted(space.root.rglob("*"))
    for act in (lambda: write_row(folder, ended(Result.FAIL)), lambda: space.new_attempt(PLAN), space.export):
        with pytest.raises(WorkspaceError, match=sentence) as caught:
            act()
        assert "\n" not in str(caught.value)
    assert [path for path in sorted(space.root.rglob("*")) if path.name != "export.lock"] == before
    assert read_row(folder).result is Result.PASS


def test_a_file_where_the_workspace_belongs_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(WorkspaceError, match="file"):
            Workspace(root).new_attempt(PLAN)
        with pytest.raises(WorkspaceError, match="file"):
            Workspace(root).export()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WorkspaceError, match="permission is denied"):
        Workspace(tmp_path / "results").new_attempt(PLAN)

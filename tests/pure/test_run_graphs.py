"""A run and its graphs, with a stand-in for the run that writes NEFFs: whatever goes wrong with a cache, the run goes on."""

from __future__ import annotations

import dataclasses
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doesitrun import graphs
from doesitrun.campaign import Context, sharing
from doesitrun.campaign.caching import Cached, cached, graphs_folder, header
from doesitrun.errors import UsageError
from doesitrun.graphs import LocalGraphs
from doesitrun.graphs.folder import scan
from doesitrun.graphs.stores import Upload
from doesitrun.graphs.transfer import entry_name
from doesitrun.outcomes import Result
from doesitrun.records import Plan, Row, Stack
from doesitrun.rows import measured_row
from doesitrun.settings import Settings, parse
from doesitrun.store.workspace import Workspace
from doesitrun.verify.evidence import DeviceRun, MalformedError
from tests.pure.golden_plans import PLANS
from tests.pure.graph_cases import OLDER, PAIR, filled, manifest, neff

PLAN: Plan = PLANS["neuron_1_core"]
VERSIONS = {"torch": "2.14.0", "torch_neuronx": "2.14.3.0.1", "neuronx_cc": "2.28.7631.0", "transformers": "5.24.0"}
STACK = Stack("default", "python", "neuron", "trn2.3xlarge", 4, 2**34, VERSIONS, "neuronx-cc", "2.28.7631.0", machine="trn2")
RESULT = {"prompt_ids": [1, 2, 3]}


@pytest.fixture
def told() -> list[str]:
    """What the user was told."""
    return []


@pytest.fixture
def make(tmp_path: Path, told: list[str]) -> Callable[..., Context]:
    def context(name: str = "w", url: str | None = None, settings: Settings | None = None) -> Context:
        return Context(STACK, settings or Settings(), Workspace(tmp_path / name), lambda _: None, told.append, url)

    return context


def run(context: Context, *numbers: int, between: Callable[[Cached], None] = lambda _: None) -> tuple[Row, Cached]:
    """The row of a run that needs these graphs, compiles those that the folder lacks, and reads all of them."""
    with cached(PLAN, context) as cache:
        between(cache)
        missing = [number for number in numbers if not (cache.folder / neff(number)).exists()]
        filled(cache.folder, missing)
        for number in numbers:
            (cache.folder / neff(number)).read_bytes()
        row = cache.collected(Row(graph_hits=len(numbers) - len(missing), graph_misses=len(missing)), RESULT)
        return row, cache


def test_what_one_workspace_compiled_another_one_does_not(make: Callable[..., Context], told: list[str], tmp_path: Path) -> None:
    """B1: the cache is restored before the start, and hits are counted."""
    url = str(tmp_path / "store")
    row, _ = run(make("a"), 1, 2)
    assert (row.graph_hits, row.graph_misses, row.graphs_uri, told) == (0, 2, None, [])
    sharing.push(url, Workspace(tmp_path / "a"), [], lambda _: None)
    row, cache = run(make("b", url), 1, 2)
    assert (row.graph_hits, row.graph_misses, row.graphs_uri) == (2, 0, f"{url}/{PAIR}/entries")
    assert told == ["All 2 graphs came from the cache."]
    assert cache.record()["new_graphs"] == []


def test_a_manifest_names_what_its_plan_used_and_nothing_of_other_plans(make: Callable[..., Context], tmp_path: Path) -> None:
    context = make()
    run(context, 1, 2)
    filled(graphs_folder(context), [7])
    run(context, 1, 3)
    made = LocalGraphs(tmp_path / "w" / "graphs").manifests(PAIR)[PLAN.plan_id]
    if not made.whole_folder:
        assert {entry.name for entry in made.entries} == {neff(1), neff(3)}
    assert made.shape["prompt_tokens"] == "3"


def test_a_push_says_in_the_row_where_the_graphs_lie(make: Callable[..., Context], tmp_path: Path) -> None:
    context = make()
    run(context, 1)
    compiler = {"target": "neuron", "compiler": "neuronx-cc", "compiler_version": "2.28.7631.0", "torch_neuronx": "2.14.3.0.1"}
    done = Row(plan_id=PLAN.plan_id, result=Result.PASS, graph_hits=0, graph_misses=1, **compiler)
    context.workspace.new_attempt(PLAN.plan_id, dataclasses.replace(done, torch_neuronx="2.14.4"))
    context.workspace.new_attempt(PLAN.plan_id, done)
    sharing.push(str(tmp_path / "store"), context.workspace, [], lambda _: None)
    assert [row.graphs_uri for row in context.workspace.rows().rows] == [None, f"{tmp_path}/store/{PAIR}/entries"]


def test_a_run_that_left_no_result_leaves_no_manifest(make: Callable[..., Context], tmp_path: Path) -> None:
    with cached(PLAN, make()) as cache:
        filled(cache.folder, [1])
    assert LocalGraphs(tmp_path / "w" / "graphs").manifests(PAIR) == {}


def test_versions_flags_and_shapes_that_differ_are_named(
    make: Callable[..., Context], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "store")
    folder = filled(tmp_path / "other", [1])
    graphs.push(graphs.open_store(url), folder, [manifest(folder, [1], PLAN.plan_id, OLDER)])
    row, _ = run(make("a", url), 1)
    assert row.notes == f"Why graphs were compiled: Version: {graphs.difference(PAIR, OLDER)}."
    assert f"Compiled anew: {neff(1)}." in told

    sharing.push(url, Workspace(tmp_path / "a"), [], lambda _: None)
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    row, _ = run(make("b", url), 9)
    assert "NEURON_CC_FLAGS is '-O1' here and not set there" in (row.notes or "")
    assert not (graphs_folder(make("b")) / neff(1)).exists(), "graphs of other flags are not even fetched"


@pytest.mark.parametrize(("ranks", "hits"), [([1, 2], 3), ([0], 0), ([1, None], None)])
def test_hits_are_summed_over_the_ranks_and_unknown_where_a_rank_does_not_say(ranks: list[int | None], hits: int | None) -> None:
    told = [{"peak_bytes": 1, "weights_bytes": 1, "graph_hits": each, "graph_misses": 0} for each in ranks]
    shared = {"compiled": True, "graphs": 1, "load_s": 1.0, "first_s": 2.0, "second_s": 1.0, "text": "", "tokens": []}
    assert measured_row(Row(), {"ranks": told, **shared}).graph_hits == hits


@pytest.mark.parametrize("value", [-1, 2**70, "3", 1.5, True, []])
def test_a_script_that_says_nonsense_of_its_graphs_is_not_believed(value: object) -> None:
    rank = {"rank": 0, "tokens": [1], "peak_bytes": 1, "weights_bytes": 1, "graphs": 1, "graph_hits": value, "graph_misses": 0}
    run = {"prompt_ids": [1], "tokens": [1], "warm_tokens": [1], "eos_ids": [], "top_ids": [[1, 2]], "top_logits": [[1.0, 0.0]]}
    run |= {"text": "", "compiled": True, "graphs": 1, "missing_keys": [], "fallbacks": []}
    assert DeviceRun.read({**run, "ranks": [{**rank, "graph_hits": 0}]}, 1, 1).ranks[0].graph_hits == 0
    with pytest.raises(MalformedError, match="graph_hits"):
        DeviceRun.read({**run, "ranks": [rank]}, 1, 1)


# ---------------------------------------------------------------------------------- what goes wrong
@pytest.mark.parametrize("url", ["FILE", "hf://buckets/nobody/nothing"])
def test_a_store_that_cannot_be_reached_is_said_and_the_run_compiles(
    url: str, make: Callable[..., Context], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url == "FILE":
        url = str(tmp_path / "file")
        Path(url).write_text("")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    row, _ = run(make("w", url), 1)
    assert (row.graph_misses, row.graphs_uri) == (1, None)
    assert "No graphs were fetched, so the run compiles: The store" in told[0]
    assert (row.notes or "").startswith("no graphs were fetched")


def test_a_tampered_entry_is_compiled_anew_and_named(make: Callable[..., Context], told: list[str], tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    run(make("a"), 1, 2)
    sharing.push(url, Workspace(tmp_path / "a"), [], lambda _: None)
    graphs.open_store(url).replace([Upload(entry_name(PAIR, neff(2)), b"tampered".ljust(100))])
    row, _ = run(make("b", url), 1, 2)
    assert (row.graph_hits, row.graph_misses, row.graphs_uri) == (1, 1, None)
    assert any("does not have the hash that its manifest names" in sentence for sentence in told)
    assert b"tampered" not in (graphs_folder(make("b")) / neff(2)).read_bytes()


def test_a_full_disk_leaves_the_run_without_the_stores_graphs(
    make: Callable[..., Context], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "store")
    run(make("a"), 1, 2)
    sharing.push(url, Workspace(tmp_path / "a"), [], lambda _: None)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("doesitrun.graphs.stores._write", full)
        row, _ = run(make("b", url), 1, 2)
    assert row.graph_misses == 2
    assert "No space left on device" in told[0]
    assert not [name for name in scan(tmp_path / "b") if "incoming" in name]


def test_a_full_disk_after_the_run_loses_its_manifest_but_not_its_row(
    make: Callable[..., Context], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "manifest")

    monkeypatch.setattr("doesitrun.graphs.local.write_whole", full)
    row, _ = run(make(), 1)
    assert row.graph_misses == 1
    assert "The run's graphs were not collected: Cannot use manifest: the disk is full" in (row.notes or "")


def test_a_read_only_cache_folder_is_copied_to_a_writable_place_and_that_is_said(
    make: Callable[..., Context], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7."""
    context = make()
    original = filled(graphs_folder(context), [1])
    temporary = tempfile.TemporaryFile

    def read_only(*arguments: Any, dir: Any = None, **options: Any) -> Any:  # noqa: A002 tempfile's own name
        if dir == original:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return temporary(*arguments, dir=dir, **options)

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    row, cache = run(context, 1, 2)
    assert (row.graph_hits, row.graph_misses) == (1, 1), "the copy holds what was there"
    assert cache.folder != original
    assert not cache.folder.exists()
    assert set(scan(original)) == {neff(1)}
    assert "The cache folder cannot be written (Read-only file system), so a copy of its 1 files was used" in told[0]


def test_poisoned_entries_are_removed_before_the_run_and_recorded(make: Callable[..., Context], told: list[str]) -> None:
    """B8."""
    context = make()
    folder = filled(graphs_folder(context), [1])
    (folder / neff(1)).write_bytes(b"")
    (folder / "local" / "locks").mkdir(parents=True)
    (folder / "local" / "locks" / "x.lock").write_bytes(b"")
    row, cache = run(context, 1)
    assert row.graph_misses == 1, "an empty entry is no hit"
    assert row.notes == f"removed from the cache: {neff(1)}, which is empty"
    assert sorted(cache.record()["removed"]) == [[neff(1), "is empty"], ["local/locks/x.lock", "is a lock that nobody holds"]]


def test_a_new_version_starts_with_a_folder_of_its_own(make: Callable[..., Context]) -> None:
    """B5: a library's upgrade makes saved graphs unfindable; here that is by design, and rows do not inherit."""
    context = make()
    run(context, 1)
    newer = dataclasses.replace(STACK, compiler_version="2.29.0", versions={**VERSIONS, "neuronx_cc": "2.29.0"})
    row, _ = run(dataclasses.replace(context, stack=newer), 1)
    assert (row.graph_hits, row.graph_misses) == (0, 1)
    assert len(sharing.status(context.workspace, None)) == 2


def test_the_header_names_the_store_of_the_settings_or_of_the_command_line(make: Callable[..., Context]) -> None:
    settings = parse({"graphs": {"url": "hf://buckets/me/graphs"}})
    assert header(make()) == ()
    assert any(f"hf buckets sync hf://buckets/me/graphs/{PAIR}/entries ./neff_cache" in line for line in header(make(settings=settings)))
    assert any("cp -r /graphs/" in line for line in header(make(url="/graphs", settings=settings)))
    with pytest.raises(UsageError):
        header(make(url="s3://me:secret@b/g"))

"""Stores: what a push uploads, what a pull puts in place, and what cuts, faults, hostile neighbours and second writers do to it."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun import graphs
from doesitrun.campaign import sharing
from doesitrun.errors import GraphStoreError, UsageError
from doesitrun.graphs import LocalGraphs, Pushed, Store
from doesitrun.graphs.folder import clean, entries_of, scan, using
from doesitrun.graphs.stores import FolderStore, Upload
from doesitrun.graphs.transfer import entry_name, manifest_name
from doesitrun.store.workspace import Workspace
from doesitrun.targets import TARGETS
from tests.pure.graph_cases import MODEL, OLDER, OLDEST, OTHER_PLAN, PAIR, PLAN_1, PLAN_2, entry, filled, manifest, neff

NEURON, CPU = TARGETS["neuron"].GRAPHS, TARGETS["cpu"].GRAPHS


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A folder, and an object store by way of fsspec."""
    return graphs.open_store(str(tmp_path / "store") if request.param == "folder" else f"memory://bucket-{tmp_path.name}/graphs")


def pulled(store: Store, folder: Path, **options: Any) -> graphs.Pulled:
    there = graphs.shelf(store, PAIR)
    return graphs.pull(store, there, list(there.manifests.values()), folder, **options)


def pushed(store: Store, folder: Path, numbers: Sequence[int], plan: str = PLAN_1) -> Pushed:
    return graphs.push(store, folder, [manifest(folder, numbers, plan)])


# ---------------------------------------------------------------------------------- push and pull
def test_what_is_pushed_is_pulled_byte_for_byte(store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(20))
    assert pushed(store, here, range(20)).uploaded == 20
    found = pulled(store, tmp_path / "b")
    assert (found.fetched, found.present, found.problems) == (20, 0, ())
    assert {name: (tmp_path / "b" / name).read_bytes() for name in scan(tmp_path / "b")} == {
        name: (here / name).read_bytes() for name in scan(here)
    }


def test_the_entries_of_a_store_are_a_cache_folder_as_they_lie(tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(3))
    pushed(graphs.open_store(str(tmp_path / "store")), here, range(3))
    assert set(scan(tmp_path / "store" / str(PAIR) / "entries")) == set(scan(here))


def test_a_second_push_uploads_only_what_is_new(store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(30))
    pushed(store, here, range(20))
    again = pushed(store, here, range(30), PLAN_2)
    assert (again.uploaded, again.present) == (10, 20)
    assert pushed(store, here, range(30), PLAN_2).uploaded == 0


def test_ten_thousand_entries_are_listed_within_a_second_and_ten_new_ones_are_ten_uploads(tmp_path: Path, monkeypatch: Any) -> None:
    workspace = Workspace(tmp_path / "w")
    local = LocalGraphs(workspace.root / "graphs")
    folder = filled(local.cache(PAIR), range(1000, 11_000), 20)
    first = manifest(folder, range(1000, 11_000))
    local.keep(first)
    url = str(tmp_path / "store")
    graphs.push(graphs.open_store(url), folder, [first])
    started = time.process_time()  # of this process alone: machines are shared
    (line,) = sharing.status(workspace, url)
    assert time.process_time() - started < 1.0
    assert (line.entries_here, line.entries_there, line.to_push, line.to_pull) == (10_000, 10_000, 0, 0)
    filled(folder, range(11_000, 11_010), 20)
    local.keep(manifest(folder, range(11_000, 11_010), PLAN_2))
    asked: list[str] = []
    add = FolderStore.add

    def counted(self: FolderStore, uploads: Sequence[Upload], told: Callable[[], None]) -> Sequence[str]:
        asked.extend(each.name for each in uploads)
        return add(self, uploads, told)

    monkeypatch.setattr(FolderStore, "add", counted)
    (done,) = sharing.push(url, workspace, [], lambda _: None)
    assert done.uploaded == len(asked) == 10


def test_a_pull_keeps_what_is_there(store: Store, tmp_path: Path) -> None:
    pushed(store, filled(tmp_path / "a", range(10)), range(10))
    found = pulled(store, filled(tmp_path / "b", range(7)))
    assert (found.fetched, found.present) == (3, 7)


@pytest.mark.parametrize("damage", [b"", b"NEFF 1 ", b"another content".ljust(100, b".")])
def test_a_damaged_file_here_is_fetched_anew(damage: bytes, store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(3))
    pushed(store, here, range(3))
    there = filled(tmp_path / "b", range(3))
    (there / neff(1)).write_bytes(damage)
    assert pulled(store, there).fetched == 1
    assert (there / neff(1)).read_bytes() == (here / neff(1)).read_bytes()


# ---------------------------------------------------------------------------------- faults of a store
def test_an_entry_with_another_hash_is_left_out_and_named(store: Store, tmp_path: Path) -> None:
    pushed(store, filled(tmp_path / "a", range(3)), range(3))
    store.replace([Upload(entry_name(PAIR, neff(1)), b"evil".ljust(100))])
    found = pulled(store, tmp_path / "b")
    assert (found.fetched, found.manifests) == (2, ())
    assert neff(1) in found.problems[0]
    assert "hash" in found.problems[0]
    assert set(scan(tmp_path / "b")) == {neff(0), neff(2)}


def test_an_entry_that_is_gone_is_named(store: Store, tmp_path: Path) -> None:
    pushed(store, filled(tmp_path / "a", range(3)), range(3))
    store.remove([entry_name(PAIR, neff(2))])
    found = pulled(store, tmp_path / "b")
    assert (found.fetched, found.manifests) == (2, ())
    assert "is gone" in found.problems[0]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 99}', b"\xff\xfe"])
def test_a_broken_manifest_hides_no_other(data: bytes, store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(2))
    pushed(store, here, [0])
    store.replace([Upload(manifest_name(PAIR, PLAN_2), data)])
    there = graphs.shelf(store, PAIR)
    assert set(there.manifests) == {PLAN_1}
    assert PLAN_2 in there.problems[0]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


@given(name=NAMES.filter(lambda name: name not in (".", "..")))
def test_files_of_others_in_a_store_are_passed_over(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("store")
    place = root / str(PAIR) / "manifests" / name.replace("/", "_")
    place.parent.mkdir(parents=True)
    try:
        place.write_bytes(b"not ours")
    except OSError:
        return  # a name that this disk does not take
    assert graphs.shelf(graphs.open_store(str(root)), PAIR).manifests == {}


def test_a_link_in_a_store_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    place = tmp_path / "store" / str(PAIR) / "entries"
    place.mkdir(parents=True)
    (place / "x.neff").symlink_to(secret)
    assert graphs.open_store(str(tmp_path / "store")).files() == {}


def test_a_store_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(GraphStoreError, match="is a file: name a folder"):
        graphs.open_store(str(tmp_path / "store")).files()


# ---------------------------------------------------------------------------------- cuts, full and read-only disks
def failing(monkeypatch: pytest.MonkeyPatch, name: str, after: int, error: OSError) -> None:
    """os.NAME fails after so many calls."""
    real, left, lock = getattr(os, name), [after], threading.Lock()

    def call(*arguments: Any, **options: Any) -> Any:
        with lock:
            left[0] -= 1
        if left[0] < 0:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("after", [0, 1, 7, 19])
def test_a_push_that_is_cut_names_nothing_that_is_not_there_and_the_next_one_goes_on(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, store = filled(tmp_path / "a", range(20)), graphs.open_store(str(tmp_path / "store"))
    with monkeypatch.context() as patch:
        failing(patch, "link", after, OSError(errno.EIO, "Input/output error"))
        with pytest.raises(GraphStoreError):
            pushed(store, here, range(20))
    there = graphs.shelf(store, PAIR)
    assert there.manifests == {}
    assert not list((tmp_path / "store").rglob("*incoming*"))
    done = pushed(store, here, range(20))
    assert done.uploaded == 20 - len(there.entries)
    assert pulled(store, tmp_path / "b").fetched == 20


def test_a_half_written_entry_that_no_manifest_names_is_replaced(store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(3))
    store.replace([Upload(entry_name(PAIR, neff(1)), b"NEFF 1 half")])
    pushed(store, here, range(3))
    assert (pulled(store, tmp_path / "b").fetched, pulled(store, tmp_path / "b").problems) == (3, ())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_store_that_takes_no_more_is_one_sentence(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = filled(tmp_path / "a", range(5))
    failing(monkeypatch, "link", 2, OSError(number, os.strerror(number)))
    with pytest.raises(GraphStoreError, match=r"is full: free some space|is read-only: use another store"):
        pushed(graphs.open_store(str(tmp_path / "store")), here, range(5))


def test_a_disk_that_fills_up_during_a_pull_keeps_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, here = graphs.open_store(str(tmp_path / "store")), filled(tmp_path / "a", range(30))
    pushed(store, here, range(30))
    monkeypatch.setattr("doesitrun.graphs.transfer._STEP_FILES", 10)
    opened, count, lock = Path.open, [0], threading.Lock()

    def open_until_full(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "xb":
            with lock:
                count[0] += 1
            if count[0] > 15:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_until_full)
    with pytest.raises(OSError, match="No space left"):
        pulled(store, tmp_path / "b")
    monkeypatch.undo()
    left = {name: (tmp_path / "b" / name).read_bytes() for name in scan(tmp_path / "b")}
    assert len(left) == 10
    assert all(data == (here / name).read_bytes() for name, data in left.items())
    assert not list((tmp_path / "b").glob(".incoming*"))
    assert pulled(store, tmp_path / "b").fetched == 20


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o500)
    with pytest.raises(GraphStoreError, match="refuses access"):
        pushed(graphs.open_store(str(tmp_path / "store")), filled(tmp_path / "a", [1]), [1])


# ---------------------------------------------------------------------------------- two writers
def test_two_writers_of_one_entry_leave_one_and_both_manifests_fit_it(store: Store, tmp_path: Path) -> None:
    """A compiler need not give the same bytes twice under one name."""
    first, second = filled(tmp_path / "a", range(5)), filled(tmp_path / "b", range(5))
    (second / neff(3)).write_bytes(b"same graph, other bytes")
    pushed(store, first, range(5), PLAN_1)
    done = pushed(store, second, range(5), PLAN_2)
    assert (done.uploaded, done.plans) == (0, (PLAN_2,))
    there = graphs.shelf(store, PAIR)
    assert there.vouched[neff(3)] == {entry(first, neff(3))}
    assert len(pulled(store, tmp_path / "c").manifests) == 2


def test_writers_at_the_same_time_lose_nothing(store: Store, tmp_path: Path) -> None:
    folders = [filled(tmp_path / str(number), range(number * 5, number * 5 + 40)) for number in range(4)]
    for number, folder in enumerate(folders):
        (folder / neff(20)).write_bytes(f"bytes of writer {number}".encode())
    problems: list[BaseException] = []

    def write(number: int) -> None:
        try:
            pushed(store, folders[number], range(number * 5, number * 5 + 40), f"{PLAN_1}{number}")
        except BaseException as error:  # noqa: BLE001 told by the test
            problems.append(error)

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    found = pulled(store, tmp_path / "all")
    assert (len(found.manifests), found.fetched, found.problems) == (4, 55, ())


def test_an_entry_that_changed_since_it_was_collected_is_not_pushed(store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(3))
    made = [manifest(here, [0, 1], PLAN_1), manifest(here, [2], PLAN_2)]
    (here / neff(1)).write_bytes(b"something else")
    done = graphs.push(store, here, made)
    assert done.plans == (PLAN_2,)
    assert "has changed since it was collected" in done.problems[0]


# ---------------------------------------------------------------------------------- prune
def three_pairs(store: Store, folder: Path) -> None:
    filled(folder, range(6))
    for number, pair in enumerate((OLDEST, OLDER, PAIR)):
        graphs.push(store, folder, [manifest(folder, range(number * 2, number * 2 + 2), pair=pair)])
        time.sleep(0.02)


def test_prune_keeps_the_latest_pairs_whole(store: Store, tmp_path: Path) -> None:
    three_pairs(store, tmp_path / "a")
    would = graphs.prune(store, 2, time.time(), dry_run=True)
    assert len(store.files()) == 9
    done = graphs.prune(store, 2, time.time())
    assert done == would
    assert (done.gone, len(done.removed)) == ((OLDEST,), 3)
    assert set(graphs.shelves(store)) == {PAIR, OLDER}
    assert pulled(store, tmp_path / "b").fetched == 2


def test_prune_spares_what_another_plan_names_and_what_is_on_its_way(store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(4))
    graphs.push(store, here, [manifest(here, [0, 1], PLAN_1), manifest(here, [1, 2], PLAN_2)])
    store.replace([Upload(entry_name(PAIR, neff(3)), here / neff(3))])
    store.remove([manifest_name(PAIR, PLAN_1)])
    assert graphs.prune(store, 1, time.time()).removed == ()
    done = graphs.prune(store, 1, time.time() + 25 * 3600)
    assert sorted(done.removed) == sorted(entry_name(PAIR, neff(number)) for number in (0, 3))
    assert set(graphs.shelf(store, PAIR).entries) == {neff(1), neff(2)}


def test_prune_removes_nothing_of_a_pair_whose_manifest_cannot_be_read(store: Store, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(2))
    pushed(store, here, [0, 1])
    store.replace([Upload(manifest_name(PAIR, PLAN_1), b"{")])
    assert graphs.prune(store, 1, time.time() + 10**6).removed == ()


def test_prune_of_a_workspace_removes_cache_folders_of_old_versions(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    local = LocalGraphs(tmp_path / "graphs")
    for number, pair in enumerate((OLDER, PAIR)):
        local.keep(manifest(filled(local.cache(pair), [number]), [number], pair=pair))
        os.utime(local.notes(pair) / f"{PLAN_1}.json", (1000 + number, 1000 + number))
    with using(local.cache(OLDER), local.lock(OLDER), NEURON, {}):
        assert sharing.prune(workspace, None, 1, dry_run=False).gone == (), "a run uses it at the moment"
    done = sharing.prune(workspace, None, 1, dry_run=False)
    assert (done.kept, done.gone, done.removed_bytes) == ((PAIR,), (OLDER,), 100)
    assert not local.cache(OLDER).exists()
    assert local.pairs() == [PAIR]


# ---------------------------------------------------------------------------------- the folder of a run
def elf(size: int) -> bytes:
    """The head of a library whose section table ends at 200 bytes, cut or filled to this size."""
    table = (64).to_bytes(2, "little") + (1).to_bytes(2, "little")
    head = b"\x7fELF\x02".ljust(0x28, b"\0") + (136).to_bytes(8, "little") + bytes(10) + table
    return head.ljust(200, b"\0")[:size]


def test_broken_entries_and_stale_locks_are_removed_before_a_run_and_named(tmp_path: Path) -> None:
    """B8: a failed entry would block later compiles, and a lock of a crashed one would be waited for."""
    filled(tmp_path, [1])
    for name, data in {neff(2): b"", "ab/x.neff.tmp": b"half", "local/locks/abc.lock": b""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    removed = clean(tmp_path, NEURON, {})
    assert {(each.name, each.why) for each in removed} == {
        (neff(2), "is empty"),
        ("ab/x.neff.tmp", "was never finished"),
        ("local/locks/abc.lock", "is a lock that nobody holds"),
    }
    assert set(scan(tmp_path)) == {neff(1)}


def test_a_lock_that_a_process_holds_stays(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "local" / "locks").mkdir(parents=True)
    with (tmp_path / "local" / "locks" / "a.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert clean(tmp_path, NEURON, {}) == ()


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("ab/cabc.main.so", elf(200), ""),
        ("ab/cabc.main.so", elf(150), "is a truncated library"),
        ("ab/cabc.main.so", elf(10), "is a truncated library"),
        ("ab/cabc.main.so", b"text" * 50, "is a truncated library"),
        ("ab/cabc.py", b"", "is empty"),
        ("ab/cabc.py", b"x = 1", ""),
        ("fxgraph/ab/fabc/3eaeohyx3ctvgspp6c4vb2idhhfqomr6vf66y2elo4cxpqcwd4u", b"content", "does not hold what its name promises"),
        ("aotautograd/aabc/5vybjk4xmrmwsgs37z5zf7kmhk6e4uyedbgm4jxz3f5sqmsh3qj", b"", "is empty"),
    ],
)
def test_inductors_entries_are_known_to_be_whole_or_not(name: str, data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    assert CPU.fault(name, path) == why
    assert bool(clean(tmp_path, CPU, {})) is bool(why)


def test_an_inductor_entry_with_the_name_of_its_content_is_whole(tmp_path: Path) -> None:
    name = base64.b32encode(hashlib.sha256(b"content").digest())[:51].decode().lower()
    (tmp_path / "fxgraph" / "ab" / "fabc").mkdir(parents=True)
    (tmp_path / "fxgraph" / "ab" / "fabc" / name).write_bytes(b"content")
    assert clean(tmp_path, CPU, {}) == ()


def test_what_is_vouched_for_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "fxgraph" / "ab" / "fabc" / "no-hash-of-it"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"content")
    assert clean(tmp_path, CPU, {"fxgraph/ab/fabc/no-hash-of-it": 7}) == ()


def test_a_run_uses_what_it_reads_and_what_it_writes(tmp_path: Path) -> None:
    folder = filled(tmp_path / "cache", range(6))
    with using(folder, tmp_path / "lock", NEURON, {}) as use:
        (folder / neff(2)).read_bytes()
        filled(folder, [7])
        assert use.new() == [neff(7)]
        expected = {neff(2), neff(7)} if use.tells else {neff(number) for number in (*range(6), 7)}
        assert set(use.used()) == expected


def test_of_two_runs_at_once_neither_cleans_under_the_other_nor_loses_what_it_used(tmp_path: Path) -> None:
    folder = filled(tmp_path / "cache", range(3))
    with using(folder, tmp_path / "lock", NEURON, {}) as first:
        (folder / neff(0)).read_bytes()
        (folder / "half.tmp").write_bytes(b"")
        with using(folder, tmp_path / "lock", NEURON, {}) as second:
            assert not second.alone
            assert (folder / "half.tmp").exists()
            (folder / neff(1)).read_bytes()
            expected = {neff(0), neff(1)} if second.tells else {neff(number) for number in range(3)}
            assert set(second.used()) == set(first.used()) == expected
        assert first.alone


def test_what_is_on_its_way_in_is_no_entry(tmp_path: Path) -> None:
    filled(tmp_path, [1])
    (tmp_path / ".incoming-1").mkdir()
    (tmp_path / ".incoming-1" / "0").write_bytes(b"")
    assert clean(tmp_path, NEURON, {}) == ()
    assert set(entries_of(tmp_path, NEURON)) == {neff(1)}
    assert (tmp_path / ".incoming-1" / "0").exists()


# ---------------------------------------------------------------------------------- the user's commands
def test_emulated_graphs_are_published_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = graphs.Pair("neuronx-cc-2.28.0+emulated", "torch-neuronx-2.14.0+emulated", "neuron-trn2")
    local = LocalGraphs(tmp_path / "graphs")
    local.keep(manifest(filled(local.cache(pair), [1]), [1], pair=pair))
    for url in ("s3://bucket/graphs", "hf://buckets/me/graphs", "/var/graphs"):
        with pytest.raises(UsageError, match="emulated"):
            sharing.push(url, Workspace(tmp_path), [], lambda _: None)


def test_a_pull_of_other_versions_brings_nothing_and_says_which_there_are(tmp_path: Path) -> None:
    """B4: the check of versions comes before the start, not from the device."""
    folder = filled(tmp_path / "a", [1])
    url = str(tmp_path / "store")
    graphs.push(graphs.open_store(url), folder, [manifest(folder, [1], pair=OLDER)])
    with pytest.raises(UsageError, match=r"2\.28\.7631\.0 here and neuronx-cc-2\.27\.5334\.0 there"):
        sharing.pull(url, Workspace(tmp_path / "w"), PAIR, [MODEL], lambda _: None)
    assert not list((tmp_path / "w").rglob("*.neff"))


def test_commands_on_an_empty_workspace_or_store_say_what_to_do(tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: sharing.push(str(tmp_path / "s"), Workspace(tmp_path / "w"), [], lambda _: None),
        lambda: sharing.pull(str(tmp_path / "s"), Workspace(tmp_path / "w"), PAIR, [], lambda _: None),
        lambda: sharing.copy_line(str(tmp_path / "s"), MODEL, PAIR),
        lambda: sharing.parse_pair("../.."),
    ]
    for call in calls:
        with pytest.raises((UsageError, GraphStoreError)) as caught:
            call()
        assert ": " in str(caught.value)
    assert sharing.status(Workspace(tmp_path / "w"), None) == []


def test_manifests_of_other_models_are_not_read(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = filled(tmp_path / "a", range(2))
    graphs.push(store, here, [manifest(here, [0]), manifest(here, [1], OTHER_PLAN, model="org/other")])
    read = type(store).read
    asked: list[str] = []

    def counted(self: Any, names: Sequence[str]) -> dict[str, bytes]:
        asked.extend(names)
        return read(self, names)

    monkeypatch.setattr(type(store), "read", counted)
    assert set(graphs.shelves(store, ["org/other"])[PAIR].manifests) == {OTHER_PLAN}
    assert asked == [manifest_name(PAIR, OTHER_PLAN)]

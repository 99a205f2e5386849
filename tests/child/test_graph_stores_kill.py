"""A push and a pull that are killed, as a machine that goes down kills them: what is left is whole, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.pure.graph_cases import PAIR, filled, manifest

from doesitrun import graphs
from doesitrun.campaign import sharing
from doesitrun.graphs import LocalGraphs
from doesitrun.graphs.folder import scan
from doesitrun.store.workspace import Workspace

COUNT = range(1000, 3000)


def killed(*arguments: object, watched: Path) -> None:
    """Runs a command and kills it as soon as the folder has an entry."""
    argv = [sys.executable, "-m", "doesitrun", "graphs", *map(str, arguments)]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while child.poll() is None and not any(path.suffix == ".neff" for path in watched.rglob("*")):
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def test_a_push_and_a_pull_that_are_killed_are_resumed(tmp_path: Path) -> None:
    here, there, store = Workspace(tmp_path / "a"), Workspace(tmp_path / "b"), tmp_path / "store"
    local, other = LocalGraphs(here.root / "graphs"), LocalGraphs(there.root / "graphs")
    local.keep(manifest(filled(local.cache(PAIR), COUNT, 20_000), COUNT))
    killed("push", store, "-w", here.root, watched=store)
    cut = graphs.shelf(graphs.open_store(str(store)), PAIR)
    assert 0 < len(cut.entries) < len(COUNT), "it was killed on its way"
    assert cut.manifests == {}
    assert {stored.size for stored in cut.entries.values()} == {20_000}
    (done,) = sharing.push(str(store), here, [], lambda _: None)
    assert (done.uploaded, done.present) == (len(COUNT) - len(cut.entries), len(cut.entries))

    killed("pull", store, "--pair", PAIR, "-w", there.root, watched=other.cache(PAIR))
    brought = scan(other.cache(PAIR))
    assert all((other.cache(PAIR) / name).read_bytes() == (local.cache(PAIR) / name).read_bytes() for name in brought)
    assert other.manifests(PAIR) == {}
    found = sharing.pull(str(store), there, PAIR, [], lambda _: None)
    assert (found.fetched, found.present) == (len(COUNT) - len(brought), len(brought))

    for left in store.rglob(".incoming-*"):
        os.utime(left, (0, 0))
    sharing.prune(here, str(store), 1, dry_run=False)
    assert not list(store.rglob(".incoming-*")), "prune clears what a killed writer left"
    assert len(graphs.shelf(graphs.open_store(str(store)), PAIR).entries) == len(COUNT)

"""Graphs of a workspace and of a store, at the user's word: push, pull, status, prune, the line to copy."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from doesitrun import graphs
from doesitrun.campaign.context import Progress, Watch
from doesitrun.errors import GraphStoreError, UsageError
from doesitrun.files import reaching
from doesitrun.graphs import CopyCommand, LocalGraphs, Manifest, Pair, PairStatus, Pruned, Pulled, Pushed, Store
from doesitrun.store.workspace import Workspace, write_row
from doesitrun.targets import TARGETS


def local_graphs(workspace: Workspace) -> LocalGraphs:
    return LocalGraphs(workspace.root.resolve() / "graphs")


def model_name(model: str) -> str:
    """The model id of rows and manifests: that of a folder is local/NAME."""
    path = Path(model).expanduser()
    return f"local/{path.resolve().name}" if path.is_dir() else model


def parse_pair(text: str) -> Pair:
    """The pair that a user names. Raises UsageError."""
    pair = Pair.parse(text)
    if pair is None or pair.target not in TARGETS:
        message = f"{text!r} is no pair: write COMPILER-VERSION/FRAMEWORK-VERSION/MACHINE, as `doesitrun graphs status` shows them."
        raise UsageError(message)
    return pair


def _counted(watch: Watch, step: str) -> Callable[[], None]:
    """Tells `watch` of each file that was moved."""
    started, last = time.monotonic(), 0.0

    def told() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.2:
            last = now
            watch(Progress(step, now - started))

    return told


# ---------------------------------------------------------------------------------- push, pull
def push(url: str, workspace: Workspace, models: Sequence[str], watch: Watch) -> list[Pushed]:
    """Stores the graphs of this workspace's plans (of all models, or of those named), and says in their rows where they lie.

    Raises GraphStoreError, UsageError, WorkspaceError.
    """
    local, names = local_graphs(workspace), {model_name(model) for model in models}
    found = {pair: [each for each in local.manifests(pair).values() if not names or each.model_id in names] for pair in local.pairs()}
    chosen = {pair: manifests for pair, manifests in found.items() if manifests}
    _refuse_emulated(url, chosen)
    store, done = graphs.open_store(url), []
    for pair, manifests in sorted(chosen.items()):
        watch(Progress("push", 0.0))
        pushed = graphs.push(store, local.cache(pair), manifests, _counted(watch, "push"))
        done.append(pushed)
        _tell_rows(workspace, set(pushed.plans), graphs.entries_uri(store.url, pair), pair)
    if not done:
        raise UsageError(f"{workspace.root} has no graphs{' of these models' if models else ''} to push: test a model first.")
    workspace.export()
    return done


def _refuse_emulated(url: str, pairs: Iterable[Pair]) -> None:
    folder = url.removeprefix("file://")
    is_temporary = "://" not in folder and Path(folder).resolve().is_relative_to(tempfile.gettempdir())
    for pair in pairs:
        if "emulated" in str(pair) and not is_temporary:
            message = f"The graphs of {pair} are an emulated device's: they are never published, and go to a folder below /tmp only."
            raise UsageError(message)


def _tell_rows(workspace: Workspace, plans: set[str], uri: str, pair: Pair) -> None:
    """Notes in the rows of these plans, made with this pair, where their graphs lie now."""
    for row in workspace.rows().rows:
        ran = row.plan_id in plans and row.graph_hits is not None and row.result is not None
        if ran and row.graphs_uri != uri and graphs.is_of_pair(row, pair):
            write_row(workspace.folder(row), replace(row, graphs_uri=uri))


def pull(url: str, workspace: Workspace, pair: Pair, models: Sequence[str], watch: Watch) -> Pulled:
    """Fetches the pair's graphs (of all models, or of those named) into this workspace.

    Raises GraphStoreError, UsageError, WorkspaceError.
    """
    store, local, names = graphs.open_store(url), local_graphs(workspace), {model_name(model) for model in models}
    found = graphs.shelves(store, names)
    watch(Progress("pull", 0.0))
    offered = [each for each in (found[pair].manifests.values() if pair in found else ()) if not names or each.model_id in names]
    if not offered:
        raise UsageError(_nothing(store, pair, names, {other: list(shelf.manifests.values()) for other, shelf in found.items()}))
    fit, refused = graphs.usable(offered, TARGETS[pair.target].GRAPHS.flags_of(os.environ))
    folder = local.cache(pair)
    with reaching(folder):
        pulled = graphs.pull(store, found[pair], fit, folder, _counted(watch, "pull"))
    for manifest in pulled.manifests:
        local.keep(manifest)
    return replace(pulled, problems=(*refused, *found[pair].problems, *pulled.problems))


def _nothing(store: Store, pair: Pair, names: set[str], found: Mapping[Pair, Sequence[Manifest]]) -> str:
    having = [other for other, manifests in found.items() if any(not names or each.model_id in names for each in manifests)]
    other = graphs.nearest(pair, having)
    of = f" of {', '.join(sorted(names))}" if names else ""
    if other is None:
        return f"{store.url} has no graphs{of}: test a model and push them with `doesitrun graphs push`."
    return (
        f"{store.url} has no graphs{of} that can be used here: {graphs.difference(pair, other)}. The nearest pair that has them is {other}."
    )


# ---------------------------------------------------------------------------------- status, prune, command
def status(workspace: Workspace, url: str | None) -> list[PairStatus]:
    """One line per pair that lies here or in the store. Raises GraphStoreError, WorkspaceError."""
    local = local_graphs(workspace)
    there = graphs.shelves(graphs.open_store(url)) if url else None
    lines = []
    for pair in sorted({*local.pairs(), *(there or {})}):
        if pair.target not in TARGETS:
            continue
        sizes, manifests = local.sizes(pair), local.manifests(pair)
        if there is None:
            lines.append(graphs.pair_status(pair, sizes, manifests))
            continue
        shelf = there.get(pair)
        remote = {name: stored.size for name, stored in shelf.entries.items()} if shelf else {}
        lines.append(graphs.pair_status(pair, sizes, manifests, remote, shelf.manifests if shelf else {}))
    return lines


def prune(workspace: Workspace, url: str | None, keep_pairs: int, *, dry_run: bool) -> Pruned:
    """Removes all but the latest pairs, of the store or else of this workspace. Raises GraphStoreError, WorkspaceError."""
    if url is not None:
        return graphs.prune(graphs.open_store(url), keep_pairs, time.time(), dry_run=dry_run)
    kept, gone, freed = graphs.pruned(local_graphs(workspace), keep_pairs, dry_run=dry_run)
    return Pruned(tuple(kept), tuple(gone), (), freed)


def copy_line(url: str, model: str, pair: Pair) -> CopyCommand:
    """The command that copies a model's graphs for this pair. Raises UsageError, with the nearest pair that has them; GraphStoreError."""
    store = graphs.open_store(url)
    found = {other: list(shelf.manifests.values()) for other, shelf in graphs.shelves(store, [model_name(model)]).items()}
    if not found:
        message = f"The store {store.url} has no graphs yet: push some with `doesitrun graphs push {store.url}`."
        raise GraphStoreError(message)
    return graphs.command(store.url, model_name(model), pair, TARGETS[pair.target].GRAPHS.flags_of(os.environ), found)

"""The compiled graphs of one run: fetched before it, collected after it, and what became of them.

A run never fails for want of its graphs: whatever goes wrong with a cache or a store is said, and the run compiles.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from doesitrun import graphs
from doesitrun.campaign.context import Context, Progress
from doesitrun.errors import DoesItRunError
from doesitrun.files import reaching
from doesitrun.graphs import LocalGraphs, Manifest, Pair, Shelf, Store, Use
from doesitrun.records import Plan, Row
from doesitrun.targets import TARGETS

_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/+@=-]+")
_MOST_NAMED = 5
_LIBRARY_NOISE = 300


def local_graphs(context: Context) -> LocalGraphs:
    """The workspace's own graphs."""
    return LocalGraphs(context.workspace.root.resolve() / "graphs")


def graphs_folder(context: Context) -> Path:
    """Where compiled graphs are kept: one folder per compiler and framework version, for their keys may not hold these."""
    return local_graphs(context).cache(graphs.pair_of(context.stack))


def store_url(context: Context) -> str | None:
    """The store that was asked for, or that the settings name."""
    return context.graphs or context.settings.graphs.url


def header(context: Context) -> tuple[str, ...]:
    """Lines of run.py's header on where its graphs can be copied from; none without a store. Raises UsageError for a bad URL."""
    url = store_url(context)
    if url is None or not context.stack.compiler_version:  # planned for an accelerator that is elsewhere
        return ()
    command = graphs.copy_command(graphs.open_store(url).url, graphs.pair_of(context.stack))
    told = "Compiled graphs for these very versions, where they are published; copy them before the first run:"
    return (told, *(f"    {line}" for line in command.lines))


@dataclass
class Cached:
    """A run's graphs, while it runs and afterwards."""

    plan: Plan
    context: Context
    pair: Pair
    folder: Path
    """What the compiler is given; its path needs no quotes."""
    use: Use
    kept: bool
    """False where the folder is a copy that goes with the run."""
    flags: Mapping[str, str]
    store: Store | None = None
    shelves: Mapping[Pair, Shelf] | None = None
    """What the store has; None where it could not be asked."""
    notes: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """What became of the run's graphs, for the attempt's folder."""
        return {
            "pair": str(self.pair),
            "cache": str(self.folder),
            "kept": self.kept,
            "alone": self.use.alone,
            "flags": dict(self.flags),
            "store": None if self.store is None else self.store.url,
            "removed": [[each.name, each.why] for each in self.use.removed],
            "entries_before": len(self.use.before),
            "new_graphs": self.use.new(),
            "notes": self.notes,
        }

    def noted(self, row: Row) -> Row:
        """The row with what was odd about its cache."""
        notes = [note for note in (row.notes, *self.notes) if note]
        return replace(row, notes="; ".join(notes) or None)

    def collected(self, row: Row, result: Mapping[str, Any]) -> Row:
        """The measured row with what its graphs came to, after they were written down as its plan's."""
        shape = graphs.shape_of(self.plan, len(result["prompt_ids"]))
        if self.kept:
            try:
                self._keep(shape)
            except (DoesItRunError, OSError) as error:
                self._tell(f"The run's graphs were not collected: {error}")
        return self.noted(self._proved(row, shape))

    def _keep(self, shape: Mapping[str, str]) -> None:
        local = local_graphs(self.context)
        used = self.use.used()
        entries = graphs.hashed(self.use, used, local.known(self.pair))
        plan, stack = self.plan, self.context.stack
        local.keep(
            Manifest(
                plan_id=plan.plan_id,
                model_id=plan.model_id,
                device=plan.device,
                pair=self.pair,
                versions=dict(stack.versions),
                flags=self.flags,
                shape=shape,
                entries=tuple(entries),
                made_at=datetime.now(UTC).isoformat(timespec="seconds"),
                whole_folder=not self.use.tells,
            )
        )

    def _proved(self, row: Row, shape: Mapping[str, str]) -> Row:
        """The row with the store's address if all its graphs came from there; what came and what did not is said."""
        if self.store is None or row.graph_hits is None or row.graph_misses is None:
            return row
        self.context.warn(graphs.sentence(row.graph_hits, row.graph_misses))
        shelf = (self.shelves or {}).get(self.pair)
        if not row.graph_misses:
            there = shelf is not None and row.graph_hits > 0 and self.plan.plan_id in shelf.manifests
            return replace(row, graphs_uri=graphs.entries_uri(self.store.url, self.pair)) if there else row
        if self.shelves is not None:
            others = {pair: list(each.manifests.values()) for pair, each in self.shelves.items() if pair != self.pair}
            here = list(shelf.manifests.values()) if shelf else []
            self._tell(f"Why graphs were compiled: {graphs.why_missed(self.plan, self.pair, self.flags, shape, here, others)}")
        new = self.use.new()
        if new:
            more = f" and {len(new) - _MOST_NAMED} more" if len(new) > _MOST_NAMED else ""
            self.context.warn(f"Compiled anew: {', '.join(new[:_MOST_NAMED])}{more}.")
        return row

    def _tell(self, sentence: str) -> None:
        self.notes.append(sentence)
        self.context.warn(sentence)


@contextmanager
def cached(plan: Plan, context: Context) -> Iterator[Cached]:
    """The cache folder of a run, cleaned, with what the store has for its plan. Raises WorkspaceError."""
    pair, local = graphs.pair_of(context.stack), local_graphs(context)
    files = TARGETS[plan.target].GRAPHS
    notes: list[str] = []
    with ExitStack() as stack:
        folder, kept = _writable(local.cache(pair), stack, notes)
        store, found = _pulled(plan, context, pair, folder, local if kept else None, notes)
        vouched = {entry.name: entry.size for entry in local.known(pair).values()}
        lock = _lock_file(local, pair, folder, kept=kept)
        with reaching(folder):
            use = stack.enter_context(graphs.using(folder, lock, files, vouched))
        # A lock file that nobody holds is what a compiler leaves behind, also when all went well: graphs.json names those.
        broken = [each for each in use.removed if not files.is_lock(each.name)]
        notes += [f"removed from the cache: {each.name}, which {each.why}" for each in broken[:_MOST_NAMED]]
        for note in notes:
            context.warn(f"{note[:1].upper()}{note[1:].rstrip('.')}.")
        given = stack.enter_context(_plain_path(folder))
        yield Cached(plan, context, pair, given, use, kept, files.flags_of(os.environ), store, found, notes)


def _lock_file(local: LocalGraphs, pair: Pair, folder: Path, *, kept: bool) -> Path:
    if not kept:
        return folder.with_name(f"{folder.name}.lock")
    lock = local.lock(pair)
    with reaching(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
    return lock


# ---------------------------------------------------------------------------------- the folder
def _writable(folder: Path, stack: ExitStack, notes: list[str]) -> tuple[Path, bool]:
    """The folder; or, where it cannot be written, a copy of it that goes with the run, and False."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix=".writable-"):
            return folder, True
    except OSError as error:
        why = error.strerror or str(error)
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="doesitrun-graphs-"))) / "cache"
    copy.mkdir()
    copied = 0
    with suppress(OSError):  # a full disk: what was copied is used, the rest is compiled
        for name in graphs.scan(folder):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, copy / name)
            copied += 1
    told = f"a copy of its {copied} files was used and new graphs were not kept"
    notes.append(f"the cache folder cannot be written ({why}), so {told}")
    return copy, False


@contextmanager
def _plain_path(folder: Path) -> Iterator[Path]:
    """The folder, or a link to it whose path needs no quotes: compilers are called with paths that nobody quoted."""
    if _PLAIN_PATH.fullmatch(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="doesitrun-graphs-") as place:
        link = Path(place) / "graphs"
        link.symlink_to(folder, target_is_directory=True)
        yield link


# ---------------------------------------------------------------------------------- the store
def _pulled(
    plan: Plan, context: Context, pair: Pair, folder: Path, local: LocalGraphs | None, notes: list[str]
) -> tuple[Store | None, Mapping[Pair, Shelf] | None]:
    """The store and what it has, after its graphs of this plan were fetched; whatever goes wrong becomes a note."""
    url = store_url(context)
    if url is None:
        return None, None
    store = graphs.open_store(url)
    found = None
    try:
        context.watch(Progress("graphs", 0.0))
        found = graphs.shelves(store, [plan.model_id])
        wanted, refused = graphs.usable(_wanted(plan, found.get(pair)), TARGETS[plan.target].GRAPHS.flags_of(os.environ))
        notes += refused[:_MOST_NAMED]
        if wanted:
            pulled = graphs.pull(store, found[pair], wanted, folder)
            notes += pulled.problems[:_MOST_NAMED]
            if local is not None:
                for manifest in pulled.manifests:
                    local.keep(manifest)
    except (DoesItRunError, OSError) as error:
        said = str(error) if isinstance(error, DoesItRunError) else f"{folder}: {error.strerror or error}"
        notes.append(f"no graphs were fetched, so the run compiles: {said[:_LIBRARY_NOISE]}")
    return store, found


def _wanted(plan: Plan, shelf: Shelf | None) -> Sequence[Manifest]:
    """The manifest of this very plan; without it, those of the same model, for their graphs may be the same."""
    if shelf is None:
        return ()
    own = shelf.manifests.get(plan.plan_id)
    return [own] if own else [each for each in shelf.manifests.values() if each.model_id == plan.model_id]

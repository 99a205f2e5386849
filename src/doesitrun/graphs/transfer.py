"""Graphs between a cache folder and a store: push, pull.

A store holds, below COMPILER/FRAMEWORK/MACHINE, the folders `entries` (the files of a cache folder under their own
names, so that a plain copy of it is a cache folder) and `manifests` (one per plan). Entries come first and manifests
after them, so what a manifest names is there however a push ends; entries never change, so writers cannot harm each other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from doesitrun.errors import UsageError
from doesitrun.graphs.folder import INCOMING, sha256_of
from doesitrun.graphs.manifest import Entry, Manifest, ManifestError, is_plan_id
from doesitrun.graphs.pairs import Pair
from doesitrun.graphs.stores import Store, Stored, Told, Upload

_STEP_BYTES = 256_000_000
"""Fetched, checked and put in place at a time: so much is lost, at most, when a pull is cut off."""
_STEP_FILES = 512


@dataclass(frozen=True)
class Shelf:
    """What a store has of one pair."""

    pair: Pair
    entries: Mapping[str, Stored]
    manifests: Mapping[str, Manifest]
    """By plan id."""
    problems: tuple[str, ...] = ()
    """Manifests that cannot be used, a sentence each."""

    @property
    def vouched(self) -> dict[str, set[Entry]]:
        """What manifests say of each entry's size and hash."""
        found: dict[str, set[Entry]] = {}
        for manifest in self.manifests.values():
            for entry in manifest.entries:
                found.setdefault(entry.name, set()).add(entry)
        return found


def entry_name(pair: Pair, name: str) -> str:
    return f"{pair}/entries/{name}"


def manifest_name(pair: Pair, plan_id: str) -> str:
    return f"{pair}/manifests/{plan_id}.json"


def shelf(store: Store, pair: Pair) -> Shelf:
    """What the store has of the pair. Raises GraphStoreError."""
    return arranged(store, store.files(str(pair))).get(pair) or Shelf(pair, {}, {})


def shelves(store: Store, models: Iterable[str] = ()) -> dict[Pair, Shelf]:
    """All that the store has, with the manifests of these models alone where any are named. Raises GraphStoreError."""
    return arranged(store, store.files(), models)


def arranged(store: Store, listed: Mapping[str, Stored], models: Iterable[str] = ()) -> dict[Pair, Shelf]:
    """The listed files by pair, their manifests read and checked; what is none of ours is passed over.

    A plan id begins with its model, so manifests of other models need not be read.
    """
    starts = tuple(f"{model.replace('/', '--')}@" for model in models)
    entries: dict[Pair, dict[str, Stored]] = {}
    named: dict[str, tuple[Pair, str]] = {}
    for name, stored in listed.items():
        parts = name.split("/", 4)
        pair = Pair.parse("/".join(parts[:3])) if len(parts) == 5 else None
        if pair is None:
            continue
        if parts[3] == "entries":
            entries.setdefault(pair, {})[parts[4]] = stored
        elif parts[3] == "manifests" and parts[4].endswith(".json") and is_plan_id(parts[4][:-5]):
            entries.setdefault(pair, {})
            if not starts or parts[4].startswith(starts):
                named[name] = (pair, parts[4][:-5])
    manifests: dict[Pair, dict[str, Manifest]] = {pair: {} for pair in entries}
    problems: dict[Pair, list[str]] = {pair: [] for pair in entries}
    for name, data in store.read(list(named)).items():
        pair, plan_id = named[name]
        try:
            manifests[pair][plan_id] = Manifest.loads(data, plan_id, pair)
        except ManifestError as error:
            problems[pair].append(f"The manifest {store.url}/{name} is not used, {error}: push that plan again.")
    return {pair: Shelf(pair, entries[pair], manifests[pair], tuple(problems[pair])) for pair in entries}


# ---------------------------------------------------------------------------------- push
@dataclass(frozen=True)
class Pushed:
    """What a push did. `problems` are sentences."""

    pair: Pair
    uploaded: int = 0
    uploaded_bytes: int = 0
    present: int = 0
    plans: tuple[str, ...] = ()
    """Plans whose manifest is now in the store, with all of its entries."""
    problems: tuple[str, ...] = ()


def push(store: Store, folder: Path, manifests: Sequence[Manifest], told: Told = lambda: None) -> Pushed:
    """Stores what the manifests, all of one pair, name and the store lacks. Raises GraphStoreError.

    What lies there already stays; the new manifests then name it as it is there. An entry that no manifest vouches
    for, which a push that was cut off may have left, is read back and checked.
    """
    pair = manifests[0].pair
    there = shelf(store, pair)
    ours = {entry.name: entry for manifest in manifests for entry in manifest.entries}
    lost = _lost(folder, ours.values(), there)
    missing = [entry for name, entry in sorted(ours.items()) if name not in there.entries and name not in lost]
    uploads = [Upload(entry_name(pair, entry.name), folder / entry.name) for entry in missing]
    taken = {name.removeprefix(entry_name(pair, "")) for name in store.add(uploads, told)}
    settled = _settled(store, there, {name: entry for name, entry in ours.items() if name not in lost}, taken, folder)
    whole = [_as_stored(manifest, settled) for manifest in manifests if all(entry.name in settled for entry in manifest.entries)]
    changed = [manifest for manifest in whole if not _same(manifest, there.manifests.get(manifest.plan_id))]
    store.replace([Upload(manifest_name(pair, manifest.plan_id), manifest.dumps()) for manifest in changed])
    uploaded = [entry for entry in missing if entry.name not in taken]
    return Pushed(
        pair,
        len(uploaded),
        sum(entry.size for entry in uploaded),
        len(ours) - len(missing) + len(taken) - len(lost),
        tuple(manifest.plan_id for manifest in whole),
        tuple(f"{folder / name} {why}, so its plans were not pushed: test them again." for name, why in sorted(lost.items())),
    )


def _lost(folder: Path, entries: Iterable[Entry], there: Shelf) -> dict[str, str]:
    """Entries that the store lacks and this folder no longer has as they were, and why, as clauses."""
    lost = {}
    for entry in entries:
        if entry.name in there.entries:
            continue
        try:
            if sha256_of(folder / entry.name) != entry.sha256:
                lost[entry.name] = "has changed since it was collected"
        except OSError as error:
            lost[entry.name] = "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
    return lost


def _settled(store: Store, there: Shelf, ours: Mapping[str, Entry], taken: set[str], folder: Path) -> dict[str, Entry]:
    """Each entry as the store holds it."""
    vouched = there.vouched
    settled = {name: entry for name, entry in ours.items() if name not in there.entries and name not in taken}
    unknown: dict[str, Entry] = {}
    for name, entry in ours.items():
        if name in settled:
            continue
        told = {each for each in vouched.get(name, ()) if name in taken or each.size == there.entries[name].size}
        if told and name not in taken:
            settled[name] = entry if entry in told else min(told)
        else:
            unknown[name] = entry
    return settled | _read_back(store, there.pair, unknown, folder)


def _read_back(store: Store, pair: Pair, entries: Mapping[str, Entry], folder: Path) -> dict[str, Entry]:
    """Entries that nobody vouches for: as they are in the store, or replaced by ours where they are not whole there."""
    if not entries:
        return {}
    settled = {}
    with tempfile.TemporaryDirectory() as place:
        paths = {entry_name(pair, name): Path(place) / str(number) for number, name in enumerate(entries)}
        store.fetch(paths, lambda: None)
        for name, entry in entries.items():
            path = paths[entry_name(pair, name)]
            if path.exists() and path.stat().st_size == entry.size:
                settled[name] = Entry(name, entry.size, sha256_of(path))
                continue
            with suppress(OSError):
                if sha256_of(folder / name) == entry.sha256:
                    store.replace([Upload(entry_name(pair, name), folder / name)])
                    settled[name] = entry
    return settled


def _as_stored(manifest: Manifest, settled: Mapping[str, Entry]) -> Manifest:
    return replace(manifest, entries=tuple(sorted(settled[entry.name] for entry in manifest.entries)))


def _same(ours: Manifest, theirs: Manifest | None) -> bool:
    return theirs is not None and replace(ours, made_at=theirs.made_at) == replace(theirs, entries=tuple(sorted(theirs.entries)))


# ---------------------------------------------------------------------------------- pull
@dataclass(frozen=True)
class Pulled:
    """What a pull did. `problems` are sentences."""

    pair: Pair
    fetched: int = 0
    fetched_bytes: int = 0
    present: int = 0
    manifests: tuple[Manifest, ...] = ()
    """Manifests all of whose entries are in the folder now."""
    problems: tuple[str, ...] = ()


def pull(store: Store, there: Shelf, wanted: Sequence[Manifest], folder: Path, told: Told = lambda: None) -> Pulled:
    """Puts what the wanted manifests name into the folder, each file whole and with its hash. Raises GraphStoreError, OSError.

    What is there already stays; what a pull that was cut off has brought is not fetched again.
    """
    vouched = there.vouched
    names = sorted({entry.name for manifest in wanted for entry in manifest.entries})
    missing, bad = [], {}
    for name in names:
        if name not in there.entries:
            bad[name] = "is gone"
        elif not _is_here(folder / name, vouched[name]):
            missing.append(name)
    fetched = bytes_fetched = 0
    folder.mkdir(parents=True, exist_ok=True)
    for step in _steps(missing, there.entries):
        arrived, failed = _fetch(store, there.pair, step, vouched, folder, told)
        bad |= failed
        fetched += len(arrived)
        bytes_fetched += sum(there.entries[name].size for name in arrived)
    return Pulled(
        there.pair,
        fetched,
        bytes_fetched,
        len(names) - len(missing) - sum(name not in there.entries for name in bad),
        tuple(manifest for manifest in wanted if not any(entry.name in bad for entry in manifest.entries)),
        tuple(f"{store.url}/{entry_name(there.pair, name)} {why}: it was left out." for name, why in sorted(bad.items())),
    )


def _is_here(path: Path, vouched: set[Entry]) -> bool:
    try:
        size = path.stat().st_size
        fits = [entry for entry in vouched if entry.size == size]
        return bool(fits) and sha256_of(path) in {entry.sha256 for entry in fits}
    except OSError:
        return False


def _steps(names: Sequence[str], sizes: Mapping[str, Stored]) -> Iterable[list[str]]:
    step: list[str] = []
    total = 0
    for name in names:
        if step and (len(step) >= _STEP_FILES or total + sizes[name].size > _STEP_BYTES):
            yield step
            step, total = [], 0
        step.append(name)
        total += sizes[name].size
    if step:
        yield step


def _fetch(
    store: Store, pair: Pair, names: Sequence[str], vouched: Mapping[str, set[Entry]], folder: Path, told: Told
) -> tuple[list[str], dict[str, str]]:
    """Which of the entries arrived, and why the others did not. Files are checked before they get their names."""
    arrived = []
    incoming = Path(tempfile.mkdtemp(prefix=INCOMING, dir=folder))
    try:
        paths = {name: incoming / str(number) for number, name in enumerate(names)}
        failed = store.fetch({entry_name(pair, name): path for name, path in paths.items()}, told)
        bad = {name: failed[entry_name(pair, name)] for name in names if entry_name(pair, name) in failed}
        for name, path in paths.items():
            if name in bad:
                continue
            if not _is_here(path, vouched[name]):
                bad[name] = "does not have the hash that its manifest names"
                continue
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
            arrived.append(name)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return arrived, bad


# ---------------------------------------------------------------------------------- prune
@dataclass(frozen=True)
class Pruned:
    """What a prune removed, or would."""

    kept: tuple[Pair, ...]
    gone: tuple[Pair, ...]
    removed: tuple[str, ...]
    """Names of files, below the store."""
    removed_bytes: int


def prune(store: Store, keep_pairs: int, now: float, *, dry_run: bool = False) -> Pruned:
    """Removes all but the latest pairs, and entries of the kept ones that no manifest names. Raises GraphStoreError.

    Entries younger than a day stay: the manifest that will name them may be on its way. Nothing that a manifest of a
    kept pair names is touched; a pair whose manifest cannot be read keeps everything.
    """
    if keep_pairs < 1:
        raise UsageError("prune keeps at least one pair: pass --keep-pairs 1 or more.")
    listed = store.files()
    found = arranged(store, listed)
    latest = sorted(found, key=lambda pair: (_latest(listed, pair), pair), reverse=True)
    kept, gone = latest[:keep_pairs], latest[keep_pairs:]
    manifests = [name for pair in gone for name in listed if name.startswith(f"{pair}/manifests/")]
    entries = [name for pair in gone for name in listed if name.startswith(f"{pair}/entries/")]
    entries += [name for pair in kept for name in _unnamed(found[pair], now)]
    if not dry_run:
        # Manifests first: a prune that is cut off leaves entries that nobody names, never a manifest without its entries.
        store.remove(manifests)
        store.remove(entries)
    return Pruned(tuple(kept), tuple(gone), (*manifests, *entries), sum(listed[name].size for name in (*manifests, *entries)))


def _latest(listed: Mapping[str, Stored], pair: Pair) -> float:
    return max(stored.modified for name, stored in listed.items() if name.startswith(f"{pair}/"))


def _unnamed(shelf: Shelf, now: float) -> list[str]:
    if shelf.problems:
        return []
    named = shelf.vouched
    day = 24 * 3600
    return [entry_name(shelf.pair, name) for name, stored in shelf.entries.items() if name not in named and now - stored.modified > day]

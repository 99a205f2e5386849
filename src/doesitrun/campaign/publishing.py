"""The workspace's dataset published on the Hub, and other datasets of results brought in."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from doesitrun.campaign.context import Progress, Watch
from doesitrun.errors import HubError, ModelNotFoundError, UsageError, WorkspaceError
from doesitrun.files import reaching, write_whole
from doesitrun.hub import datasets
from doesitrun.hub.datasets import RemoteDataset
from doesitrun.hub.traffic import Traffic, default_budget
from doesitrun.records import COLUMNS, SCHEMA_VERSION, Row
from doesitrun.store.card import PRETTY_NAME, card
from doesitrun.store.published import Difference, difference, is_todays, published_files, rows_in, todays, unproved
from doesitrun.store.table import read_table, to_parquet
from doesitrun.store.workspace import Workspace, parquet_name
from doesitrun.targets import TARGETS

CARD = "README.md"
IMPORTED = "imported-"
"""Begins the name of every imported file, so that no export is ever written over it."""
Warn = Callable[[str], None]


@dataclass(frozen=True)
class PublishAsk:
    """What is to be published where."""

    dataset: str
    dry_run: bool = False
    create: bool = False
    private: bool = False
    allow_shrink: bool = False
    replace_card: bool = False


@dataclass(frozen=True)
class Publication:
    """What was, or would be, published."""

    dataset: str
    changes: tuple[Difference, ...]
    commit: str | None
    """None where nothing was changed."""
    said: str


# ---------------------------------------------------------------------------------- publish
def publish(ask: PublishAsk, root: Path, warn: Warn, watch: Watch) -> Publication:
    """Publishes the workspace in one commit, or says what that would change. Raises HubError, UsageError, WorkspaceError.

    Nothing is published when a row would be lost unasked, when a PASS rests on no run, or when there is nothing at all.
    """
    datasets.check_name(ask.dataset)
    watch(Progress("exporting", 0.0))
    for warning in Workspace(root).export().warnings:
        warn(warning)
    files = published_files(root)
    if not any(path.startswith("data/") for path in files):
        raise UsageError(f"{root} holds no results: run `doesitrun campaign` or `doesitrun test` first, or name another --workspace.")
    with Traffic(
        budget=default_budget(), watch=lambda waiting: watch(Progress(f"waiting {waiting.seconds:.0f} s: {waiting.why}", 0.0))
    ).governed():
        watch(Progress(f"looking at {ask.dataset}", 0.0))
        there = _there(ask)
        changes, files, rows = _compared(root, files, there)
        if problem := unproved(rows):
            raise WorkspaceError(problem)
        files |= _card(ask, rows, root, there, warn)
        return _sent(ask, there, changes, files, rows, watch)


def _there(ask: PublishAsk) -> RemoteDataset:
    try:
        return datasets.look(ask.dataset)
    except ModelNotFoundError:
        if not (ask.create or ask.dry_run):
            raise
        return RemoteDataset(ask.dataset, "", {})


def _compared(
    root: Path, files: Mapping[str, bytes], there: RemoteDataset
) -> tuple[list[Difference], dict[str, bytes], dict[str, list[Row]]]:
    """(what becomes of each file, the files to send, every row of the dataset as it will be by its file).

    Data files that lie only there are brought to today's columns, so that all files load together.
    """
    changes: list[Difference] = []
    rows: dict[str, list[Row]] = {}
    wanted = dict(files)
    for path in sorted(
        files.keys() | {path for path in datasets.parquet_paths(there.files) if path.partition("/")[0] in ("data", "rankings", "plans")}
    ):
        here = root / path if path in files else None
        same = path in files and path in there.files and there.files[path].holds(files[path])
        old = None if path not in there.files else here if same else datasets.fetch(there, path)
        change = difference(path, here, old)
        if path.startswith("data/"):
            if here is None and old is not None and not is_todays(old):
                wanted[path] = todays(old)
                change = dataclasses.replace(change, rows_here=change.rows_there, what="upgraded")
            source = here or old
            rows[path] = rows_in(source) if source is not None else []
        changes.append(change)
    return changes, wanted, rows


def _card(ask: PublishAsk, rows: Mapping[str, Sequence[Row]], root: Path, there: RemoteDataset, warn: Warn) -> dict[str, bytes]:
    """The card of the dataset as it will be; none where somebody else wrote the one that lies there."""
    known = there.files.get(CARD)
    if known is not None and not ask.replace_card:
        text = datasets.fetch(there, CARD).read_text(encoding="utf-8", errors="replace")
        if f"pretty_name: {PRETTY_NAME}" not in text:
            warn(f"{CARD} of {ask.dataset} was written by somebody else, so it stays: pass --replace-card to publish ours.")
            return {}
    also = [
        folder
        for folder in ("rankings", "plans")
        if any((root / folder).rglob("*.parquet")) or datasets.parquet_paths(there.files, f"{folder}/")
    ]
    return {CARD: card(rows, ask.dataset, also).encode()}


def _sent(
    ask: PublishAsk,
    there: RemoteDataset,
    changes: Sequence[Difference],
    files: Mapping[str, bytes],
    rows: Mapping[str, Sequence[Row]],
    watch: Watch,
) -> Publication:
    losing = [change for change in changes if change.lost]
    new = datasets.missing(there, files)
    counts = f"{sum(map(len, rows.values()))} rows in {len(rows)} data files"
    if losing and not ask.allow_shrink:
        what = f"{losing[0].path} would lose {losing[0].lost} of its {losing[0].rows_there} rows"
        said = f"{what}{f', and {len(losing) - 1} more files some' if len(losing) > 1 else ''}"
        if not ask.dry_run:
            raise UsageError(f"{said}, so nothing was published: look at --dry-run, then pass --allow-shrink if that is meant.")
        return Publication(ask.dataset, tuple(changes), None, f"{said}: publishing needs --allow-shrink.")
    if ask.dry_run:
        return Publication(ask.dataset, tuple(changes), None, f"Nothing was published. It would be {len(new)} files; then {counts}.")
    if not new:
        return Publication(ask.dataset, tuple(changes), None, f"{ask.dataset} holds all of it already: {counts}.")
    if not there.commit:
        datasets.create(ask.dataset, private=ask.private)
        there = datasets.look(ask.dataset)
    watch(Progress(f"publishing {len(new)} files", 0.0))
    message = f"Results: {sum(c.added for c in changes)} new, {sum(c.changed for c in changes)} changed rows"
    done = datasets.commit(there, {path: files[path] for path in new}, message)
    if lacking := datasets.missing(done, files):
        raise HubError(f"{ask.dataset} does not hold what was sent ({lacking[0]} is missing or differs): publish again.")
    return Publication(ask.dataset, tuple(changes), done.commit, f"Published and found there: {counts}, commit {done.commit[:12]}.")


# ---------------------------------------------------------------------------------- import
@dataclass(frozen=True)
class Brought:
    """An imported file, and what it was made of."""

    path: Path
    rows: int
    sources: tuple[str, ...]


def bring_in(source: str, revision: str | None, root: Path, warn: Warn, watch: Watch) -> list[Brought]:
    """Takes the data files of a folder or a dataset on the Hub into the workspace. Raises HubError, UsageError, WorkspaceError.

    All files are read before the first is written: one that does not fit stops it, and nothing is changed.
    """
    groups: dict[str, list[Row]] = {}
    sources: dict[str, list[str]] = {}
    with _opened(source, revision, watch) as (name, origin, paths):
        for shown, path in paths:
            for row in _imported(path, f"{origin}/{shown}", warn):
                folder, _, file = parquet_name(row).rpartition("/")
                place = f"{folder}/{IMPORTED}{_slug(name)}-{file}"
                groups.setdefault(place, []).append(row)
                if shown not in sources.setdefault(place, []):
                    sources[place].append(shown)
    if not groups:
        raise UsageError(f"{source} holds no Parquet file with results: name a folder or dataset that does.")
    written = []
    for place, rows in sorted(groups.items()):
        path = root / place
        with reaching(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, to_parquet(rows))
        written.append(Brought(path, len(rows), tuple(sources[place])))
    for warning in Workspace(root).export().warnings:  # the card counts them
        warn(warning)
    return written


@contextmanager
def _opened(source: str, revision: str | None, watch: Watch) -> Iterator[tuple[str, str, list[tuple[str, Path]]]]:
    """(short name, origin with its revision, files by the name they are told by)."""
    folder = Path(source).expanduser()
    if folder.exists():
        if revision is not None:
            raise UsageError(f"{source} is on your disk, where there are no revisions: leave --revision away.")
        inside = folder / "data" if (folder / "data").is_dir() else folder
        paths = [folder] if folder.is_file() else sorted(path for path in inside.rglob("*.parquet") if path.is_file())
        whole = folder.resolve()
        yield (
            whole.name,
            f"local/{whole.name}",
            [(path.name if path == folder else path.relative_to(folder).as_posix(), path) for path in paths],
        )
        return
    if source.startswith((".", "/", "~")) or source.count("/") != 1:
        raise UsageError(
            f"There is no folder {source!r}: check the path, or pass a dataset's id such as aws-neuron/torch-neuronx-model-support."
        )
    with Traffic(
        budget=default_budget(), watch=lambda waiting: watch(Progress(f"waiting {waiting.seconds:.0f} s: {waiting.why}", 0.0))
    ).governed():
        watch(Progress(f"fetching {source}", 0.0))
        there = datasets.look(source, revision)
        names = datasets.parquet_paths(there.files, "data/") or [
            path for path in datasets.parquet_paths(there.files) if path.partition("/")[0] not in ("rankings", "plans")
        ]
        yield source, f"{source}@{there.commit[:12]}", [(name, datasets.fetch(there, name)) for name in names]


def _imported(path: Path, origin: str, warn: Warn) -> list[Row]:
    """The rows of a file with what today's columns ask for besides: where it was run, and where it was taken from."""
    names = read_table(path).column_names
    known = {column.name for column in COLUMNS}
    if extra := [name for name in names if name not in known]:
        warn(f"{origin} has columns that have no place here, so they are left out: {', '.join(extra)}.")
    rows = rows_in(path)
    common = _common(rows)
    return [_completed(row, f"{origin}#{number}", common) for number, row in enumerate(rows, 1)]


def _common(rows: Sequence[Row]) -> Row:
    """What most rows of a file say of their stack: excluded ones often say nothing, and a file is of one pair."""
    values: dict[str, str | None] = {}
    for name in ("library", "library_version", "transformers", *_compiler_columns()):
        counts = Counter(getattr(row, name) for row in rows if getattr(row, name))
        values[name] = counts.most_common(1)[0][0] if counts else None
    return Row(**values)  # type: ignore[arg-type]


def _compiler_columns() -> dict[str, str]:
    """Column that holds a compiler's version -> target."""
    columns = {column.name for column in COLUMNS}
    names = {target: module.COMPILER.replace("-", "_") for target, module in TARGETS.items()}
    return {name: target for target, name in names.items() if name in columns}


def _completed(row: Row, origin: str, common: Row) -> Row:
    if row.target is None:
        for column, target in _compiler_columns().items():
            version = getattr(row, column) or getattr(common, column)
            if version:
                row = dataclasses.replace(row, target=target, compiler=TARGETS[target].COMPILER, compiler_version=version)
    version = row.library_version or common.library_version or row.transformers or common.transformers
    return dataclasses.replace(
        row,
        library=row.library or common.library,
        library_version=version,
        run_id=row.run_id or f"imported:{origin}",
        schema_version=SCHEMA_VERSION,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", name)[:60].strip("._") or "folder"

"""A place with published data, read again when something in it changed. A file that cannot be read leaves the old data up."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from doesitrun.catalog.building import build
from doesitrun.catalog.reading import (
    KEPT_OPEN,
    Broken,
    DataFile,
    Signature,
    plan_files,
    ranking_files,
    read_record,
    read_rows,
    row_files,
    signature,
)
from doesitrun.catalog.snapshot import Catalog
from doesitrun.errors import DoesItRunError, WorkspaceError
from doesitrun.records import Forecast, Ranked

EVERY_S = 10.0
WAIT_S = 1.0
HUB_SCHEME = "hf://"
RECENT_DAYS = 7
"""Days of rankings and plans that are looked at: one day's need not have all tasks, orders and models."""
T = TypeVar("T")


@dataclass(frozen=True)
class _State:
    """What was read, by the file's name below the place."""

    rows: dict[str, DataFile] = field(default_factory=dict)
    records: dict[str, tuple[Signature, pa.Table]] = field(default_factory=dict)
    broken: dict[str, Broken] = field(default_factory=dict)
    rankings: list[str] = field(default_factory=list)
    plans: dict[str, list[str]] = field(default_factory=dict)
    """Names of the records that are in use, the newest first."""


def open_data(place: str | Path, every_s: float = EVERY_S) -> Source:
    """A workspace, a folder of Parquet files, one such file, or hf://datasets/ORG/NAME, read.

    `every_s` is the least time between two looks at whether something changed.
    Raises WorkspaceError or HubError when there is nothing that can be read, UsageError for an address that is none.
    """
    return Source(locator(place), every_s)


def locator(place: str | Path) -> Callable[[], Path]:
    """What gives the folder (or the one file) of a place, as it is now. Raises UsageError for an address that is none."""
    text = str(place)
    if text.startswith(HUB_SCHEME):
        from doesitrun.hub.published import PublishedDataset, dataset_id

        return PublishedDataset(dataset_id(text), RECENT_DAYS).folder
    path = Path(place).expanduser()
    return lambda: path


class Source:
    """One place and what it holds now. Threads may share it."""

    def __init__(self, locate: Callable[[], Path], every_s: float = EVERY_S) -> None:
        """`locate` gives the folder to read, each time one is looked for; its errors leave the old data up."""
        self._locate = locate
        self._every_s = every_s
        self._state = _State()
        self._looking = threading.Lock()
        self._looked_at = 0.0
        self._catalog = self._read(first=True)

    def current(self) -> Catalog:
        """The data as they are now, or as they were at the last look, if that is recent.

        A look that takes longer than a second goes on in the background, and the old data are returned meanwhile.
        """
        if time.monotonic() - self._looked_at >= self._every_s and not self._looking.locked():
            look = threading.Thread(target=self.refresh, name="doesitrun-look", daemon=True)
            look.start()
            look.join(WAIT_S)
        return self._catalog

    def refresh(self) -> Catalog:
        """Looks now, and returns the data."""
        with self._looking:
            self._catalog = self._read(first=False)
            return self._catalog

    def _read(self, *, first: bool) -> Catalog:
        old = None if first else self._catalog
        try:
            state, problems = _look(self._locate(), self._state)
        except DoesItRunError as error:
            if old is None:
                raise
            return _with_notices(old, (f"{error} The data from before are shown.",))
        finally:
            self._looked_at = time.monotonic()
        if old is not None and _same(state, self._state):
            self._state = state
            return _with_notices(old, problems)
        self._state = state
        rankings = [(Path(name).stem, state.records[name][1]) for name in state.rankings]
        plans = {target: [state.records[name][1] for name in names] for target, names in state.plans.items()}
        version = 1 if old is None else old.version + 1
        return build(version, datetime.now(UTC), problems, list(state.rows.values()), rankings, plans)


def _with_notices(data: Catalog, notices: tuple[str, ...]) -> Catalog:
    return data if data.notices == notices else dataclasses.replace(data, notices=notices)


def _same(new: _State, old: _State) -> bool:
    """True when every row, ranking and plan is the one from before."""
    same_rows = list(new.rows) == list(old.rows) and all(new.rows[name] is old.rows[name] for name in new.rows)
    same_records = all(name in old.records and new.records[name] is old.records[name] for name in new.records)
    return same_rows and same_records and (new.rankings, new.plans) == (old.rankings, old.plans)


def _look(root: Path, old: _State) -> tuple[_State, tuple[str, ...]]:
    """What lies at the place now, of which only the files that changed are read; and what is wrong with some of them."""
    new = _State()
    found = row_files(root)
    for number, path in enumerate(found):
        name = _name(path, root)

        def read(path: Path = path, name: str = name, number: int = number) -> DataFile:
            return read_rows(path, name, keep_open=number < KEPT_OPEN)

        kept = old.rows.get(name)
        file = _kept_or_read(path, name, (kept.signature, kept) if kept else None, read, old, new)
        if file is not None:
            new.rows[name] = file
    if root.is_dir():
        new.rankings.extend(_readable(ranking_files(root), root, Ranked, old, new))
        for target, paths in plan_files(root).items():
            names = _readable(paths, root, Forecast, old, new)
            if names:
                new.plans[target] = names
    return new, tuple(broken.problem for broken in new.broken.values())


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path != root else path.name


def _readable(paths: list[Path], root: Path, record: type[Ranked | Forecast], old: _State, new: _State) -> list[str]:
    """The names of those of the newest files that can be read, or could before."""
    names = []
    for path in paths[:RECENT_DAYS]:
        name = _name(path, root)

        def read(path: Path = path) -> tuple[Signature, pa.Table]:
            return signature(path), read_record(path, record)

        kept = old.records.get(name)
        found = _kept_or_read(path, name, (kept[0], kept) if kept else None, read, old, new)
        if found is not None:
            new.records[name] = found
            names.append(name)
    return names


def _kept_or_read(path: Path, name: str, kept: tuple[Signature, T] | None, read: Callable[[], T], old: _State, new: _State) -> T | None:
    """What was read before if the file is the same, else what is read now; if that fails, what was read before, and a notice."""
    try:
        now = signature(path)
    except OSError as error:
        new.broken[name] = Broken((0, 0, 0), f"{path} cannot be reached ({error.strerror}).")
        return kept[1] if kept else None
    if kept is not None and kept[0] == now:
        return kept[1]
    was_broken = old.broken.get(name)
    if was_broken is not None and was_broken.signature == now:
        new.broken[name] = was_broken
        return kept[1] if kept else None
    try:
        return read()
    except WorkspaceError as error:
        rest = "Its rows from before are shown." if kept else "What it holds is not shown."
        new.broken[name] = Broken(now, f"{error} {rest}")
        return kept[1] if kept else None

"""The workspace: attempts as folders, and the dataset as a function of them.

    attempts/<plan id>/<n>/row.json     pending while the attempt runs, then its row
    attempts/<plan id>/<n>/owner.json   the process that runs it
    attempts/exported.json              the digests of the files that `export` wrote
    data/<target>/<compiler>-<version>/<library>-<version>.parquet
    README.md                           the dataset card

An attempt's folder appears in one step, with its row and its owner inside. What `export` writes is told from what
others wrote by its digest in exported.json: so neither a file that somebody edited, nor one fetched from a published
dataset, is ever overwritten or deleted.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tempfile
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from doesitrun.errors import WorkspaceError
from doesitrun.files import reaching, sweep, sync_folder, write_whole
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import Row
from doesitrun.store.accounts import published
from doesitrun.store.card import card
from doesitrun.store.ledger import Ledger, alone
from doesitrun.store.owner import Life, owner_life, this_process
from doesitrun.store.published import rows_in
from doesitrun.store.table import fitted, to_parquet

_PLAN_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_NEW = ".new-"
_STALE_S = 60
"""Age after which a half-made attempt without an owner is litter: making one takes milliseconds."""


@dataclass(frozen=True)
class Broken:
    """An attempt whose row cannot be read, and why, in one sentence."""

    folder: Path
    problem: str


@dataclass(frozen=True)
class Rows:
    """What the attempts say, in the order of plan id and number: rows, and the attempts whose row cannot be read."""

    rows: tuple[Row, ...]
    broken: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Settled:
    """Rows that became INCONCLUSIVE, and pending attempts that were left alone because nobody here can know their owner."""

    rows: tuple[Row, ...]
    unknown: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Export:
    """What an export left: all files of the dataset, those removed, the card if it is ours, and what the user should know."""

    files: tuple[Path, ...]
    removed: tuple[Path, ...]
    card: Path | None
    warnings: tuple[str, ...]


# ---------------------------------------------------------------------------------- names
def parquet_name(row: Row) -> str:
    """The row's file, below the workspace: data/TARGET/COMPILER-VERSION/LIBRARY-VERSION.parquet.

    ASCII letters, digits, `.`, `_` and `+` stay; a name keeps its `-` too, a version does not, so the last `-` parts
    the two. Any other byte is written `~2f`. What is not known is `unknown`, and `none` when name and version are missing:
    a row that was planned without a stack lies at data/TARGET/none/none.parquet.
    """
    folder, name = _versioned(row.compiler, row.compiler_version), _versioned(row.library, row.library_version)
    return f"data/{_safe(row.target or 'none', '-')}/{folder}/{name}.parquet"


def _versioned(name: str | None, version: str | None) -> str:
    if not name and not version:
        return "none"
    return f"{_safe(name or 'unknown', '-')}-{_safe(version or 'unknown', '')}"


def _safe(text: str, also: str) -> str:
    """The text as a part of a path. Readers of datasets skip names that begin with `.` or `_`, so these are coded there."""
    kept = f"._+{also}"
    coded = "".join(
        chr(byte) if (byte < 128 and chr(byte).isalnum()) or (i > 0 and chr(byte) in kept) else f"~{byte:02x}"
        for i, byte in enumerate(text.encode("utf-8", "surrogatepass"))
    )
    return coded if len(coded) <= 100 else f"{coded[:80]}~{sha256(coded.encode()).hexdigest()[:16]}"


# ---------------------------------------------------------------------------------- rows in folders
def write_row(folder: Path, row: Row) -> Row:
    """Replaces the attempt's row.json in one step, and returns the row as it was written.

    Plan id and attempt are the folder's; a missing run id becomes "PLAN ID/N"; text is what UTF-8 can hold.
    Raises WorkspaceError for a row of another plan, a value that its column cannot hold, and a disk that refuses.
    """
    whole = _identified(folder, row)
    with reaching(folder):
        write_whole(folder / "row.json", json.dumps(whole.to_json(), ensure_ascii=False, indent=1).encode())
    return whole


def _identified(folder: Path, row: Row) -> Row:
    plan_id, number = folder.parent.name, int(folder.name)
    if row.plan_id not in (None, plan_id) or row.attempt not in (None, number):
        message = f"A row of {row.plan_id}, attempt {row.attempt}, does not belong in {folder}: write it into its own folder."
        raise WorkspaceError(message)
    named = dataclasses.replace(row, plan_id=plan_id, attempt=number, run_id=row.run_id or f"{plan_id}/{number}")
    try:
        return fitted(named)
    except ValueError as error:
        message = f"The row for {folder} cannot be written, {error}: mend that value."
        raise WorkspaceError(message) from error


def read_row(folder: Path) -> Row | Broken:
    """The attempt's row, or why it cannot be read. A row without a result is pending."""
    path = folder / "row.json"
    try:
        values = json.loads(path.read_bytes())
        if not isinstance(values, dict):
            return Broken(folder, f"{path} holds no JSON object: delete the attempt's folder and run it again.")
        row = fitted(Row.from_json(values))
        if (row.plan_id, row.attempt) != (folder.parent.name, int(folder.name)):
            return Broken(folder, f"{path} is the row of another attempt ({row.plan_id}, {row.attempt}): move it back there.")
    except OSError as error:
        return Broken(folder, f"{path} cannot be read ({error.strerror}): repair it, or delete the attempt's folder.")
    except (ValueError, TypeError, RecursionError) as error:
        return Broken(folder, f"{path} is broken ({str(error)[:200]}): delete the attempt's folder and run it again.")
    return row


# ---------------------------------------------------------------------------------- the workspace
@dataclass(frozen=True)
class Workspace:
    """A results folder. It need not exist before the first attempt."""

    root: Path

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def folder(self, row: Row) -> Path:
        """The folder of the attempt that the row rests on."""
        return self.attempts / str(row.plan_id) / str(row.attempt)

    def new_attempt(self, plan_id: str, row: Row | None = None) -> Path:
        """A new folder attempts/PLAN ID/N that no other process is given, with `row` (pending unless it has a result) inside.

        N counts from 1. Raises WorkspaceError.
        """
        if not _PLAN_FOLDER.fullmatch(plan_id):
            message = f"{plan_id!r} cannot name a folder: a plan id has at most 200 letters, digits and . _ @ + -."
            raise WorkspaceError(message)
        plan_folder = self.attempts / plan_id
        with reaching(plan_folder):
            plan_folder.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=_NEW, dir=plan_folder))
            try:
                made.chmod(plan_folder.stat().st_mode & 0o777)
                write_whole(made / "owner.json", json.dumps(this_process()).encode())
                return _placed(made, row or Row())
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise

    def rows(self) -> Rows:
        """Every attempt's row; a broken one hides no other. Raises WorkspaceError only if a folder cannot be listed."""
        found = [read_row(folder) for folder in self.folders()]
        return Rows(
            tuple(row for row in found if isinstance(row, Row)),
            tuple(row for row in found if isinstance(row, Broken)),
        )

    def folders(self) -> Iterator[Path]:
        """The attempts' folders, in the order of plan id and number. Raises WorkspaceError."""
        with reaching(self.attempts):
            plans = sorted(p for p in self.attempts.iterdir() if p.is_dir()) if self.attempts.exists() else []
        for plan in plans:
            with reaching(plan):
                numbers = sorted(int(p.name) for p in plan.iterdir() if _NUMBER.fullmatch(p.name) and p.is_dir())
            yield from (plan / str(number) for number in numbers)

    def settle_interrupted(self) -> Settled:
        """Turns pending rows whose process is dead into INCONCLUSIVE, reason interrupted; live ones stay pending.

        An attempt of another host, or one whose owner cannot be read, is left and named. Litter of killed processes goes.
        """
        settled: list[Row] = []
        unknown: list[Broken] = []
        for folder in self.folders():
            if not _is_pending(read_row(folder)):
                continue
            life, sentence = owner_life(folder / "owner.json")
            row = read_row(folder)  # again: the owner may have finished its row before it ended
            if life is Life.UNKNOWN and _is_pending(row):
                unknown.append(Broken(folder, sentence))
            elif life is Life.DEAD and isinstance(row, Row) and row.result is None:
                settled.append(write_row(folder, _interrupted(folder, row)))
                sweep(folder)
        for made in self.attempts.glob(f"*/{_NEW}*"):
            _remove_litter(made)
        return Settled(tuple(settled), tuple(unknown))

    def export(self) -> Export:
        """Makes the dataset and its card say what the attempts say, and removes files of ours that no attempt backs.

        One process at a time; a second one waits. Raises WorkspaceError, before anything is changed, when a file
        that this workspace did not write lies in the way.
        """
        with reaching(self.root):
            self.attempts.mkdir(parents=True, exist_ok=True)
            with alone(self.attempts / "export.lock"):
                return self._export()

    def _export(self) -> Export:
        found = self.rows()
        files: dict[str, list[Row]] = {}
        for row in published(found.rows):
            files.setdefault(parquet_name(row), []).append(row)
        wanted = {name: to_parquet(rows) for name, rows in sorted(files.items())}
        ledger = Ledger(self.root, self.attempts / "exported.json")
        ledger.refuse_foreign(wanted)
        text = card({**self._imported(wanted), **files}).encode()
        warnings = [broken.problem for broken in found.broken]
        if ledger.is_foreign("README.md", text):
            warnings.append(f"{self.root / 'README.md'} was written by somebody else, so it was kept and no card was written.")
        else:
            wanted["README.md"] = text
        kept = ledger.put(wanted)
        warnings += [
            f"{self.root / name} was changed since it was exported, so it was kept: delete it by hand."
            for name in kept.changed
            if name != "README.md"
        ]
        return Export(
            files=tuple(self.root / name for name in sorted(files)),
            removed=tuple(self.root / name for name in kept.removed),
            card=self.root / "README.md" if "README.md" in wanted else None,
            warnings=tuple(warnings),
        )

    def _imported(self, ours: Container[str]) -> dict[str, list[Row]]:
        """The rows of the data files that others wrote, for the card to count."""
        found = {path.relative_to(self.root).as_posix(): path for path in sorted(self.root.glob("data/*/*/imported-*.parquet"))}
        return {name: rows_in(path) for name, path in found.items() if name not in ours}


def _placed(made: Path, row: Row) -> Path:
    """Gives the half-made attempt the next free number. The rename fails where a folder with anything in it lies."""
    while True:
        taken = [int(p.name) for p in made.parent.iterdir() if _NUMBER.fullmatch(p.name)]
        folder = made.parent / str(max(taken, default=0) + 1)
        whole = _identified(folder, row)
        write_whole(made / "row.json", json.dumps(whole.to_json(), ensure_ascii=False, indent=1).encode())
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():
                raise
        else:
            sync_folder(folder.parent)
            return folder


# ---------------------------------------------------------------------------------- interrupted attempts
def _is_pending(row: Row | Broken) -> bool:
    return isinstance(row, Row) and row.result is None


def _interrupted(folder: Path, row: Row) -> Row:
    reason = Reason.INTERRUPTED
    return dataclasses.replace(
        row,
        result=Result.INCONCLUSIVE,
        reason=reason,
        stage=_last_stage(folder / "stage"),
        error=f"{reason.meaning} doesitrun ended before the attempt did. {reason.advice}",
        tested_at=datetime.now(UTC),
    )


def _last_stage(path: Path) -> Stage:
    """The stage that the script noted before it was cut off; START if it noted none."""
    try:
        with path.open("rb") as file:
            return Stage(file.read(32).decode("ascii", "replace").strip())
    except (OSError, ValueError):
        return Stage.START


def _remove_litter(made: Path) -> None:
    with suppress(OSError):
        owned = (made / "owner.json").exists()
        dead = owner_life(made / "owner.json")[0] is Life.DEAD if owned else time.time() - made.stat().st_mtime > _STALE_S
        if dead:
            shutil.rmtree(made, ignore_errors=True)

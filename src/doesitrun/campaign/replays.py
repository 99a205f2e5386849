"""Past attempts judged again, from their folders alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from doesitrun.campaign.evidence import saved
from doesitrun.errors import UsageError
from doesitrun.store.workspace import Workspace
from doesitrun.verify import Replay, replayed


def replay(folder: Path) -> Replay:
    """The verdict on an attempt, reached again, and whether its row agrees. Raises UsageError."""
    return replayed(saved(folder))


def attempts_named(names: Sequence[str], workspace: Workspace) -> Iterator[Path]:
    """The folders that are meant: of attempts, plans (all their attempts) or run ids; without any name all of the workspace.

    Raises UsageError for a name that leads nowhere.
    """
    if not names:
        yield from workspace.folders()
    for name in names:
        yield from _named(name, workspace)


def _named(name: str, workspace: Workspace) -> Sequence[Path]:
    for folder in (Path(name), workspace.attempts / name):
        if (folder / "row.json").is_file():
            return [folder]
        inside = [path.parent for path in folder.glob("*/row.json") if path.parent.name.isdigit()] if folder.is_dir() else []
        if inside:
            return sorted(inside, key=lambda path: int(path.name))
    raise UsageError(f"There is no attempt {name!r}: name its folder, its run id (PLAN ID/NUMBER) or its plan id.")

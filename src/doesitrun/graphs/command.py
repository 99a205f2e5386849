"""The line that a user copies to have the graphs of a model without doesitrun; pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from doesitrun.errors import UsageError
from doesitrun.graphs.manifest import Entry, Manifest
from doesitrun.graphs.pairs import Pair, difference, nearest
from doesitrun.graphs.proof import flag_difference
from doesitrun.targets import TARGETS

MOST_NAMES = 24
"""Entries that a command names one by one; beyond, it copies all that the pair has."""


@dataclass(frozen=True)
class CopyCommand:
    """What to type, and what it brings."""

    uri: str
    """The folder of the store that is copied."""
    copy: str
    """The line of a shell that copies."""
    variables: Mapping[str, str]
    """Environment variables to set for run.py; `$PWD` stands for the folder it was copied in."""
    entries: int
    size: int
    """Bytes."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of a shell, ASCII and printable."""
        return (self.copy, *(f'export {name}="{value}"' for name, value in self.variables.items()))


def entries_uri(url: str, pair: Pair) -> str:
    """Where the pair's entries lie in the store."""
    return f"{url.rstrip('/')}/{pair}/entries"


def copy_command(url: str, pair: Pair, names: Sequence[str] = (), *, entries: int = 0, size: int = 0) -> CopyCommand:
    """The command that copies these entries of the pair, or all where none are named. Raises UsageError."""
    return copying(entries_uri(url, pair), pair.target, names, entries=entries, size=size)


def copying(uri: str, kind: str, names: Sequence[str] = (), *, entries: int = 0, size: int = 0) -> CopyCommand:
    """The command that copies these entries of a target's folder `uri`, or all where none are named. Raises UsageError."""
    files = TARGETS[kind].GRAPHS
    target = f"./{files.copy_to}"
    place = f"$PWD/{files.copy_to}"
    told = {name: value for name, value in TARGETS[kind].environment(place).items() if value.startswith(place)}
    # A folder of locks is not copied, so it need not be set either.
    variables = {name: value for name, value in told.items() if not files.is_left_out(f"{value[len(place) + 1 :]}/x")}
    return CopyCommand(uri, _copy(uri, target, names), variables, entries, size)


def _copy(uri: str, target: str, names: Sequence[str]) -> str:
    scheme = urlsplit(uri).scheme
    named = [word for name in names for word in ("--include", name)]
    if scheme == "hf":
        return _line("hf", "buckets", "sync", uri, target, *named)
    if scheme == "s3":
        return _line("aws", "s3", "sync", uri, target, *(["--exclude", "*"] if named else []), *named)
    if scheme in ("", "file"):
        source = urlsplit(uri).path if scheme else uri
        return f"{_line('mkdir', '-p', target)} && {_line('cp', '-r', f'{source}/.', target)}"
    raise UsageError(f"There is no common command that copies from {scheme}://: use `doesitrun graphs pull`.")


def _line(*words: str) -> str:
    line = shlex.join(words)
    if not (line.isascii() and line.isprintable()):
        raise UsageError(f"{line!r} cannot be copied from a terminal: use a store whose address is plain ASCII.")
    return line


def command(
    url: str, model: str, pair: Pair, flags: Mapping[str, str], found: Mapping[Pair, Sequence[Manifest]], *, plan_id: str | None = None
) -> CopyCommand:
    """The command for a model's graphs with this pair, from what a store has.

    Raises UsageError, which says why and names the nearest pair that has graphs, where the versions differ.
    """
    ours = [each for each in found.get(pair, ()) if each.model_id == model and plan_id in (None, each.plan_id)]
    fit = [each for each in ours if not flag_difference(flags, each.flags)]
    if not ours:
        raise UsageError(_refusal(model, pair, found))
    if not fit:
        raise UsageError(f"The graphs of {model} were compiled with other flags: {flag_difference(flags, ours[0].flags)}: set them alike.")
    entries: dict[str, Entry] = {entry.name: entry for each in fit for entry in each.entries}
    names = sorted(entries) if len(entries) <= MOST_NAMES else []
    return copy_command(url, pair, names, entries=len(entries), size=sum(entry.size for entry in entries.values()))


def _refusal(model: str, pair: Pair, found: Mapping[Pair, Sequence[Manifest]]) -> str:
    having = [other for other, manifests in found.items() if any(each.model_id == model for each in manifests)]
    other = nearest(pair, having)
    if other is None:
        return f"The store has no graphs of {model}: test it and push them with `doesitrun graphs push`."
    return (
        f"The graphs of {model} would not be used here: {difference(pair, other)}. "
        f"The nearest pair that has them is {other}: install those versions, or pass --pair {other} for another machine."
    )

"""What a plan needs of a cache: the entries that its run used, by name and hash. A manifest from outside is checked before use."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from doesitrun.graphs.pairs import Pair

FORMAT = 1
LARGEST_BYTES = 16_000_000
"""No manifest is larger: one of 100,000 entries is about this size."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@,-]{0,199}")
_PLAN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST_NAME = 400


class ManifestError(ValueError):
    """A manifest is not what its format says; the text is a clause."""


def is_safe_name(name: str) -> bool:
    """True for a relative path of plain ASCII parts, none of which is hidden or leads upwards."""
    return len(name) <= _LONGEST_NAME and all(_PART.fullmatch(part) for part in name.split("/"))


def is_plan_id(name: str) -> bool:
    """True for what may name a manifest."""
    return _PLAN_ID.fullmatch(name) is not None


@dataclass(frozen=True, order=True)
class Entry:
    """A file of the cache folder. It never changes once it is in a store."""

    name: str
    """Path below the cache folder, with `/`."""
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The graphs of one plan with one pair."""

    plan_id: str
    model_id: str
    device: str
    pair: Pair
    versions: Mapping[str, str]
    flags: Mapping[str, str]
    """Environment variables that changed what was compiled."""
    shape: Mapping[str, str]
    """What the graphs were compiled for besides the model: cores, dtype, tokens."""
    entries: tuple[Entry, ...]
    made_at: str
    """ISO 8601, UTC."""
    whole_folder: bool = False
    """True where it could not be told which entries the run used: it then names all of the folder."""

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def dumps(self) -> bytes:
        """JSON that `loads` reads back; the same manifest gives the same bytes."""
        values = {"format": FORMAT, **dataclasses.asdict(self), "pair": str(self.pair), "entries": None}
        values["entries"] = [[entry.name, entry.size, entry.sha256] for entry in sorted(self.entries)]
        return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes, plan_id: str, pair: Pair) -> Self:
        """The manifest of this plan and pair. Raises ManifestError for anything else, hostile names among it."""
        if len(data) > LARGEST_BYTES:
            raise ManifestError("it is too large")
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            raise ManifestError("it is no JSON") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ManifestError("its format is not known to this version")
        if (values.get("plan_id"), values.get("pair")) != (plan_id, str(pair)):
            raise ManifestError("it belongs to another plan or pair")
        return cls(
            plan_id=plan_id,
            model_id=_text(values, "model_id"),
            device=_text(values, "device"),
            pair=pair,
            versions=_texts(values, "versions"),
            flags=_texts(values, "flags"),
            shape=_texts(values, "shape"),
            entries=_entries(values),
            made_at=_text(values, "made_at"),
            whole_folder=values.get("whole_folder") is True,
        )


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        message = f"its {name} is no plain text"
        raise ManifestError(message)
    return value


def _texts(values: Mapping[str, Any], name: str) -> dict[str, str]:
    table = values.get(name)
    if not isinstance(table, dict):
        message = f"its {name} are no table"
        raise ManifestError(message)
    return {key: _text(table, key) for key in table}


def _entries(values: Mapping[str, Any]) -> tuple[Entry, ...]:
    listed = values.get("entries")
    if not isinstance(listed, list):
        raise ManifestError("it lists no entries")
    entries = tuple(sorted(_entry(each) for each in listed))
    if len({entry.name for entry in entries}) != len(entries):
        raise ManifestError("it names an entry twice")
    return entries


def _entry(each: Any) -> Entry:
    match each:
        case [str(name), int(size), str(sha256)] if is_safe_name(name) and _SHA256.fullmatch(sha256) and 0 < size < 2**63:
            return Entry(name, size, sha256)
    message = f"{str(each)[:80]!r} is no entry"
    raise ManifestError(message)

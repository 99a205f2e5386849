"""selection.toml: the few decisions that people take themselves. Unknown keys are refused with a suggestion.

[[pin]]                          # run it, whatever the ranking says
model = "Qwen/Qwen3-0.6B"
reason = "The example of every guide."
task = "text-generation"         # optional: for one that no ranking holds
revision = "main"                # optional

[[skip]]                         # do not run it; both are shown to whoever looks the model up
model = "org/broken"
reason = "Its tokenizer needs a server that is gone."
link = "https://huggingface.co/org/broken/discussions/1"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doesitrun.errors import UsageError
from doesitrun.settings import check_keys, read_toml

FILE_NAME = "selection.toml"


@dataclass(frozen=True)
class Pin:
    """A model that is run in any case."""

    model: str
    reason: str
    link: str | None = None
    task: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Skip:
    """A model that is not run, and where one can read why."""

    model: str
    reason: str
    link: str


@dataclass(frozen=True)
class Hand:
    """Everything that selection.toml can say, by model."""

    pins: Mapping[str, Pin] = field(default_factory=dict)
    skips: Mapping[str, Skip] = field(default_factory=dict)


_KEYS = {"pin": ("model", "reason", "link", "task", "revision"), "skip": ("model", "reason", "link")}
_NEEDED = {"pin": ("model", "reason"), "skip": ("model", "reason", "link")}


def load_hand(path: Path | None = None) -> Hand:
    """The decisions in `path`, or in ./selection.toml; none if there is no such file. Raises UsageError."""
    return parse_hand(read_toml(path, FILE_NAME, "--decisions"), str(path or FILE_NAME))


def parse_hand(values: Mapping[str, Any], source: str = FILE_NAME) -> Hand:
    """The decisions in a parsed TOML document. Raises UsageError, naming the entry and the key."""
    check_keys(values, ("pin", "skip"), source)
    pins = {entry["model"]: Pin(**entry) for entry in _entries(values, "pin", source)}
    skips = {entry["model"]: Skip(**entry) for entry in _entries(values, "skip", source)}
    if both := sorted(pins.keys() & skips.keys()):
        raise UsageError(f"{source}: {both[0]} is both pinned and skipped: take one of the two away.")
    return Hand(pins, skips)


def _entries(values: Mapping[str, Any], kind: str, source: str) -> list[dict[str, str]]:
    entries = values.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{source}: {kind} must be a list of tables: write [[{kind}]] above each entry's keys.")
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        where = f"{source}: {kind} {number}"
        check_keys(entry, _KEYS[kind], where)
        for key in _NEEDED[kind]:
            if key not in entry:
                raise UsageError(f'{where}: it lacks {key}: write {key} = "...".')
        for key, value in entry.items():
            if not isinstance(value, str) or not value.strip():
                raise UsageError(f'{where}: {key} must be text: write {key} = "...".')
        if "link" in entry and not entry["link"].startswith(("https://", "http://")):
            raise UsageError(f"{where}: link must be a web address that begins with https://, not {entry['link']!r}.")
        if entry["model"] in seen:
            raise UsageError(f"{where}: {entry['model']} is there twice: take one of the two away.")
        seen.add(entry["model"])
    return entries

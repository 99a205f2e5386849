"""doesitrun.toml -> frozen settings, read once. Unknown keys are refused with a suggestion.

[stacks.trn]                  # a Python environment that models are run in
python = "/opt/venv/bin/python"
target = "neuron"             # optional: else the best target found there

[judge]                       # the small model that reads the text of sharded runs
model = "HuggingFaceTB/SmolLM2-360M-Instruct"   # a Hub id or a folder
revision = "main"

[graphs]
url = "hf://buckets/me/graphs"   # store that compiled graphs are pulled from before a run, and that run.py names

[limits]                      # seconds per stage, and memory of everything a run starts
start_s = 600
load_s = 1800
compile_s = 5400
run_s = 1800
exit_s = 60
memory_gb = 64
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from doesitrun.errors import UsageError

FILE_NAME = "doesitrun.toml"


@dataclass(frozen=True)
class StackSettings:
    """Where a stack's Python is, and which target it is meant for."""

    python: str
    target: str | None = None


@dataclass(frozen=True)
class JudgeSettings:
    """The judge model: a Hub id or a folder."""

    model: str = "HuggingFaceTB/SmolLM2-360M-Instruct"
    revision: str | None = None


@dataclass(frozen=True)
class GraphSettings:
    """The store of compiled graphs: a folder, s3://BUCKET/PREFIX or hf://buckets/NAMESPACE/NAME/PREFIX."""

    url: str | None = None


@dataclass(frozen=True)
class LimitSettings:
    """Seconds per stage; None keeps the default. Memory counts all processes of a run."""

    start_s: float | None = None
    load_s: float | None = None
    compile_s: float | None = None
    run_s: float | None = None
    exit_s: float | None = None
    memory_gb: float | None = None


@dataclass(frozen=True)
class Settings:
    """Everything that doesitrun.toml can say."""

    stacks: Mapping[str, StackSettings] = field(default_factory=dict)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    graphs: GraphSettings = field(default_factory=GraphSettings)


def load(path: Path | None = None) -> Settings:
    """The settings in `path`, or in ./doesitrun.toml; the defaults if there is none. Raises UsageError."""
    return parse(read_toml(path, FILE_NAME, "--config"), str(path or FILE_NAME))


def read_toml(path: Path | None, usual: str, option: str) -> dict[str, Any]:
    """What is in `path`, which `option` named, or in the `usual` file; nothing if that is not there. Raises UsageError."""
    source = path or Path(usual)
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if path is None:
            return {}
        raise UsageError(f"There is no file {path}: name one that exists with {option}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} cannot be read ({error}): make it a readable UTF-8 file.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML ({error}): correct that line.") from None


def parse(values: Mapping[str, Any], source: str = FILE_NAME) -> Settings:
    """The settings in a parsed TOML document. Raises UsageError, naming the key."""
    check_keys(values, ("stacks", "judge", "limits", "graphs"), source)
    stacks = _table(values, "stacks", source)
    return Settings(
        stacks={
            name: StackSettings(**_strings(_table(stacks, name, f"{source}: stacks"), StackSettings, f"{source}: stacks.{name}"))
            for name in stacks
        },
        judge=JudgeSettings(**_strings(_table(values, "judge", source), JudgeSettings, f"{source}: judge")),
        graphs=GraphSettings(**_strings(_table(values, "graphs", source), GraphSettings, f"{source}: graphs")),
        limits=LimitSettings(**_numbers(_table(values, "limits", source), f"{source}: limits")),
    )


def _table(values: Mapping[str, Any], key: str, source: str) -> Mapping[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{source}: {key} must be a table: write [{'stacks.' if source.endswith('stacks') else ''}{key}] above its keys.")
    return table


def _strings(values: Mapping[str, Any], kind: type[StackSettings | JudgeSettings | GraphSettings], source: str) -> dict[str, str]:
    check_keys(values, [f.name for f in fields(kind)], source)
    for key, value in values.items():
        if not isinstance(value, str) or not value:
            raise UsageError(f'{source}: {key} must be text: write {key} = "...".')
    if kind is StackSettings and "python" not in values:
        raise UsageError(f'{source}: a stack needs its Python: write python = "/path/to/python".')
    return dict(values)


def _numbers(values: Mapping[str, Any], source: str) -> dict[str, float]:
    check_keys(values, [f.name for f in fields(LimitSettings)], source)
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"{source}: {key} must be a positive number, not {value!r}.")
    return dict(values)


def check_keys(values: Mapping[str, Any], known: Iterable[str], source: str) -> None:
    """Raises UsageError, with a did-you-mean, for a key that is not known."""
    known = list(known)
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it may hold {', '.join(known)}."
            raise UsageError(f"{source}: there is no key {key!r}: {hint}")

"""Lists of models: one id or folder a line, or a JSON object a line as `select` writes them. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from doesitrun.campaign.context import Ask
from doesitrun.errors import UsageError
from doesitrun.outcomes import Reason, Stage


@dataclass(frozen=True)
class Listed:
    """A model of the list: what is asked of it or, where `reason` is given, why it is not run."""

    ask: Ask
    reason: Reason | None = None
    detail: str = ""
    stage: Stage = Stage.SELECT


def read_list(text: str, source: str, default: Ask | None = None) -> list[Listed]:
    """The models of a list, each once. `default` says what holds where a line does not. Raises UsageError.

    Empty lines and what follows a # are passed over in a list of names; unknown keys are in a list of objects.
    """
    default = default or Ask("")
    found = {each.ask: each for number, line in _lines(text) for each in [_listed(line, f"{source}, line {number}", default)]}
    if not found:
        message = f"{source} names no model: write one Hub id or folder a line."
        raise UsageError(message)
    return list(found.values())


def first_chosen(listed: list[Listed], count: int) -> list[Listed]:
    """The first `count` models that are to be run, and all that are not."""
    chosen = [each for each in listed if each.reason is None][:count]
    return chosen + [each for each in listed if each.reason is not None]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole.strip() if whole.lstrip().startswith("{") else whole.partition("#")[0].strip()
        if line:
            yield number, line


def _listed(line: str, where: str, default: Ask) -> Listed:
    if not line.startswith("{"):
        return Listed(dataclasses.replace(default, model=line))
    try:
        values: Mapping[str, Any] = json.loads(line)
    except (ValueError, RecursionError) as error:
        message = f"{where} is no JSON object ({error}): write one object, or one model's name, a line."
        raise UsageError(message) from None
    ask = dataclasses.replace(
        default,
        model=_text(values, "model_id", where) or _missing(where),
        revision=_text(values, "revision", where) or default.revision,
        task=_text(values, "task", where) or default.task,
        trust_remote_code=values.get("trust_remote_code", default.trust_remote_code) is True,
    )
    if values.get("chosen", True) is True:
        return Listed(ask)
    detail = _text(values, "detail", where) or ""
    try:
        return Listed(ask, Reason(str(values.get("reason"))), detail, Stage(values.get("stage") or Stage.SELECT))
    except ValueError as error:
        message = f"{where}: {error}: a model that is not chosen needs a reason and a stage of the closed lists."
        raise UsageError(message) from None


def _missing(where: str) -> str:
    message = f'{where} names no model: write {{"model_id": "org/name"}}.'
    raise UsageError(message)


def _text(values: Mapping[str, Any], key: str, where: str) -> str | None:
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        message = f"{where}: {key} must be text, not {value!r}."
        raise UsageError(message)
    return value

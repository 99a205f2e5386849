"""Answers as JSON values: the same for --json, the HTTP API and agents; pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from doesitrun.catalog.answers import Line, Pair


def as_json(answer: Any) -> Any:
    """Any record of `answers` (or a tuple of them) as JSON values: times in ISO 8601, a pair as its text.

    A line says in `kind` whether it is a result, a forecast or neither, so that no program takes the one for the other.
    """
    if isinstance(answer, Pair):
        return str(answer)
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        if isinstance(answer, Line):
            return {name: as_json(value) for name, value in line_values(answer).items()}
        return {field.name: as_json(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
    if isinstance(answer, Mapping):
        return {str(as_json(key)): as_json(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_json(each) for each in answer]
    if isinstance(answer, datetime):
        return answer.isoformat()
    if isinstance(answer, Enum):
        return answer.value
    if isinstance(answer, float) and not math.isfinite(answer):
        return None  # JSON has no NaN
    return answer


def line_values(line: Line) -> dict[str, Any]:
    """A line's fields by name, with `kind` before them: result, forecast or nothing."""
    kind = "result" if line.result else "forecast" if line.forecast else "nothing"
    values = {field.name: getattr(line, field.name) for field in dataclasses.fields(line)}
    del values["row"]  # a number that means nothing outside of this process
    return {"kind": kind, **values}

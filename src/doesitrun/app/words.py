"""Values as a page shows them: numbers with units, dates, addresses, and text from outside made harmless. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

NOTHING = "\N{EN DASH}"
"""What stands where nothing is known."""

# C0 and C1 controls but tab and newline, which HTML keeps; marks that turn the direction of what follows; lone surrogates.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(value: Any) -> Any:
    """The value as a template may print it: None as nothing; in text, what could break or reorder the page as U+FFFD."""
    if value is None:
        return ""
    if type(value) is str:  # not Markup, which is ours
        return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", value)
    return value


def seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def gigabytes(value: float | None) -> str:
    """`value` is in 10^9 bytes."""
    if value is None:
        return NOTHING
    return f"{value:.2f} GB" if value < 10 else f"{value:.1f} GB"


def from_bytes(value: int | None) -> str:
    return gigabytes(None if value is None else value / 1e9)


def count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def compact(value: int | None) -> str:
    """A large number in three digits: 1.2M."""
    if value is None:
        return NOTHING
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit if value < 100 * size else f"{value // size}{unit}"
    return str(value)


def day(value: datetime | None) -> str:
    return NOTHING if value is None else f"{value:%Y-%m-%d}"


def moment(value: datetime | None) -> str:
    return NOTHING if value is None else f"{value:%Y-%m-%d %H:%M} UTC"


def one_line(text: str, characters: int = 160) -> str:
    line = " ".join(text[: characters * 4].split())
    return line if len(line) <= characters else line[: characters - 1].rstrip() + "…"


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def address(parameters: Mapping[str, str], **changes: object) -> str:
    """A link within the page: the parameters with the changes; a change to None, "" or False takes one away.

    Any change goes back to the first page of lines.
    """
    wanted: dict[str, object] = {**parameters, "offset": None, **changes}
    kept = {name: "1" if value is True else str(value) for name, value in wanted.items() if value not in (None, "", False)}
    # A lone surrogate, which no address can hold, becomes a question mark.
    pairs = [(name, value.encode("utf-8", "replace").decode()) for name, value in kept.items()]
    return "?" + urlencode(pairs, quote_via=quote, safe="/")


def unit_of(value: float, unit: str) -> str:
    """A bound of a histogram's column: `unit` is seconds or gb."""
    if math.isinf(value):
        return "more"
    if unit == "gb":
        return f"{value:g} GB"
    if value < 60:
        return f"{value:g} s"
    return f"{value / 60:g} min" if value < 3600 else f"{value / 3600:g} h"

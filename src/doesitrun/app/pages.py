"""Pages as HTML text: Jinja templates that escape everything that is put into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from doesitrun import __version__
from doesitrun.app import badge, words
from doesitrun.app.screens import FILTERS, show
from doesitrun.catalog import Catalog, Line, Size, Source
from doesitrun.outcomes import Reason

RESULT_WORDS = {
    "PASS": "it ran, and what it computed was checked",
    "FAIL": "it does not run, or computes something wrong, on this target with this stack",
    "EXCLUDED": "it was not run",
    "INCONCLUSIVE": "the harness, host, network, cores or Hub failed; nothing is known of the model",
}
FAULT_WORDS = {
    "model": "the model with this stack",
    "choice": "a choice, not an incompatibility",
    "incompatible": "an incompatibility",
    "upstream": "a broken checkpoint, on every target",
    "harness": "the harness or the host, not the model",
}
KEPT = 300
"""Drawn pages that are kept, of about 100 kB each."""
KEPT_ROWS = 20_000
"""Drawn lines that are kept, of about 1 kB each."""


@cache
def look(name: str) -> bytes:
    """A file of the folder static, whole."""
    return files("doesitrun.app").joinpath("static", name).read_bytes()


def _look_address(name: str) -> str:
    """Its address changes with its content, so that browsers may keep it for ever."""
    return f"look/{name}?v={sha256(look(name)).hexdigest()[:12]}"


@cache
def environment() -> Environment:
    """The templates. Whatever they print is escaped, and control characters in it are made visible."""
    made = Environment(
        loader=PackageLoader("doesitrun.app"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("seconds", "gigabytes", "from_bytes", "count", "compact", "day", "moment", "one_line", "unit_of"):
        made.filters[name] = getattr(words, name)
    made.globals |= {
        "address": words.address,
        "badge_markdown": badge.markdown,
        "look": _look_address,
        "plural": words.plural,
        "svg": Markup,  # only ever called with what badge.svg made
        "RESULT_WORDS": RESULT_WORDS,
        "FAULT_WORDS": FAULT_WORDS,
        "MEANINGS": {reason.value: reason.meaning for reason in Reason},
        "SIZES": tuple(size.value for size in Size),
        "version": __version__,
        "nothing": words.NOTHING,
    }
    return made


NAMES = frozenset(("model", "view", *FILTERS, "sort", "desc", "offset", "limit", "before", "after"))
"""The parameters that an address may have; others, of trackers and of the Hub, are passed over."""
LONGEST = 300


class _Given(dict[str, str]):
    """Parameters as templates ask for them: None for one that is not there."""

    def __missing__(self, name: str) -> None:
        return None


class Pages:
    """Draws the pages of the data as they are now, and keeps those drawn last until the data change."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: dict[tuple[Any, ...], str] = {}
        self._rows: dict[tuple[Any, ...], Markup] = {}
        self._of: tuple[Any, ...] = ()

    def draw(self, parameters: Mapping[str, str], base: str, *, whole: bool) -> str:
        """The page of a web address: a whole document, or only what changes from page to page."""
        data = self._source.current()
        known = {name: value[:LONGEST] for name, value in sorted(parameters.items()) if name in NAMES and value}
        if self._of != (data.version, data.notices):
            self._kept, self._rows, self._of = {}, {}, (data.version, data.notices)
        key = (*known.items(), base, whole)
        return _remembered(self._kept, KEPT, key, lambda: self._drawn(data, known, base, whole=whole))

    def _drawn(self, data: Catalog, parameters: Mapping[str, str], base: str, *, whole: bool) -> str:
        shown = show(data, parameters)
        values: Mapping[str, Any] = {
            "parameters": _Given(parameters),
            "screen": shown.screen,
            "title": shown.title,
            "data": data,
            "base": base,
            "wrapper": "document.html" if whole else "fragment.html",
            "row": partial(self._row, self._rows, shown.values.get("ranked", False), "task" not in parameters),
            **shown.values,
        }
        return environment().get_template(f"{shown.screen}.html").render(values)

    def _row(self, rows: dict[tuple[Any, ...], Markup], ranked: bool, with_task: bool, line: Line) -> Markup:
        """A line of a list: the same in every answer, until the data change."""

        def made() -> Markup:
            values = {"line": line, "ranked": ranked, "with_task": with_task}
            return Markup(environment().get_template("row.html").render(values))  # noqa: S704 it was escaped by the template

        return _remembered(rows, KEPT_ROWS, (ranked, with_task, line.model_id, line.task, line.target, line.row, line.rank), made)


T = TypeVar("T")


def _remembered(kept: dict[tuple[Any, ...], T], most: int, key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What is kept under the key, or is made now; where there are too many, they all go. Threads may share it."""
    found = kept.get(key)
    if found is None:
        found = make()
        if len(kept) >= most:
            kept.clear()  # not the oldest alone: another thread may be looking at it
        kept[key] = found
    return found

"""From the parameters of a web address to what a page says: one function a screen. Pure; the templates draw it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from doesitrun import catalog
from doesitrun.app import badge, charts, words
from doesitrun.catalog import Catalog, ChangeKind, Pair, Query, View
from doesitrun.errors import DoesItRunError

LINES = 50
"""Lines on one page at most: twice as many take a browser twice as long to draw while somebody types."""
CHANGES = 60
"""Models listed of each kind of change."""
ARCHITECTURES = 16
"""Architectures in the picture; the others are in the table of the view."""

Parameters = Mapping[str, str]


class Screen(StrEnum):
    """What a page shows; the value is also the name of its template."""

    LIST = "list"
    MODEL = "model"
    COMPARE = "compare"
    COVERAGE = "coverage"
    API = "api"
    MISSING = "missing"


@dataclass(frozen=True)
class Shown:
    """A page, ready to be drawn."""

    screen: Screen
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)


def asked(parameters: Parameters) -> Screen:
    """The screen that a web address names; Selected for anything unknown."""
    if parameters.get("model"):
        return Screen.MODEL
    view = parameters.get("view", "")
    return Screen(view) if view in (Screen.COMPARE, Screen.COVERAGE, Screen.API) else Screen.LIST


def show(data: Catalog, parameters: Parameters) -> Shown:
    """The page of a web address."""
    try:
        return _SCREENS[asked(parameters)](data, parameters)
    except DoesItRunError as error:
        return Shown(Screen.MISSING, "Not found", {"message": str(error)})


# ---------------------------------------------------------------------------------- lists
_HEADINGS = {View.SELECTED: "Selected", View.TRENDING: "Trending", View.DOWNLOADS: "Downloads"}


ALL = "all"
"""As a target in an address: each of them, a line per model and target."""


def query_of(data: Catalog, parameters: Parameters, most: int = LINES) -> Query:
    """The query of an address: `most` lines, of the data's own target unless another one is named."""
    query = Query.from_parameters(parameters)
    target = {None: data.default_target or None, ALL: None}.get(query.target, query.target)
    return dataclasses.replace(query, limit=min(query.limit or most, most), target=target)


def _list(data: Catalog, parameters: Parameters) -> Shown:
    query = query_of(data, parameters)
    found = catalog.find(data, query)
    last = max(0, (found.total - 1) // query.limit * query.limit)
    values = {
        "query": query,
        "found": found,
        "choices": catalog.choices(data, query.target),
        "ranked": query.view is not View.SELECTED,
        "first": query.offset + 1,
        "to": query.offset + len(found.lines),
        "previous": max(0, query.offset - query.limit) if query.offset else None,
        "next": query.offset + query.limit if query.offset + query.limit < found.total else None,
        "last": last,
        "filtered": bool(FILTERS & parameters.keys()),
    }
    return Shown(Screen.LIST, _HEADINGS[query.view], values)


FILTERS = frozenset(["q", "task", "result", "reason", "arch", "size", "cores", "target", "compiler", "transformers", "each"])


# ---------------------------------------------------------------------------------- one model
def _model(data: Catalog, parameters: Parameters) -> Shown:
    page = page_of(data, parameters)
    line = page.line
    values = {
        "page": page,
        "line": line,
        "badge": badge.svg(line),
        "chosen": {"model": page.model_id, **badge.parameters(line)},
        "facts": [(name, value) for name, value in page.values.items() if name not in _SHOWN_ELSEWHERE and value not in (None, "")],
    }
    return Shown(Screen.MODEL, page.model_id, values)


def page_of(data: Catalog, parameters: Parameters) -> catalog.Page:
    """The page of a model that a web address names. Raises ModelNotFoundError."""
    return catalog.page(data, parameters["model"], Query.from_parameters(parameters))


_SHOWN_ELSEWHERE = frozenset({"model_id", "run_py", "error", "exclusion", "output_text", "output_tokens", "prompt", "result", "notes"})


# ---------------------------------------------------------------------------------- two pairs
KINDS = (
    (ChangeKind.BROKEN, "Broken", "a PASS that is none any more"),
    (ChangeKind.FIXED, "Fixed", "passes now and did not before"),
    (ChangeKind.SLOWER, "Slower", "passes with both, and takes longer"),
    (ChangeKind.FASTER, "Faster", "passes with both, and takes less"),
    (ChangeKind.NEW, "New", "tested only with the later pair"),
    (ChangeKind.GONE, "Gone", "tested only with the earlier pair"),
    (ChangeKind.UNCLEAR, "Unclear", "one of the two runs says nothing of the model"),
    (ChangeKind.SAME, "Same", "nothing changed"),
)


def _compare(data: Catalog, parameters: Parameters) -> Shown:
    pairs = catalog.choices(data, None).pairs
    before, after = _chosen_pairs(data, pairs, parameters)
    values: dict[str, Any] = {"pairs": pairs, "before": before, "after": after, "kinds": KINDS, "comparison": None}
    if before and after:
        comparison = catalog.compare(data, before, after)
        lists = {kind: [c for c in comparison.changes if c.kind is kind] for kind, _, _ in KINDS}
        values |= {"comparison": comparison, "lists": {kind: found[:CHANGES] for kind, found in lists.items()}, "most": CHANGES}
    return Shown(Screen.COMPARE, "Compare", values)


def _chosen_pairs(data: Catalog, pairs: tuple[Pair, ...], parameters: Parameters) -> tuple[Pair | None, Pair | None]:
    """The two pairs that are asked for; else the newest two of the target that has two."""
    named = [catalog.pair_named(data, parameters[name]) if parameters.get(name) else None for name in ("before", "after")]
    if all(named):
        return named[0], named[1]
    target = next((pair.target for pair in named if pair), data.default_target)
    ours = [pair for pair in pairs if pair.target == target and pair not in named]
    if not any(named) and len(ours) < 2:
        counts = [pair.target for pair in pairs]
        target = next((name for name in counts if counts.count(name) > 1), target)
        ours = [pair for pair in pairs if pair.target == target]
    after = named[1] or (ours.pop(0) if ours else None)
    return named[0] or (ours[0] if ours else None), after


# ---------------------------------------------------------------------------------- pictures
def _coverage(data: Catalog, parameters: Parameters) -> Shown:
    query = query_of(data, {name: value for name, value in parameters.items() if name != "view"})
    covered = catalog.coverage(data, query)
    wall, peak = covered.wall_s, covered.peak_gb
    failures = [each for each in covered.reasons if each[0] == "FAIL"]
    values = {
        "query": query,
        "choices": catalog.choices(data, query.target),
        "all": charts.bars([covered.all])[0],
        "architectures": charts.bars(covered.by_architecture[:ARCHITECTURES]),
        "more_architectures": max(0, len(covered.by_architecture) - ARCHITECTURES),
        "cores": charts.bars(covered.by_cores),
        "sizes": charts.bars(covered.by_size),
        "pairs": charts.bars(covered.by_pair),
        "reasons": covered.reasons,
        "most_frequent": max((lines for *_, lines in covered.reasons), default=1),
        "failures": sum(lines for *_, lines in failures),
        "wall": charts.histogram(wall, charts.WALL_EDGES),
        "wall_middle": charts.middle(wall),
        "peak": charts.histogram(peak, charts.even_edges(peak)),
        "peak_middle": charts.middle(peak),
        "filtered": bool(FILTERS & parameters.keys()),
    }
    return Shown(Screen.COVERAGE, "Coverage", values)


def _api(data: Catalog, _: Parameters) -> Shown:
    lines = catalog.find(data, Query(limit=1)).lines
    example = lines[0].model_id if lines else "Qwen/Qwen3-0.6B"
    return Shown(Screen.API, "API", {"example": words.shown(example)})


_SCREENS: Mapping[Screen, Callable[[Catalog, Parameters], Shown]] = {
    Screen.LIST: _list,
    Screen.MODEL: _model,
    Screen.COMPARE: _compare,
    Screen.COVERAGE: _coverage,
    Screen.API: _api,
}

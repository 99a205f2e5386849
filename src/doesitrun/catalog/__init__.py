"""Looking models up in the published data: one module, behind every door. Needs no torch.

source = open_data("results")          a workspace, a folder of Parquet files, or hf://datasets/ORG/NAME
data = source.current()                the data as they are now, in memory; they never change
find(data, Query(text="qwen"))         lines of a view
page(data, "Qwen/Qwen3-0.6B")          everything about one model
compare(data, pair, pair), coverage(data, query), events(data)
"""

from doesitrun.catalog.answers import (
    UNTESTED,
    Change,
    ChangeKind,
    Choices,
    Comparison,
    Coverage,
    Each,
    Event,
    Evidence,
    Failure,
    Found,
    History,
    Line,
    Page,
    Pair,
    Query,
    Size,
    Sort,
    Suggestion,
    Tally,
    View,
    choice,
)
from doesitrun.catalog.asking import choices, find
from doesitrun.catalog.comparing import compare, coverage, events, pair_named
from doesitrun.catalog.feed import atom, change_words, page_query
from doesitrun.catalog.pages import page, script_of
from doesitrun.catalog.plain import as_json
from doesitrun.catalog.snapshot import Catalog
from doesitrun.catalog.source import Source, open_data
from doesitrun.catalog.words import FAULTS, forecast_words, pair_words, why_forecast
from doesitrun.verify.rungs import RUNGS

__all__ = [
    "FAULTS",
    "RUNGS",
    "UNTESTED",
    "Catalog",
    "Change",
    "ChangeKind",
    "Choices",
    "Comparison",
    "Coverage",
    "Each",
    "Event",
    "Evidence",
    "Failure",
    "Found",
    "History",
    "Line",
    "Page",
    "Pair",
    "Query",
    "Size",
    "Sort",
    "Source",
    "Suggestion",
    "Tally",
    "View",
    "as_json",
    "atom",
    "change_words",
    "choice",
    "choices",
    "compare",
    "coverage",
    "events",
    "find",
    "forecast_words",
    "open_data",
    "page",
    "page_query",
    "pair_named",
    "pair_words",
    "script_of",
    "why_forecast",
]

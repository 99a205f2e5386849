"""The data as pandas frames: what `doesitrun.load` and `doesitrun.lookup` are."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doesitrun.catalog.answers import Each, Line, Query, Size, Sort, View, choice
from doesitrun.catalog.asking import find
from doesitrun.catalog.plain import line_values
from doesitrun.catalog.reading import row_files
from doesitrun.catalog.source import Source, locator, open_data
from doesitrun.store.table import read_files

if TYPE_CHECKING:
    import pandas as pd

EVERYTHING = 2**31 - 1
_TYPES = {
    **dict.fromkeys(("cores", "wall_s", "rank", "downloads", "likes"), "Int64"),
    **dict.fromkeys(("peak_gb", "weights_gb"), "float64"),
}
"""Of columns that may hold nothing but None, which pandas would call objects."""


def load(place: str | Path = "results") -> pd.DataFrame:
    """Every row that is published at a place, with every column in today's types.

    `place` is a workspace, a folder of Parquet files, one such file, or hf://datasets/ORG/NAME.
    Raises WorkspaceError, HubError or UsageError; each says what to do.
    """
    frame: pd.DataFrame = read_files(row_files(locator(place)())).to_pandas()
    return frame


def lookup(text: str = "", *, data: str | Path = "results", limit: int | None = None, **filters: Any) -> pd.DataFrame:
    """The models with `text` in their name, one line each: what `doesitrun lookup` prints.

    `filters` are the fields of `doesitrun.catalog.Query`: target="neuron", result="PASS", view="trending", sort="wall_s", ...
    `kind` says of each line whether it is a result, a forecast or neither.
    Raises WorkspaceError, HubError or UsageError, and TypeError for an unknown filter.
    """
    import pandas as pd

    query = Query(text=text, limit=EVERYTHING if limit is None else limit, **{name: _meant(name, value) for name, value in filters.items()})
    found = find(_source(str(data)).current(), query)
    frame = pd.DataFrame([line_values(line) for line in found.lines], columns=list(line_values(Line(""))))
    return frame.astype(_TYPES)


def _meant(name: str, value: Any) -> Any:
    kinds: dict[str, Any] = {"view": View, "size": Size, "each": Each, "sort": Sort}
    return choice(kinds[name], value, name) if name in kinds and isinstance(value, str) else value


@lru_cache(maxsize=4)
def _source(place: str) -> Source:
    return open_data(place)

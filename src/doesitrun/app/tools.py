"""The endpoints of the HTTP API, which are also the MCP tools: plain functions of the data. Pure.

Their docstrings and type hints are what programs and agents read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from doesitrun import catalog
from doesitrun.app import screens
from doesitrun.catalog import Catalog

MOST = 100
"""Lines of one answer at most."""


def lookup(
    data: Catalog,
    text: str = "",
    view: str = "selected",
    target: str = "",
    task: str = "",
    result: str = "",
    reason: str = "",
    architecture: str = "",
    size: str = "",
    cores: int = 0,
    compiler_version: str = "",
    library_version: str = "",
    sort: str = "",
    descending: bool = False,
    offset: int = 0,
    limit: int = 20,
) -> dict[str, Any]:
    """Find models and say whether they run: one line per model, with its result on an accelerator and software stack.

    A line without a result was never run; its forecast, where there is one, is the planner's and no result.

    Args:
        data: The published data.
        text: Any part of the model's name, for instance qwen3. Empty: all models.
        view: selected (models with results), trending or downloads (the Hub's own order, tested or not).
        target: Kind of accelerator: neuron (AWS Trainium), cuda, cpu or all. Empty: the one with the most results.
        task: Hub task, for instance text-generation. Empty: any.
        result: PASS, FAIL, EXCLUDED, INCONCLUSIVE or untested. Empty: any.
        reason: Why there is no PASS, for instance compile_oom. Empty: any.
        architecture: For instance Qwen3ForCausalLM. Empty: any.
        size: Weights as loaded: 0-2 GB, 2-8 GB, 8-20 GB, 20-80 GB or over 80 GB. Empty: any.
        cores: Cores that the model was sharded over. 0: any.
        compiler_version: Version of the target's compiler. Empty: the newest.
        library_version: Version of transformers. Empty: the newest.
        sort: Column to sort by, for instance wall_s, peak_gb, weights_gb, tested_at or model_id. Empty: the view's own order.
        descending: True for the largest first.
        offset: Lines to leave out at the start.
        limit: Lines to return, 100 at most.

    """
    given = {
        "q": text,
        "view": view,
        "target": target,
        "task": task,
        "result": result,
        "reason": reason,
        "arch": architecture,
        "size": size,
        "cores": str(cores or ""),
        "compiler": compiler_version,
        "transformers": library_version,
        "sort": sort,
        "desc": "1" if descending else "",
        "offset": str(offset),
        "limit": str(limit),
    }
    query = screens.query_of(data, {name: value for name, value in given.items() if value}, MOST)
    return _plain(catalog.find(data, query))


def model(
    data: Catalog, model_id: str, target: str = "", task: str = "", compiler_version: str = "", library_version: str = "", cores: int = 0
) -> dict[str, Any]:
    """Say everything about one model: result, evidence, history over versions, error and advice, packages, run.py, what to try next.

    Args:
        data: The published data.
        model_id: Hub id, for instance Qwen/Qwen3-0.6B.
        target: Kind of accelerator: neuron, cuda or cpu. Empty: the best known.
        task: Hub task. Empty: the model's own.
        compiler_version: Version of the compiler. Empty: the newest.
        library_version: Version of transformers. Empty: the newest.
        cores: Cores that it was sharded over. 0: any.

    """
    named = {
        "model": model_id,
        "target": target,
        "task": task,
        "compiler": compiler_version,
        "transformers": library_version,
        "cores": str(cores or ""),
    }
    return _plain(screens.page_of(data, {name: value for name, value in named.items() if value}))


def compare(data: Catalog, before: str, after: str) -> dict[str, Any]:
    """Say what changed between two pairs of compiler and library: models fixed, broken, slower, faster, new and gone.

    Args:
        data: The published data.
        before: The earlier pair, as TARGET/COMPILER-VERSION/LIBRARY-VERSION or any part of it that names one pair only.
        after: The later pair, likewise.

    """
    return _plain(catalog.compare(data, catalog.pair_named(data, before), catalog.pair_named(data, after)))


def forecast(data: Catalog, model_id: str, target: str = "") -> dict[str, Any]:
    """Say what the planner expects of a model that need not have been run: cores, parallelism, legal sizes, or why it would not run.

    A forecast is worked out from the model's shape. It is no result.

    Args:
        data: The published data.
        model_id: Hub id, for instance Qwen/Qwen3-0.6B.
        target: Kind of accelerator: neuron, cuda or cpu. Empty: all.

    """
    page = screens.page_of(data, {"model": model_id, "target": target})
    found = [forecast for forecast in page.forecasts if target in ("", forecast.target)]
    return {"model_id": model_id, "is_result": False, "forecasts": [_plain(each) for each in found]}


def _plain(answer: Any) -> dict[str, Any]:
    values: dict[str, Any] = catalog.as_json(answer)
    return values


TOOLS: Mapping[str, Callable[..., dict[str, Any]]] = {"lookup": lookup, "model": model, "compare": compare, "forecast": forecast}

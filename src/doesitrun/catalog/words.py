"""What rows and forecasts mean, in plain words, and the commands that go with them; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from doesitrun.catalog.answers import Pair, Query, View
from doesitrun.errors import UsageError
from doesitrun.outcomes import Fault, Reason, Result
from doesitrun.records import Forecast
from doesitrun.targets import TARGETS

GB = 1e9
FAULTS = {
    Fault.MODEL: "it does not run with these versions",
    Fault.CHOICE: "left out by choice",
    Fault.INCOMPATIBLE: "incompatible",
    Fault.UPSTREAM: "the checkpoint itself is broken",
    Fault.HARNESS: "nothing is known of the model",
}
"""What a fault says of the model."""

_VERSION = re.compile(r"[0-9][0-9A-Za-z.!_-]*(\+[0-9A-Za-z._-]+)?")


@cache
def reason_of(text: str) -> Reason | None:
    """The reason of that name; None for one that this version does not know."""
    try:
        return Reason(text)
    except ValueError:
        return None


def fault_of(reason: str) -> str:
    """Whose fault a reason is; "" for none and for an unknown one."""
    known = reason_of(reason)
    return known.fault.value if known else ""


def reason_words(reason: str) -> str:
    """What a reason means; its name where this version does not know it."""
    known = reason_of(reason)
    return known.meaning if known else reason


def why_not(result: str, reason: str, exclusion: str) -> str:
    """Why a row is no PASS, in one or two sentences; "" for a PASS."""
    if result == Result.PASS:
        return ""
    known = reason_of(reason)
    if known is not None:
        return (
            f"{known.meaning} ({FAULTS[known.fault].capitalize()}.)" if known.fault in (Fault.CHOICE, Fault.INCOMPATIBLE) else known.meaning
        )
    return exclusion or reason or ("It failed; its page shows the error." if result == Result.FAIL else "")


def why_forecast(forecast: Forecast | None) -> str:
    """What the planner expects of a model that no row covers."""
    if forecast is None:
        return "Not tested, and not planned either."
    if forecast.outcome != "plan":
        known = reason_of(forecast.reason or "")
        fault = f" ({FAULTS[known.fault].capitalize()}.)" if known else ""
        return f"Forecast: no plan on {forecast.device}. {forecast.detail or (known.meaning if known else forecast.reason or '')}{fault}"
    return f"Forecast: {forecast_words(forecast)}"


def forecast_words(forecast: Forecast) -> str:
    """Cores, parallelism, bytes and legal sizes of a plan, in one sentence."""
    cores = f"{forecast.cores} core{'' if forecast.cores == 1 else 's'} of {forecast.device}"
    how = [f"{kind} parallel {ranks}" for kind, ranks in (("tensor", forecast.tp), ("expert", forecast.ep)) if (ranks or 1) > 1]
    bytes_ = f"{forecast.weights_bytes / GB:.1f} GB of weights" if forecast.weights_bytes else ""
    fullest = f"{forecast.max_rank_bytes / GB:.1f} GB on the fullest core" if forecast.max_rank_bytes and (forecast.cores or 1) > 1 else ""
    more = [str(size) for size in forecast.sizes or () if size != forecast.cores]
    also = f"; {', '.join(more)} cores would do, too" if more else ""
    return f"{', '.join(part for part in (cores, *how, bytes_, fullest) if part)}{also}. Not tested."


def nothing_found(query: Query, *, has_data: bool, has_lines: bool) -> str:
    """What to do when a query lets nothing through."""
    if not has_data:
        return "There are no data yet: run `doesitrun demo`, or test a model with `doesitrun test MODEL`."
    if query.view is not View.SELECTED and not has_lines:
        return "There is no such ranking in these data: take one with `doesitrun rank`, or look at the tested models."
    filters = {
        name: value for name, value in query.parameters().items() if name not in ("view", "q", "sort", "desc", "each", "offset", "limit")
    }
    if query.text and not filters:
        return f"No model here has {query.text!r} in its name: try a shorter part of it, or test it with `doesitrun test MODEL`."
    if query.offset:
        return "There are no more lines: go back to the first page."
    named = ", ".join(f"{name} {value}" for name, value in filters.items())
    return f"Nothing fits {named or 'this query'}{f' with {query.text!r} in its name' if query.text else ''}: drop a filter."


# ---------------------------------------------------------------------------------- the software stack
def packages(values: Mapping[str, Any], target: str) -> tuple[tuple[str, str], ...]:
    """(distribution, version) of what the row ran with, as pip names them."""
    columns = {"torch": "torch", "transformers": "transformers", "accelerate": "accelerate"}
    columns |= dict(TARGETS[target].VERSION_COLUMNS) if target in TARGETS else {}
    return tuple((distribution, str(values[column])) for column, distribution in columns.items() if values.get(column))


def software(values: Mapping[str, Any], target: str) -> tuple[tuple[str, str], ...]:
    """(part, version) of everything that is known of the stack."""
    rest = (("python", "Python"), ("neuron_driver", "Neuron driver"), ("os", "operating system"))
    versions = [*packages(values, target), *((name, str(values[column])) for column, name in rest if values.get(column))]
    compiler, version = values.get("compiler"), values.get("compiler_version")
    named = {name for name, _ in versions}
    unnamed = [(str(compiler), str(version))] if compiler and version and compiler not in named else []
    return (*unnamed, *versions)


def pip_command(found: Sequence[tuple[str, str]], target: str) -> str:
    """One command that installs these packages; "" for none. What is no version is left out: people paste this into a shell.

    A local version (2.13.0+cpu) is not on PyPI: its label names the index of PyTorch that has it.
    """
    versions = {name: version for name, version in found if _VERSION.fullmatch(version)}
    if not versions:
        return ""
    label = versions.get("torch", "").partition("+")[2]
    indexes = [f"https://download.pytorch.org/whl/{label}"] if label.isalnum() else []
    indexes += [index for index in (TARGETS[target].PIP_INDEXES if target in TARGETS else ()) if index not in indexes]
    pins = [f"{name}=={version if name == 'torch' else version.partition('+')[0]}" for name, version in versions.items()]
    return " ".join(["pip install", *pins, *(f"--extra-index-url {index}" for index in indexes)])


def graphs_command(uri: str, target: str) -> str:
    """One line that copies published graphs and sets the variables by which run.py finds them.

    "" for an address that no common tool can copy, or that is not plain enough to be pasted into a shell.
    """
    from doesitrun.graphs import copying

    if target not in TARGETS or not uri.startswith(("hf://", "s3://")):
        return ""
    try:
        return " && ".join(copying(uri, target).lines)
    except (UsageError, ValueError):
        return ""


def pair_words(pair: Pair) -> str:
    """A pair as people read it."""
    named = ((pair.compiler, pair.compiler_version), (pair.library, pair.library_version))
    return " and ".join(f"{name} {version}".strip() for name, version in named if version) or "unknown versions"

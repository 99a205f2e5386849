"""How every bench of the project reports."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("doesitrun", "torch", "transformers", "pyarrow")


def write(name: str, figures: Mapping[str, Any], meanings: Mapping[str, str]) -> None:
    """Write the figures with versions, CPU count and date, and print those that have a meaning."""
    machine = {"cpu_count": len(os.sched_getaffinity(0)), "python": platform.python_version(), "date": datetime.now(UTC).date().isoformat()}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**figures, **machine, "versions": _versions()}, indent=1) + "\n")
    table = Table(title=f"{name}: {machine['cpu_count']} CPU cores, {machine['date']}", title_justify="left")
    for column in ("figure", "value", "meaning"):
        table.add_column(column)
    for key, meaning in meanings.items():
        value = figures[key]
        table.add_row(key, f"{value:.2f}" if isinstance(value, float) else str(value), meaning)
    Console().print(table)


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

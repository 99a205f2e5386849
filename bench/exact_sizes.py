"""Exact sizes of real models, from the table beside the corpus of configs, as parameter counts."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_INEXACT = re.compile(r"WARNING|ROUNDED|a label|numParameters|includes a LoRA|\*\.(h5|msgpack|gguf)|quantized")
"""Rows that the table itself calls inexact, or that count another format than transformers loads."""
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


def exact_parameters(table: Path, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Stored parameters by model id, where they are known exactly.

    A count is taken before a number of bytes, which is divided by the width of the dtype that the config names. Models
    whose config speaks of quantisation have only counts: their bytes are packed.
    """
    found: dict[str, int] = {}
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    for model_id, config in configs.items():
        mine = [row for row in rows if row["model_id"] == model_id and not _INEXACT.search(f"{row['source']} {row['dtype']}")]
        counts = [int(row["params"]) for row in mine if (row["params"] or "").isdigit()]
        width = None if config.get("quantization_config") else _WIDTHS.get(str(config.get("torch_dtype") or config.get("dtype")))
        sizes = [float(row["bytes"]) / width for row in mine if width and row["bytes"]]
        if counts or sizes:
            found[model_id] = counts[0] if counts else round(sizes[0])
    return found


def is_within(elements: int, exact: int, extras: Mapping[str, int], share: float = 0.01) -> bool:
    """True when `elements` is `exact`, but for parts that are stored and known not to be loaded, within a share of it."""
    sums = {0, *extras.values(), sum(extras.values())}
    return any(abs(elements + extra - exact) <= share * exact for extra in sums)

"""The dataset card: README.md as a function of the rows that are published; it touches nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from string import Template

from doesitrun.records import COLUMNS, Row
from doesitrun.store.accounts import accounting
from doesitrun.store.table import clean_text

PRETTY_NAME = '"Does it run?"'
"""By this line of its front matter a card is known for ours."""
TAGS = ("trainium", "neuron", "accelerators", "compatibility", "torch.compile", "transformers")

_PATTERNS = {"rankings": "*.parquet", "plans": "*/*.parquet"}
_TEXT = Template("""\
# Does it run?

Each row is one attempt to run one model on one accelerator with one software stack: what ended it, the versions,
the figures, and in `run_py` the whole script, so that anybody can run it again.
A model's row in a file is its last attempt with these versions; an INCONCLUSIVE attempt never replaces a result.

| result | meaning |
|---|---|
| PASS | it ran, and what it computed was checked |
| FAIL | it does not run, or computes something wrong, on this target with this stack; `error` and `reason` say what |
| EXCLUDED | it was not run; `exclusion` and `reason` say why |
| INCONCLUSIVE | the harness, host, network, cores or Hub failed; nothing is known of the model |

PASS means that compiled graphs ran on the device and that the device's logits are as close to a float32 run on the CPU as
bfloat16 rounding allows. Where a sharded model is too large for such a run on the host, PASS rests on the graphs and on a
judge model that finds the text fluent; `rungs` says which checks a row rests on.

## What is in it

$counts

## How to read it

```python
import pandas as pd

rows = pd.read_parquet("$path")  # one file
rows[rows.model_id == "Qwen/Qwen3-0.6B"][["result", "cores", "wall_s", "rungs", "reason"]]
```

```sql
-- DuckDB: all files, also those of older versions
SELECT result, cores, wall_s, rungs, reason, compiler_version, transformers
FROM read_parquet('data/*/*/*.parquet', union_by_name = true) WHERE model_id = 'Qwen/Qwen3-0.6B';
```

```python
import doesitrun

rows = doesitrun.load(".")  # every row and column, in one frame; also "hf://datasets/ORG/NAME"
doesitrun.lookup("qwen3", data=".")  # one line per model
```

```python
from datasets import load_dataset

rows = load_dataset("$dataset", "$config", split="train")  # $where
```

## Columns

| column | type | meaning |
|---|---|---|
$columns
""")


def card(files: Mapping[str, Sequence[Row]], dataset: str = ".", also: Sequence[str] = ()) -> str:
    """The card for the published rows, by the path of their file: data/TARGET/COMPILER/LIBRARY.parquet.

    `dataset` is the id that its examples load, and `also` names the other folders that are published: rankings, plans.
    """
    paths = sorted(files)
    targets = sorted({path.split("/")[1] for path in paths})
    text = _TEXT.substitute(
        columns="\n".join(f"| `{c.name}` | `{c.arrow}` | {c.doc} |" for c in COLUMNS),
        counts=_counts(files),
        path=_address(paths[0] if paths else "data/cpu/COMPILER/LIBRARY.parquet", dataset),
        config=targets[0] if targets else "cpu",
        dataset=dataset,
        where='"." or the dataset\'s id' if dataset == "." else "all files of one target",
    )
    return f"---\n{_front_matter(targets, also)}---\n\n{text}"


def _address(path: str, dataset: str) -> str:
    return path if dataset == "." else f"hf://datasets/{dataset}/{path}"


def _front_matter(targets: Sequence[str], also: Sequence[str]) -> str:
    """YAML whose strings are JSON strings: YAML reads these as they are."""
    lines = [f"pretty_name: {PRETTY_NAME}", "license: apache-2.0", "tags:", *(f"- {json.dumps(tag)}" for tag in TAGS)]
    if targets or also:
        lines.append("configs:")
    for number, target in enumerate(targets):
        lines.append(f"- config_name: {json.dumps(target)}")
        lines.append(f"  data_files: {json.dumps(f'data/{target}/*/*.parquet')}")
        if number == 0:
            lines.append("  default: true")
    for folder in also:
        lines.append(f"- config_name: {folder}")
        lines.append(f"  data_files: {folder}/{_PATTERNS[folder]}")
    return "".join(f"{line}\n" for line in lines)


def _counts(files: Mapping[str, Sequence[Row]]) -> str:
    if not files:
        return "Nothing yet: no attempt has ended."
    lines = ["| target | compiler | library | PASS | FAIL | EXCLUDED | INCONCLUSIVE | rows |", "|---|---|---|---|---|---|---|---|"]
    for path in sorted(files):
        row, n = files[path][0], accounting(files[path])
        names = (row.target or "none", _version(row.compiler, row.compiler_version), _version(row.library, row.library_version))
        numbers = (n.passed, n.failed, n.excluded, n.inconclusive, n.planned)
        lines.append(f"| {' | '.join(map(_cell, (*names, *map(str, numbers))))} |")
    return "\n".join(lines)


def _version(name: str | None, version: str | None) -> str:
    return f"{name or 'unknown'} {version or 'of unknown version'}" if name or version else "none"


def _cell(text: str) -> str:
    """The text as one cell of a Markdown table: no mark-up, no HTML and no line end comes through."""
    one_line = " ".join(clean_text(text).split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in one_line)
    return "".join(f"&#{ord(c)};" if c in "|`*_[]\\~!#$" else c for c in html.escape(shown))

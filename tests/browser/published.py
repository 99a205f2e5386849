"""Made-up data for the tests of the web app: rows over three pairs of versions, rankings, plans, and hostile rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import Forecast, Ranked, Row, columns
from doesitrun.store.table import arrow_type, to_parquet

DAY = datetime(2026, 11, 30, 9, tzinfo=UTC)
PAIRS = (("2.20.9961.0", "5.20.0"), ("2.21.18209.0", "5.22.1"), ("2.21.33363.0", "5.24.0"))
FAMILIES = (
    ("Qwen", "Qwen3", "Qwen3ForCausalLM", (0.6, 1.7, 4, 8, 14, 32)),
    ("Qwen", "Qwen2.5", "Qwen2ForCausalLM", (0.5, 1.5, 3, 7, 14, 32, 72)),
    ("meta-llama", "Llama-3.2", "LlamaForCausalLM", (1, 3)),
    ("meta-llama", "Llama-3.1", "LlamaForCausalLM", (8, 70)),
    ("google", "gemma-3", "Gemma3ForCausalLM", (1, 4, 12, 27)),
    ("HuggingFaceTB", "SmolLM2", "LlamaForCausalLM", (0.135, 0.36, 1.7)),
    ("mistralai", "Mistral-v0.3", "MistralForCausalLM", (7,)),
    ("microsoft", "Phi-4-mini", "Phi3ForCausalLM", (3.8,)),
    ("allenai", "OLMo-2", "Olmo2ForCausalLM", (1, 7, 13, 32)),
    ("tiiuae", "Falcon3", "LlamaForCausalLM", (1, 3, 7, 10)),
)
FAILURES = (
    (Reason.COMPILE_OOM, Stage.COMPILE, "NCC_EOOM002: estimated peak HBM usage 26.1 GB exceeds the limit of 24.0 GB"),
    (Reason.UNSUPPORTED_OP, Stage.COMPILE, "aten::_grouped_mm is not implemented for the neuron device"),
    (Reason.WRONG_NUMBERS, Stage.VERIFY, "R = 3.12, where 1.5 is the most that rounding explains"),
    (Reason.RECOMPILES, Stage.RUN, "34 graphs were compiled for 32 tokens"),
)
HOSTILE = "evil/<script>alert(1)</script>"
HOSTILE_TEXTS = {
    "error": "<script>window.hacked = 1</script> **bold** [link](javascript:alert(1)) \x00 \x1b[31m red " + "x" * 100_000,
    "output_text": "<img src=x onerror='window.hacked=1'> # heading \u202etxet desrever\u202c שלום \x00 end",
}


def model_ids() -> list[tuple[str, str, float]]:
    """(model, architecture, 10^9 parameters)."""
    return [(f"{org}/{name}-{size:g}B", architecture, size) for org, name, architecture, sizes in FAMILIES for size in sizes]


def row(model_id: str, architecture: str, size: float, pair: int, **changes: Any) -> Row:
    rng = random.Random(f"{model_id}{pair}")
    compiler, library = PAIRS[pair]
    cores = next(n for n in (1, 2, 4, 8, 16) if size * 2 / n < 15 or n == 16)
    values: dict[str, Any] = {
        "model_id": model_id,
        "library": "transformers",
        "library_version": library,
        "transformers": library,
        "torch": "2.13.0",
        "neuronx_cc": compiler,
        "torch_neuronx": "2.13.0.1.2",
        "python": "3.12.3",
        "accelerate": "1.15.0",
        "target": "neuron",
        "device": "trn2",
        "compiler": "neuronx-cc",
        "compiler_version": compiler,
        "task": "text-generation",
        "cores": cores,
        "tp": cores,
        "ep": 1,
        "revision": "a" * 40,
        "plan_id": f"{model_id.replace('/', '--')}@{'a' * 12}+text-generation+neuron+trn2+c{cores}tp{cores}ep1+bf16+n32",
        "run_id": f"{pair}-{model_id}",
        "attempt": 1,
        "runner": "torch.compile(neuron)",
        "tested_at": DAY - timedelta(days=30 * (2 - pair), minutes=rng.randrange(6000)),
        "schema_version": 1,
        "verdict_version": 1,
        "weights_bytes": int(size * 2e9),
        "run_py": f'"""Runs {model_id}."""\n\nimport torch\n\nprint(torch.__version__)\n' + "# a line\n" * 60,
        "result": Result.PASS,
        "stage": Stage.VERIFY,
        "rungs": "reference,executed,numbers" if cores < 8 else "executed,fluent",
        "wall_s": int(60 + size * 40 + rng.randrange(90)),
        "load_s": 4 + size * 2,
        "compile_s": 40 + size * 25,
        "run_s": 45 + size * 26,
        "warm_run_s": 1.5 + size / 4,
        "hbm_peak_gb": round(size * 2.3 / cores + 0.8, 2),
        "hbm_capacity_gb": 24.0,
        "cpu_match": "32/32" if rng.random() < 0.5 else "19/32",
        "match_tokens": 32,
        "logit_ratio": round(rng.uniform(0.75, 1.2), 3),
        "logit_ratio_median": 0.91,
        "passage_loss": 2.31,
        "english": "fluent",
        "fluency_nll": 2.4,
        "judge": "SmolLM2-360M@abc",
        "compiled": True,
        "graphs": 2,
        "prompt": "The capital of France is",
        "output_text": " Paris. It is known for the Eiffel Tower and the Louvre, and it lies on the Seine.",
        "graphs_uri": f"hf://buckets/example/graphs/{compiler}",
        "rank_weights_bytes": int(size * 2e9 / cores),
    }
    return Row(**(values | changes))


def failed(made: Row, which: int) -> dict[str, Any]:
    reason, stage, error = FAILURES[which % len(FAILURES)]
    return {
        "result": Result.FAIL,
        "reason": reason,
        "stage": stage,
        "error": error,
        "rungs": "reference",
        "output_text": None,
        "logit_ratio": None,
        "cpu_match": None,
    }


def rows(pair: int) -> list[Row]:
    """One row per model; some fail, some are excluded, and what fails differs between the pairs."""
    made = []
    for number, (model_id, architecture, size) in enumerate(model_ids()[: 30 + 3 * pair]):
        plain = row(model_id, architecture, size, pair)
        changes: dict[str, Any] = {}
        if (number * 7 + pair * 3) % 11 == 0:
            changes = failed(plain, number)
        elif number % 13 == 5:
            changes = {
                "result": Result.EXCLUDED,
                "reason": Reason.GATED,
                "stage": Stage.SELECT,
                "exclusion": Reason.GATED.meaning,
                "wall_s": None,
                "hbm_peak_gb": None,
                "rungs": None,
                "run_py": None,
                "output_text": None,
                "logit_ratio": None,
                "cpu_match": None,
            }
        elif number == 33:
            changes = {
                "result": Result.INCONCLUSIVE,
                "reason": Reason.NETWORK,
                "stage": Stage.LOAD,
                "error": "The connection was reset.",
                "rungs": None,
            }
        made.append(row(model_id, architecture, size, pair, **changes))
    return made


def hostile_rows() -> list[Row]:
    evil = row(HOSTILE, "<b>Arch</b>", 1, 2)
    texts = {**failed(evil, 0), **HOSTILE_TEXTS}
    return [
        row(HOSTILE, "<b>Arch</b>", 1, 2, **texts),
        row("evil/**markdown** [x](javascript:alert(1))", "A", 1, 2, output_text=HOSTILE_TEXTS["output_text"]),
        row("evil/\u202egnp.exe\u202c-rtl-שלום", "A", 1, 2),
        row("evil/nul\x00inside", "A", 1, 2),
    ]


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def rows_path(root: Path, pair: int) -> Path:
    compiler, library = PAIRS[pair]
    return root / "data" / "neuron" / f"neuronx-cc-{compiler}" / f"transformers-{library}.parquet"


def table(records: list[Any], kind: Any) -> pa.Table:
    schema = pa.schema([(c.name, arrow_type(c.arrow)) for c in columns(kind)])
    return pa.Table.from_pylist([{f: getattr(r, f) for f in schema.names} for r in records], schema=schema)


def ranked_and_planned() -> tuple[list[Ranked], list[Forecast]]:
    ranking, plans = [], []
    names = [*model_ids(), *[(f"newcomer/Model-{n}B", "NewForCausalLM", float(n)) for n in (2, 9, 40, 400)]]
    for by in ("trending", "downloads"):
        order = sorted(names, key=lambda each: random.Random(each[0] + by).random())
        for place, (model_id, architecture, size) in enumerate(order, 1):
            ranking.append(
                Ranked(
                    model_id,
                    "text-generation",
                    by,
                    place,
                    9_000_000 // place,
                    4000 // place,
                    90.0 / place,
                    "text-generation",
                    "transformers",
                    None,
                    int(size * 1e9),
                    architecture,
                    "x",
                    None,
                    None,
                    "b" * 40,
                    DAY,
                )
            )
    for model_id, architecture, size in names:
        if size == 400:
            plans.append(
                Forecast(
                    model_id,
                    "b" * 40,
                    "excluded",
                    "too_large",
                    "800.0 GB of weights do not fit 16 cores of 24 GB.",
                    "text-generation",
                    "neuron",
                    "trn2",
                    None,
                    None,
                    None,
                    None,
                    "bfloat16",
                    800 * 10**9,
                    None,
                    None,
                    architecture,
                    "x",
                    None,
                    "5.24.0",
                    DAY,
                )
            )
            continue
        cores = next(n for n in (1, 2, 4, 8, 16) if size * 2 / n < 15 or n == 16)
        plans.append(
            Forecast(
                model_id,
                "b" * 40,
                "plan",
                None,
                None,
                "text-generation",
                "neuron",
                "trn2",
                cores,
                cores,
                1,
                [n for n in (1, 2, 4, 8, 16) if n >= cores],
                "bfloat16",
                int(size * 2e9),
                int(size * 2e9 / cores),
                20 * 10**9,
                architecture,
                "x",
                None,
                "5.24.0",
                DAY,
            )
        )
    return ranking, plans


def publish(root: Path, *, hostile: bool = True) -> None:
    """A published dataset in the folder."""
    for pair in range(len(PAIRS)):
        write(rows_path(root, pair), to_parquet(rows(pair) + (hostile_rows() if hostile and pair == 2 else [])))
    ranking, plans = ranked_and_planned()
    for path, records, kind in (
        (root / "rankings" / "2026-11-30.parquet", ranking, Ranked),
        (root / "plans" / "2026-11-30" / "neuron.parquet", plans, Forecast),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(records, kind), path)


if __name__ == "__main__":
    import sys

    publish(Path(sys.argv[1]))

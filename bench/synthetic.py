"""A large made-up dataset for benches and browser tests. Every model is synthetic/..., every row says so in its notes.

    python -m bench.synthetic FOLDER ROWS

It must never be published: nothing in it was measured.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from doesitrun.outcomes import Fault, Reason, Result, Stage
from doesitrun.records import Forecast, Ranked, columns
from doesitrun.store.table import arrow_type, schema

MARK = "synthetic: made up for a bench, never measured"
FAMILIES = ("Qwen3", "Qwen2.5", "Llama-3.2", "gemma-3", "Mistral", "phi-4", "granite", "SmolLM2", "olmo", "falcon", "deepseek", "yi")
MAKERS = ("lab", "team", "forge", "studio", "works", "garden")
ENDINGS = ("", "-Instruct", "-chat", "-base", "-it", "-distill", "-coder", "-math", "-vision", "-finetuned-v2")
HOSTILE = (
    "<script>alert(1)</script>",
    "**bold** [link](javascript:alert(1)) # heading",
    "\u202egnirts desrever\u202c",
    "a\0b",
    "x" * 100_000,
    "{{ 7 * 7 }} ${7*7} '\"; DROP TABLE rows; --",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \U0001f600 \u0301\u0301\u0301",
)
"""Texts that no door may interpret."""
REASONS = [reason for reason in Reason if reason.fault is Fault.MODEL]
EXCLUSIONS = [reason for reason in Reason if reason.fault in (Fault.CHOICE, Fault.INCOMPATIBLE)]
HARNESS = [reason for reason in Reason if reason.fault is Fault.HARNESS]
START = datetime(2026, 1, 5, 8, tzinfo=UTC)
SIZES_B = (0.1, 0.4, 0.6, 1.0, 1.7, 3.0, 4.0, 7.0, 8.0, 14.0, 32.0, 70.0, 235.0)
RUN_PY = "".join(f"# line {number} of a script that nobody has run\n" for number in range(120))
ERROR = "".join(f'  File "model.py", line {number}, in forward\n    hidden = layer(hidden)\n' for number in range(25)) + "RuntimeError: "


@dataclass(frozen=True)
class Made:
    """A model that does not exist."""

    model_id: str
    task: str
    architecture: str
    billions: float


def models(count: int, draw: random.Random) -> list[Made]:
    """So many models of a few families, in their usual uneven numbers. A few have hostile names."""
    found = []
    for number in range(count):
        family = FAMILIES[min(int(draw.expovariate(0.35)), len(FAMILIES) - 1)]
        billions = draw.choice(SIZES_B)
        name = f"{draw.choice(MAKERS)}{number % 997}-{family}-{billions}B{draw.choice(ENDINGS)}-{number}"
        if number % 5000 == 17:
            name = f"{HOSTILE[(number // 5000) % len(HOSTILE)][:200]}-{number}"
        task = "image-text-to-text" if "vision" in name else "text-generation"
        found.append(Made(f"synthetic/{name}", task, f"{family.split('-')[0].replace('.', '_')}ForCausalLM", billions))
    return found


def pairs(count: int) -> list[tuple[str, str, str, str, str]]:
    """(target, device, compiler, its version, version of transformers), the oldest first."""
    found = []
    for number in range(count):
        target, device, compiler = (("neuron", "trn2", "neuronx-cc"), ("neuron", "trn2", "neuronx-cc"), ("cuda", "h200", "inductor"))[
            number % 3
        ]
        version = f"2.{20 + number // 3}.{100 * (number % 3)}.0" if target == "neuron" else f"2.{10 + number // 9}.{number // 3 % 3}"
        found.append((target, device, compiler, version, f"5.{number // 2}.0"))
    return found


def row(made: Made, pair: tuple[str, str, str, str, str], number: int, draw: random.Random) -> dict[str, Any]:
    target, device, compiler, version, transformers = pair
    result = draw.choices(list(Result), (62, 21, 14, 3))[0]
    reason = {Result.FAIL: REASONS, Result.EXCLUDED: EXCLUSIONS, Result.INCONCLUSIVE: HARNESS}.get(result)
    chosen = draw.choice(reason) if reason else None
    cores = next((size for size in (1, 2, 4, 8) if made.billions * 2 < 14 * size), 16)
    hostile = draw.choice(HOSTILE) if number % 1009 == 0 else None
    ran = result in (Result.PASS, Result.FAIL)
    seconds = draw.lognormvariate(5.0, 0.9)
    trail = f"{ERROR}{hostile or chosen} ({number})"
    return {
        "model_id": made.model_id,
        "library": "transformers",
        "tp": cores,
        "runner": "torch.compile",
        "result": result.value,
        "notes": MARK,
        "error": trail if result in (Result.FAIL, Result.INCONCLUSIVE) else None,
        "exclusion": f"{chosen.meaning} {hostile or ''}" if chosen and result is Result.EXCLUDED else None,
        "wall_s": int(seconds) if ran else None,
        "hbm_peak_gb": round(made.billions * 2 / cores * draw.uniform(1.05, 1.4), 3) if ran else None,
        "neuronx_cc": version if target == "neuron" else None,
        "library_version": transformers,
        "transformers": transformers,
        "torch": "2.13.0",
        "tested_at": START + timedelta(days=7 * (number % 40), seconds=number % 86_000),
        "run_py": f'"""{MARK}"""\nMODEL = {made.model_id!a}\n{RUN_PY}' if ran else None,
        "schema_version": 1,
        "plan_id": f"synthetic-{number}",
        "revision": f"{number % 3:040x}",
        "task": made.task,
        "target": target,
        "device": device,
        "cores": cores if result is not Result.EXCLUDED else None,
        "compiler": compiler,
        "compiler_version": version,
        "stage": (Stage.RUN if ran else Stage.PLAN).value,
        "reason": chosen.value if chosen else None,
        "rungs": ("reference,executed,numbers" if cores < 4 else "executed,fluent") if result is Result.PASS else None,
        "logit_ratio": round(draw.lognormvariate(0.0, 0.15), 3) if result is Result.PASS else None,
        "run_s": seconds * 0.8 if ran else None,
        "warm_run_s": draw.lognormvariate(0.5, 0.5) if ran else None,
        "weights_bytes": int(made.billions * 2e9),
        "output_text": hostile or "Once upon a time there was a bench.",
        "attempt": 1,
    }


def rows(made: Sequence[Made], pair: tuple[str, str, str, str, str], place: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    for number, each in enumerate(made):
        yield row(each, pair, place * len(made) + number, draw)


def write(folder: Path, count: int, pair_count: int = 25, seed: int = 7) -> None:
    """A dataset of `count` rows: as many models as `count` / `pair_count`, each with every pair; a ranking, and plans."""
    draw = random.Random(seed)
    made = models(count // pair_count, draw)
    for place, pair in enumerate(pairs(pair_count)):
        path = folder / "data" / pair[0] / f"{pair[2]}-{pair[3]}" / f"transformers-{pair[4]}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(sorted(rows(made, pair, place, draw), key=lambda each: str(each["model_id"])), schema=schema())
        pq.write_table(table, path, compression="zstd", row_group_size=2000)
    untested = models(len(made) // 4 + 20, random.Random(seed + 1))
    untested = [Made(f"{each.model_id}-untested", each.task, each.architecture, each.billions) for each in untested]
    write_records(folder / "rankings" / "2026-11-30.parquet", Ranked, rankings([*made[::3], *untested], draw))
    for target, device in (("neuron", "trn2"), ("cuda", "h200")):
        write_records(folder / "plans" / "2026-11-30" / f"{target}.parquet", Forecast, forecasts([*made[::2], *untested], target, device))


def rankings(made: Sequence[Made], draw: random.Random) -> list[dict[str, Any]]:
    """Both orders of both tasks."""
    found = []
    for task in ("text-generation", "image-text-to-text"):
        for by in ("trending", "downloads"):
            chosen = [each for each in made if each.task == task]
            draw.shuffle(chosen)
            for rank, each in enumerate(chosen, 1):
                line = {"model_id": each.model_id, "task": task, "by": by, "rank": rank, "downloads": 10**7 // rank, "likes": 5000 // rank}
                found.append(
                    {**line, "pipeline_tag": task, "library": "transformers", "architecture": each.architecture, "taken_at": START}
                )
    return found


def forecasts(made: Sequence[Made], target: str, device: str) -> list[dict[str, Any]]:
    found = []
    for number, each in enumerate(made):
        plan = number % 7 != 3
        cores = next((size for size in (1, 2, 4, 8) if each.billions * 2 < 14 * size), 16)
        line: dict[str, Any] = {"model_id": each.model_id, "task": each.task, "target": target, "device": device, "notes": MARK}
        line |= {"architecture": each.architecture, "planned_at": START, "outcome": "plan" if plan else "excluded"}
        if plan:
            line |= {
                "cores": cores,
                "tp": cores,
                "ep": 1,
                "sizes": [size for size in (1, 2, 4, 8, 16) if size >= cores],
                "dtype": "bfloat16",
            }
            line |= {"weights_bytes": int(each.billions * 2e9), "max_rank_bytes": int(each.billions * 2.2e9 / cores)}
        else:
            line |= {"reason": EXCLUSIONS[number % len(EXCLUSIONS)].value, "detail": f"{MARK}."}
        found.append(line)
    return found


def write_records(path: Path, record: type[Ranked | Forecast], lines: list[dict[str, Any]]) -> None:
    """A file of rankings or forecasts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = pa.schema([(column.name, arrow_type(column.arrow)) for column in columns(record)])
    pq.write_table(pa.Table.from_pylist(lines, schema=fields), path, compression="zstd")


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))

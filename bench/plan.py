"""Planning the whole corpus of real configs in one run, with `accelerate estimate-memory` beside it."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import report
from bench.exact_sizes import exact_parameters, is_within
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.hub.repository import open_checkpoint
from doesitrun.plan.outlines import Outline, Problem, outline_request, read_outlines
from doesitrun.plan.planner import PlanOptions, make_plan
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS

ROOT = Path(__file__).resolve().parent.parent
ACCELERATE = ROOT / "bench" / "accelerate_sizes.py"
COMMANDS = 6
OUTLINE = ROOT / "src" / "doesitrun" / "instack" / "outline.py"
MEANINGS = {
    "models": "configs planned in one process",
    "plans": "of them with a plan, the others with a reason",
    "median_s": "seconds per model that can be built, import left out",
    "slowest_s": "the slowest one",
    "peak_rss_mb": "peak memory of the process that builds them, in 10^6 bytes",
    "accelerate_median_s": "seconds per model of accelerate in one process, import left out",
    "accelerate_command_s": "seconds per model as its command is used, one process each (median of some)",
    "compared": "models that can be built and whose stored size is known exactly",
    "within_1pct": "share of them whose weights are within 1 % of it, parts that are never loaded set apart",
    "within_1pct_as_stored": "the same, with those parts counted as errors",
    "accelerate_within_1pct": "the same share for accelerate",
}


def corpus() -> Path:
    """The folder of real configs beside the repository. Exits with a sentence where it is absent."""
    folder = Path(os.environ.get("DOESITRUN_SHARED", ROOT.parent / "shared")) / "data" / "hub-corpus"
    if not folder.is_dir():
        sys.exit(f"The corpus of real configs is not at {folder}: set DOESITRUN_SHARED to the folder that holds data/hub-corpus.")
    return folder


def model_id(checkpoint: Checkpoint) -> str:
    return Path(checkpoint.source).stem.replace("__", "/", 1)


def run_script(script: Path, request: Any) -> Any:
    """The answer of a script to a request, both as JSON files."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        subprocess.run([sys.executable, script, asked, answered], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(answered.read_text(encoding="utf-8"))


def timed(job: Callable[[], object]) -> float:
    """Seconds that a job takes."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def plan_all(opened: list[Any], outlines: list[Outline | Problem]) -> tuple[int, float]:
    """(plans, seconds of planning per model) on trn2, refusals by the file itself left out."""
    started = time.perf_counter()
    plans = 0
    for checkpoint, outline in zip(opened, outlines, strict=True):
        task = TASKS[outline.task] if isinstance(outline, Outline) else TASKS["text-generation"]
        plans += hasattr(make_plan(checkpoint, outline, DEVICES["trn2"], task, PlanOptions()), "cores")
    return plans, (time.perf_counter() - started) / len(opened)


def main() -> None:
    folder = corpus()
    opened = [open_checkpoint(str(path)) for path in sorted((folder / "configs").glob("*.json"))]
    checkpoints = [one for one in opened if isinstance(one, Checkpoint)]
    outlines = read_outlines(run_script(OUTLINE, outline_request(checkpoints, TASKS.values())))
    peak_rss_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    plans, each_s = plan_all(checkpoints, outlines)

    built = {model_id(c): o for c, o in zip(checkpoints, outlines, strict=True) if isinstance(o, Outline)}
    configs = {model_id(c): dict(c.config) for c in checkpoints if model_id(c) in built and comparable(c)}
    exact = exact_parameters(folder / "sizes.tsv", configs)
    theirs = run_script(ACCELERATE, {name: configs[name] for name in exact})
    sample = list(exact)[:: max(1, len(exact) // COMMANDS)]
    commands = [timed(lambda name=name: run_script(ACCELERATE, {name: configs[name]})) for name in sample]  # type: ignore[misc]
    seconds = [outline.seconds + each_s for outline in built.values()]
    worked = [answer["seconds"] for answer in theirs.values() if answer["parameters"]]
    good = [name for name in exact if is_within(built[name].elements, exact[name], built[name].unloaded)]
    figures = {
        "models": len(opened),
        "plans": plans,
        "median_s": statistics.median(seconds),
        "slowest_s": max(seconds),
        "peak_rss_mb": peak_rss_mb,
        "accelerate_median_s": statistics.median(worked),
        "accelerate_command_s": statistics.median(commands),
        "compared": len(exact),
        "within_1pct": len(good) / len(exact),
        "within_1pct_as_stored": sum(is_within(built[name].elements, exact[name], {}) for name in exact) / len(exact),
        "accelerate_within_1pct": sum(is_within(theirs[name]["parameters"], exact[name], built[name].unloaded) for name in exact)
        / len(exact),
        "accelerate_built": len(worked),
        "accelerate": version("accelerate"),
        "off": {name: [built[name].elements, exact[name]] for name in exact if name not in good},
    }
    report.write("plan", figures, MEANINGS)
    for name, (ours, stored) in figures["off"].items():  # type: ignore[attr-defined]
        print(f"{name}: {ours} parameters once loaded, {stored} stored")


def comparable(checkpoint: Checkpoint) -> bool:
    """False for packed weights: their stored count is not a count of parameters. fp8 has one element each."""
    return (checkpoint.quantization or {}).get("quant_method", "fp8") == "fp8"


if __name__ == "__main__":
    main()

"""What the harness costs: `doesitrun test` beside the same run.py started bare, in the same run.

The overhead is the wall time of `doesitrun test` less that of its run.py, its reference and its judge. Compiled
graphs are warm for both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import report
from doesitrun import isolate
from doesitrun.stacks import INSTACK

CORES = 1  # the bare run.py is then one process, too
REPEATS = 3
CACHE = Path(__file__).resolve().parent.parent / ".doesitrun" / "tests"
MEANINGS = {
    "bare_run_s": "the run.py, started bare",
    "test_s": "`doesitrun test`, whole, of a model that was planned before",
    "run_s": "of which run.py",
    "reference_s": "of which the CPU reference",
    "judge_s": "of which the judge",
    "overhead_s": "of which the harness",
    "first_overhead_s": "the harness at the first test of a model, when it asks the stack for the model's outline",
    "help_s": "`doesitrun --help`",
}


def seconds(argv: list[str], **options: Any) -> tuple[float, subprocess.CompletedProcess[str]]:
    started = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
    return time.monotonic() - started, done


def measured(checkpoint: Path, root: Path) -> dict[str, float]:
    """One `doesitrun test` and its parts, then the same run.py bare. References are made anew."""
    for kept in root.glob("references/*.json"):
        kept.unlink()
    test_s, done = seconds([sys.executable, "-m", "doesitrun", "test", str(checkpoint), "--cores", str(CORES), "--json", "-w", str(root)])
    row = json.loads(done.stdout)
    assert row["result"] == "PASS", done.stdout + done.stderr
    folder = root / "attempts" / row["plan_id"] / str(row["attempt"])
    run_s = json.loads((folder / "ended.json").read_text())["wall_s"]
    parts = {"run_s": run_s, "reference_s": row["reference_s"], "judge_s": row["judge_s"] or 0.0}
    graphs = next((root / "graphs" / "cpu").glob("*/*"))
    bare_run_s, _ = seconds([sys.executable, str(folder / "run.py")], env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(graphs)})
    return {"bare_run_s": bare_run_s, "test_s": test_s, **parts, "overhead_s": test_s - sum(parts.values())}


def main() -> None:
    checkpoint = CACHE / "checkpoints" / "SmolLM2-135M-Instruct"
    if not checkpoint.exists():
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        isolate.run_script(INSTACK / "demo_checkpoint.py", sys.executable, {"folder": str(checkpoint)}, CACHE / "scripts" / "unpack")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (CACHE / "graphs").mkdir(parents=True, exist_ok=True)
        (root / "graphs").symlink_to(CACHE / "graphs")
        first = measured(checkpoint, root)  # also warms the graphs
        first_overhead = first["overhead_s"]
        rounds = [measured(checkpoint, root) for _ in range(REPEATS)]
    figures = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    figures["first_overhead_s"] = first_overhead
    figures["help_s"] = statistics.median(seconds([sys.executable, "-m", "doesitrun", "--help"])[0] for _ in range(5))
    report.write("overhead", figures, MEANINGS)


if __name__ == "__main__":
    main()

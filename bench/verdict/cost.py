"""What a verdict costs, beside what a comparison of tokens needs; both on the demo model, one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from bench.verdict.device import Bench
from doesitrun import verify
from doesitrun.stacks import INSTACK

GENERATE = """
import sys, time, torch, transformers
torch.set_num_threads(1)
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()
inputs = tokenizer(sys.argv[2], return_tensors="pt")
started = time.perf_counter()
for _ in range(2):
    model.generate(**inputs, do_sample=False, min_new_tokens=32, max_new_tokens=32)
print(time.perf_counter() - started)
"""


def cost(bench: Bench) -> dict[str, float]:
    """Seconds, each as a process of its own with one thread, as a test runs them."""
    plan = bench.plan("smollm2")
    result = bench.run(plan, bench.model("smollm2"))
    torch.set_num_threads(1)
    requests = {
        "reference": {**bench.request(plan, result), "threads": 1},
        "judge": {**verify.judge_request(plan, result, plan.source), "threads": 1},
    }
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for script, request in requests.items():
            asked, answer = Path(name) / f"{script}.request.json", Path(name) / f"{script}.json"
            asked.write_text(json.dumps(request))
            started = time.perf_counter()
            subprocess.run([sys.executable, str(INSTACK / f"{script}.py"), str(asked), str(answer)], check=True, capture_output=True)
            figures[f"{script}_process_s"] = time.perf_counter() - started
            spent = json.loads(answer.read_text())["seconds"]
            figures[f"{script}_computing_s"] = sum(seconds for step, seconds in spent.items() if step not in ("load", "encode"))
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", GENERATE, plan.source, plan.prompt], check=True, capture_output=True, text=True)
    figures["generating_process_s"] = time.perf_counter() - started
    figures["generating_twice_s"] = float(done.stdout.splitlines()[-1])
    figures["reference_and_judge_s"] = figures["reference_process_s"] + figures["judge_process_s"]
    figures["reference_and_judge_computing_s"] = figures["reference_computing_s"] + figures["judge_computing_s"]
    return figures

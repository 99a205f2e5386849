"""`make bench-verdict`: do the verdict's numbers tell right from wrong, and better than equal tokens or a judge do?

    python -m bench.verdict [--quick] [--only TEXT]

Faults are put into the device side alone while it runs; right variants differ as right devices do. Each case is judged by
our verdict, by equality of tokens with the CPU's, and by fluency. It ends with an error where a fault that changes float32
logits by more than twice the noise passes, or where a right variant fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time

import torch
from rich.console import Console
from rich.table import Table

from bench import report
from bench.verdict.cases import CASES, QUICK, Case
from bench.verdict.cost import cost
from bench.verdict.device import Bench
from bench.verdict.measure import Measured, measure
from bench.verdict.models import CACHE

GOES_ON = 3
MEASURED = CACHE / "bench" / "measured.jsonl"

MEANINGS = {
    "faults": "faults put in",
    "large_faults": "of which change float32 logits by more than twice the noise",
    "rights": "right variants",
    "missed": "large faults that passed: must be none",
    "failed_rights": "right variants that failed: must be none",
    "reference_and_judge_computing_s": "a verdict on the demo model: what reference and judge compute",
    "generating_twice_s": "generating 32 tokens on the CPU twice, in bfloat16, as a comparison of tokens needs",
    "reference_process_s": "the reference as a process of its own, with start and loading: all that one core needs",
    "judge_process_s": "the judge in the same way, which a sharded model needs, too",
    "generating_process_s": "generating in the same way",
    "seconds": "the whole bench",
}


def main() -> int:
    parser = argparse.ArgumentParser(description="The fault bench of the verdict.")
    parser.add_argument("--quick", action="store_true", help="a part of the cases, and nothing is written")
    parser.add_argument("--only", default="", help="cases whose name or model contains this text; nothing is written")
    parser.add_argument("--budget", type=float, help="stop after so many seconds, and go on from there when it is called so again")
    asked = parser.parse_args()
    torch.set_num_threads(1)  # as the scripts do
    cases = [case for case in (QUICK if asked.quick else CASES) if asked.only in f"{case.model} {case.name}"]
    found = measured(cases, asked.budget)
    if len(found) < len(cases):
        print(f"{len(found)} of {len(cases)} cases are measured")
        return GOES_ON
    results, seconds = [each for each, _ in found], sum(each for _, each in found)
    print_table(results)
    summary = summarised(results)
    print_summary(summary)
    missed, failed = verdicts(results)
    for each in (*missed, *failed):
        print("BAR MISSED:", line(each))
    if not (asked.quick or asked.only):
        write(results, summary, seconds)
    return 1 if missed or failed else 0


def measured(cases: list[Case], budget: float | None) -> list[tuple[Measured, float]]:
    """The cases measured and their seconds; with a budget those that fit into it, and those of earlier calls."""
    kept = [json.loads(text) for text in MEASURED.read_text().splitlines()] if budget and MEASURED.exists() else []
    done = {(each["model"], each["kind"], each["name"]): (Measured(**each), seconds) for each, seconds in kept}
    started = time.monotonic()
    bench = Bench(sorted({case.model for case in cases}))
    for case in cases:
        if budget and time.monotonic() - started > budget:
            break
        if (case.model, case.kind, case.name) not in done:
            begun = time.monotonic()
            one, seconds = measure(case, bench), time.monotonic() - begun
            done[case.model, case.kind, case.name] = one, seconds
            print(f"{seconds:6.1f} s  {line(one)}", flush=True)
            if budget:
                with MEASURED.open("a") as file:
                    file.write(json.dumps([dataclasses.asdict(one), seconds]) + "\n")
    keys = [(case.model, case.kind, case.name) for case in cases]
    return [done[key] for key in keys if key in done]


def write(found: list[Measured], summary: dict[str, dict[str, float | int]], seconds: float) -> None:
    missed, failed = verdicts(found)
    figures = {
        "cases": [dataclasses.asdict(each) for each in found],
        "summary": summary,
        "faults": sum(each.kind == "fault" for each in found),
        "large_faults": sum(each.is_large for each in found),
        "rights": sum(each.kind == "right" for each in found),
        "missed": len(missed),
        "failed_rights": len(failed),
        **cost(Bench(["smollm2"])),
        "seconds": seconds,
    }
    report.write("verdict", figures, MEANINGS)
    MEASURED.unlink(missing_ok=True)


def verdicts(found: list[Measured]) -> tuple[list[Measured], list[Measured]]:
    """(large faults that passed, right variants that failed)."""
    missed = [each for each in found if each.is_large and not each.is_caught]
    return missed, [each for each in found if each.kind == "right" and each.is_caught]


def summarised(found: list[Measured]) -> dict[str, dict[str, float | int]]:
    """Share of the large faults that are caught, and of the right variants that are failed, by each way of judging."""
    ways = {
        "ours": (found, lambda each: each.is_caught),
        "token_equality": (found, lambda each: each.match_tokens < each.tokens),
        "judge": ([each for each in found if each.judge_applies], lambda each: not each.fluent),
    }
    summary: dict[str, dict[str, float | int]] = {}
    for name, (over, fails) in ways.items():
        large, right = [each for each in over if each.is_large], [each for each in over if each.kind == "right"]
        summary[name] = {
            "sensitivity": sum(map(fails, large)) / max(len(large), 1),
            "false_fail": sum(map(fails, right)) / max(len(right), 1),
            "faults": len(large),
            "rights": len(right),
        }
    return summary


def line(each: Measured) -> str:
    where = f"{each.kind:5} {each.model:8} {each.layout:8} {each.name}"
    figures = f"R {each.R}, of an expert {each.expert_ratio}, {each.match_tokens}/{each.tokens}, {each.english}"
    size = "" if each.kind == "right" else f", change {each.change}"
    size += "" if each.visits is None else f" ({each.change_there} at {each.visits} visits)"
    return f"{where}: {figures}; {each.verdict} {each.reason}{size}"


def print_table(found: list[Measured]) -> None:
    table = Table(title="the fault bench", title_justify="left")
    for column in ("model", "case", "layout", "change", "R", "of an expert", "tokens", "fluent", "verdict"):
        table.add_column(column)
    for each in sorted(found, key=lambda each: (each.kind, each.model)):
        change = "" if each.kind == "right" else "NaN" if each.change is None else f"{each.change:.1f}"
        change += f" ({each.change_there:.1f} at {each.visits})" if each.change_there is not None else ""
        change += "" if each.is_large or each.kind == "right" else " under the noise"
        figures = [f"{figure:.2f}" if figure is not None else "" for figure in (each.R, each.expert_ratio)]
        table.add_row(
            each.model,
            f"{each.kind}: {each.name}",
            f"{each.layout} {each.dtype}",
            change,
            *figures,
            f"{each.match_tokens}/{each.tokens}",
            "yes" if each.fluent else "no",
            each.verdict,
        )
    Console(width=160).print(table)


def print_summary(summary: dict[str, dict[str, float | int]]) -> None:
    table = Table(title="who catches faults, and who fails right runs", title_justify="left")
    for column in ("", "faults caught", "right runs failed", "faults", "right runs"):
        table.add_column(column)
    for name, each in summary.items():
        table.add_row(name, f"{each['sensitivity']:.0%}", f"{each['false_fail']:.0%}", str(each["faults"]), str(each["rights"]))
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())

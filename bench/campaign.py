"""What the pools make of 200 toy jobs, beside the plain loop that a user would write, and what the harness costs per job.

The jobs sleep for given times on 1 to 16 of 32 pretend cores; isolation, attempts, rows and export are real. The bound
is what no schedule can beat: all core-seconds over the cores, or the longest job. A makespan ends with the last row.
The loop goes on meanwhile: jobs that sleep take nothing from each other. Ray's workers are up before its clock starts.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import report
from bench.toys import Toy, run
from doesitrun.campaign.events import Ended, Event
from doesitrun.outcomes import Result
from doesitrun.pool import LocalPool, Pool
from doesitrun.pool.ray import RayPool
from doesitrun.store.workspace import Workspace

JOBS = 200
CORES = 32
SHORTEST_S, LONGEST_S = 0.5, 4.5
SINGLE_JOBS, SINGLE_S = 40, 0.1
MANY = 5000
MEANINGS = {
    "local": "200 jobs on the local pool: seconds, the bound and their ratio",
    "ray": "the same on Ray, one node",
    "sequential": "the same, one after the other",
    "per_job_overhead_s": "seconds that the harness adds to a job, export included, one core, one after the other",
    "rss_mb_5000": "most memory of the harness while it ran 5,000 jobs and exported them",
}


def toys() -> list[Toy]:
    chance = random.Random(5)
    return [Toy(f"toy{n}", chance.choice((1, 2, 4, 8, 16)), round(chance.uniform(SHORTEST_S, LONGEST_S), 2)) for n in range(JOBS)]


def bound_s(jobs: list[Toy]) -> float:
    return max(sum(job.cores * job.seconds for job in jobs) / CORES, *(job.seconds for job in jobs))


def pooled(jobs: list[Toy], pool: Pool) -> tuple[float, float]:
    """Seconds from a campaign's lock to its last row, and to its dataset."""
    started, last_s = time.monotonic(), 0.0

    def listen(event: Event) -> None:
        nonlocal last_s
        if isinstance(event, Ended):
            last_s = time.monotonic() - started

    with tempfile.TemporaryDirectory() as folder:
        ran = run(jobs, Workspace(Path(folder)), pool, listen)
        whole_s = time.monotonic() - started
    assert [each.result for each in ran.values()] == [Result.PASS] * len(jobs)
    return last_s, whole_s


def looped(jobs: list[Toy]) -> float:
    """Seconds of the plain loop: each job as a child, and the next when it has ended."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            subprocess.run(job.command(), cwd=folder, check=True)
    return time.monotonic() - started


def on_ray(jobs: list[Toy]) -> float:
    pool = RayPool(None, "neuron_cores", CORES)
    try:
        pooled([Toy(f"warm{n}", 1, 2.0) for n in range(CORES)], pool)
        return pooled(jobs, pool)[0]
    finally:
        pool.close()


def compared(makespan_s: float, jobs: list[Toy]) -> dict[str, float]:
    bound = bound_s(jobs)
    return {"makespan_s": round(makespan_s, 2), "bound_s": round(bound, 2), "ratio": round(makespan_s / bound, 3)}


def local() -> dict[str, Any]:
    return {"local": compared(pooled(toys(), LocalPool(CORES, 1 << 40))[0], toys())}


def ray() -> dict[str, Any]:
    return {"ray": compared(on_ray(toys()), toys())}


def sequential() -> dict[str, Any]:
    return {"sequential": compared(looped(toys()), toys())}


def overhead() -> dict[str, Any]:
    jobs = [Toy(f"single{n}", 1, SINGLE_S) for n in range(SINGLE_JOBS)]
    whole_s = pooled(jobs, LocalPool(1, 1 << 40))[1]
    return {"per_job_overhead_s": round((whole_s - sum(job.seconds for job in jobs)) / SINGLE_JOBS, 3)}


def memory() -> dict[str, Any]:
    _, whole_s = pooled([Toy(f"toy{n}", 1, 0.0) for n in range(MANY)], LocalPool(CORES, 1 << 40))
    return {"rss_mb_5000": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, "seconds_5000": round(whole_s, 1)}


PIECES = {piece.__name__: piece for piece in (local, ray, sequential, overhead, memory)}


def apart(name: str) -> dict[str, Any]:
    """A piece's figures, measured in a process of its own."""
    argv = [sys.executable, "-m", "bench.campaign", name]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # Ray tells its news on stdout, too
    print(json.dumps(found), file=sys.stderr)
    return found


def main() -> None:
    if sys.argv[1:]:
        print(json.dumps(PIECES[sys.argv[1]]()))
        return
    with ThreadPoolExecutor(1) as beside:
        loop = beside.submit(apart, "sequential")
        found = apart("local") | apart("ray") | apart("memory") | loop.result()
    report.write("campaign", {**found, **apart("overhead"), "jobs": JOBS, "cores": CORES}, MEANINGS)


if __name__ == "__main__":
    main()

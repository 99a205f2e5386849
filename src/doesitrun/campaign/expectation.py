"""How long a plan will take, and how much of the host's memory: from past attempts where there are any. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from doesitrun.outcomes import Result
from doesitrun.pool import Need
from doesitrun.records import Device, Plan, Row

GUESS_S = 60.0
GUESS_S_PER_GB = 20.0
"""A first guess, which only has to put plans in order: past wall times of the same target correct it."""
RANK_BYTES = 600_000_000
"""Private memory of a process with torch and transformers imported, before it loads anything (measured on a CPU)."""
LOADING = 1.2
"""Host memory of loading, over the bytes that are loaded."""


@dataclass(frozen=True)
class Past:
    """What earlier attempts took: seconds by plan id, and how they compare with the guess."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    factor: float = 1.0


def past(rows: Iterable[Row], target: str) -> Past:
    """The wall times of a target's attempts that came to a result."""
    told = [row for row in rows if row.target == target and row.result in (Result.PASS, Result.FAIL) and row.wall_s and row.plan_id]
    ratios = [row.wall_s / _guess_s(row.weights_bytes or 0) for row in told if row.wall_s]
    return Past({str(row.plan_id): float(row.wall_s or 0) for row in told}, statistics.median(ratios) if ratios else 1.0)


def need(plan: Plan, device: Device, cores: int, past: Past) -> Need:
    """What the device run of a plan takes of a machine with so many cores.

    Where a core is a process of the host (its memory is the host's), more of them than the machine has may run.
    """
    is_host = device.core_bytes == 0
    loaded = plan.rank_bytes.total * plan.cores if is_host else plan.weights_bytes
    return Need(
        cores=min(plan.cores, cores) if is_host else plan.cores,
        host_bytes=int(LOADING * loaded) + RANK_BYTES * plan.cores,
        expected_s=past.seconds.get(plan.plan_id) or past.factor * _guess_s(plan.weights_bytes),
    )


def remaining_s(needs: Iterable[Need], running: Iterable[tuple[Need, float]], cores: int) -> float:
    """Seconds until all are done: what is left of the work over all cores, but no less than the longest. `running`: (need, elapsed)."""
    left = [(need.cores, need.expected_s) for need in needs]
    left += [(need.cores, max(0.0, need.expected_s - elapsed)) for need, elapsed in running]
    work = sum(each * seconds for each, seconds in left)
    return max([work / max(1, cores), *(seconds for _, seconds in left)], default=0.0)


def _guess_s(weights_bytes: int) -> float:
    return GUESS_S + GUESS_S_PER_GB * weights_bytes / 1e9

"""From what a run left behind to a verdict: pure rules over saved figures.

A PASS rests on rungs (`Verdict.rungs`), each of which is a few rules of the table `RULES`:

1. reference  on the CPU the checkpoint is whole and speaks English: otherwise agreeing with it proves nothing;
2. executed   the device ran it as planned, compiled and sharded, and agrees with itself;
3. numbers    the device's logits are no further from float32 than this dtype's own rounding, by the ratio R;
4. fluent     a small judge model finds the text likely, and it does not repeat itself.

A thorough test has four more, one for each probe (`verify/probes.py`).

All rules are evaluated; the first one of the table that finds something gives the outcome. Numbers decide
wherever there is a reference. A model that is sharded because no host memory holds it has none: then
rungs 2 and 4 have to do, and the verdict says so.
"""

from __future__ import annotations

from doesitrun.verify.decide import Verdict, verdict
from doesitrun.verify.evidence import DeviceRun
from doesitrun.verify.fluency import judge_limits
from doesitrun.verify.replay import Replay, Saved, blame, oracle_plan, replayed
from doesitrun.verify.requests import (
    PASSAGE,
    is_usable,
    judge_key,
    judge_request,
    needs_judge,
    reference_key,
    reference_memory,
    reference_request,
)
from doesitrun.verify.rules import RULES
from doesitrun.verify.thresholds import THRESHOLDS, Thresholds

__all__ = [
    "PASSAGE",
    "RULES",
    "THRESHOLDS",
    "DeviceRun",
    "Replay",
    "Saved",
    "Thresholds",
    "Verdict",
    "blame",
    "is_usable",
    "judge_key",
    "judge_limits",
    "judge_request",
    "needs_judge",
    "oracle_plan",
    "reference_key",
    "reference_memory",
    "reference_request",
    "replayed",
    "verdict",
]

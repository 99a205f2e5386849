"""Cores, parallelism and bytes per rank of a model on a device, or why it is not run; pure.

`outlines` is a model's shape as its stack tells it, `quantization` says what stored weights are loaded as, `sharding`
counts what lies on a rank, `planner` chooses the cores, and `explanation` is what stands behind the choice.
"""

from __future__ import annotations

from doesitrun.plan.explanation import Explanation, ModuleShare, explanation, plan_line
from doesitrun.plan.outlines import Outline, Problem, outline_request, read_outlines
from doesitrun.plan.planner import Fit, PlanOptions, fits, make_plan

__all__ = [
    "Explanation",
    "Fit",
    "ModuleShare",
    "Outline",
    "PlanOptions",
    "Problem",
    "explanation",
    "fits",
    "make_plan",
    "outline_request",
    "plan_line",
    "read_outlines",
]

"""What stands behind a plan or a refusal, as data for a table: every size, every module, what may go wrong; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.plan.outlines import Outline, Parameter
from doesitrun.plan.planner import GB, Fit, PlanOptions, fits
from doesitrun.plan.quantization import Loading, loading
from doesitrun.plan.sharding import Layout, local_elements, weights_bytes
from doesitrun.records import Device, Plan, Refusal, Task

_RECURRENT = frozenset({"linear_attention", "conv", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent"})
_WINDOWED = frozenset({"sliding_attention", "chunked_attention", "hybrid_sliding"})
_MISMATCH = 0.01


@dataclass(frozen=True)
class ModuleShare:
    """One pattern of modules: how it is cut, and its bytes in all and on the fullest rank."""

    pattern: str
    style: str
    """The parallel style, or "whole"."""
    total_bytes: int
    rank_bytes: int


@dataclass(frozen=True)
class Explanation:
    """What `doesitrun plan` shows below the plan."""

    fits: tuple[Fit, ...]
    """Every legal number of cores, ascending."""
    modules: tuple[ModuleShare, ...]
    """On the cores of the plan, or on the most cores where there is none."""
    weights_bytes: int
    warnings: tuple[str, ...]


def explanation(checkpoint: Checkpoint, outline: Outline, device: Device, task: Task, options: PlanOptions) -> Explanation:
    """All sizes, the modules on the chosen one, and what could go wrong."""
    how = loading(checkpoint.quantization, checkpoint.stored, device, outline)
    tried = tuple(fits(checkpoint, outline, device, task, options))
    chosen = next((fit for fit in tried if fit.holds), tried[-1])
    layout = Layout(chosen.cores, chosen.tp, chosen.ep, chosen.override)
    modules = tuple(_modules(outline, layout, how))
    return Explanation(tried, modules, weights_bytes(outline, how), tuple(_warnings(checkpoint, outline, device, how, chosen)))


def plan_line(result: Plan | Refusal, device: Device) -> dict[str, Any]:
    """The line of `doesitrun plan --json`. Bytes are 0, and cores 0, where there is no plan."""
    line: dict[str, Any] = {"model_id": result.model_id, "revision": result.revision, "task": result.task}
    if isinstance(result, Refusal):
        known = {"outcome": "excluded", "reason": result.reason.value, "detail": result.detail, "weights_bytes": result.weights_bytes}
        empty = {"cores": 0, "tp": 0, "ep": 0, "max_rank_bytes": 0, "capacity_bytes": 0, "notes": ""}
        return line | known | {"target": device.target, "device": device.name} | empty
    return line | {
        "outcome": "plan",
        "reason": None,
        "detail": "",
        "target": result.target,
        "device": result.device,
        "cores": result.cores,
        "tp": result.tp,
        "ep": result.ep,
        "weights_bytes": result.weights_bytes,
        "max_rank_bytes": result.rank_bytes.total,
        "capacity_bytes": result.capacity_bytes,
        "notes": "; ".join(result.notes),
    }


def _modules(outline: Outline, layout: Layout, how: Loading) -> list[ModuleShare]:
    def owner(parameter: Parameter) -> str:
        name, _, last = parameter.name.rpartition(".")
        return name if last in ("weight", "bias") else parameter.name

    shares = []
    for pattern, group in groupby(sorted(outline.parameters, key=owner), key=owner):
        total = rank = 0
        style = "whole"
        for parameter in group:
            rule, ranks = layout.style(parameter)
            whole = math.prod(parameter.shape)
            local = local_elements(parameter.shape, rule, ranks, is_bias=parameter.name.endswith(".bias"))
            total += how.nbytes(parameter, whole) * parameter.count
            rank += how.nbytes(parameter, local) * parameter.count
            style = rule if rule and local < whole else style
        shares.append(ModuleShare(pattern, style, total, rank))
    return shares


def _warnings(checkpoint: Checkpoint, outline: Outline, device: Device, how: Loading, fit: Fit) -> list[str]:
    """Sentences on what could go wrong, from what is known of the model without running it."""
    found = []
    kinds = set(outline.layer_types)
    hard = {"windowed": bool(kinds & _WINDOWED), "recurrent": bool(kinds & _RECURRENT) or not outline.cache}
    if not outline.compiled:
        found.append(f"Models of type {outline.model_type} are never compiled by generate(): the run would not prove compilation.")
    if not outline.static_cache:
        found.append(f"{outline.library} does not say that {outline.class_name} can be compiled with a static cache.")
    found += [sentence for kind, sentence in device.hard_layers if hard[kind]]
    if fit.override_why:
        found.append(f"Attention is computed whole on every core, because its {fit.override_why}: its cache is not shared out.")
    if fit.cores > 1 and fit.rank_bytes.replicated * 4 > fit.rank_bytes.weights:
        found.append(f"{fit.rank_bytes.replicated / GB:.1f} GB of weights lie whole on every core: more cores do not shrink them.")
    return found + _mismatch(checkpoint, outline, how)


def _mismatch(checkpoint: Checkpoint, outline: Outline, how: Loading) -> list[str]:
    """What the stored tensors say against the outline; quantised ones are packed and cannot be compared."""
    stored = sum(checkpoint.stored.values())
    if not stored or how.method:
        return []
    extra = {name: count for name, count in outline.unloaded.items() if count}
    for names in ((), *((name,) for name in extra), tuple(extra)):
        more = sum(extra[name] for name in names)
        if abs(stored - outline.elements - more) <= _MISMATCH * stored:
            what = " and ".join(names)
            return [f"The checkpoint also stores {what} ({more / 1e9:.2f} billion parameters), which is not loaded."] if names else []
    counts = f"{stored / 1e9:.2f} billion parameters, but {outline.class_name} has {outline.elements / 1e9:.2f} billion"
    return [f"The checkpoint stores {counts}: some may be missing or unused."]

"""Cores, parallelism and bytes per rank of a model on a device, or why it is not run; pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from doesitrun.errors import UsageError
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.outcomes import Reason
from doesitrun.plan.outlines import Outline, Problem
from doesitrun.plan.quantization import Loading, loading
from doesitrun.plan.sharding import Layout, attention_override, cache_bytes, rank_bytes, undivided, weights_bytes
from doesitrun.records import Device, Dtype, Plan, RankBytes, Refusal, Task

GB = 10**9
PROMPT_TOKENS = {"text-generation": 64, "image-text-to-text": 2048}
"""Tokens that a prompt may take in the static cache: a picture is many."""


@dataclass(frozen=True)
class PlanOptions:
    """What the user may ask for."""

    cores: int | None = None
    """None: the fewest that hold the model."""
    dtype: Dtype = Dtype.BFLOAT16
    new_tokens: int = 32
    prompt: str | None = None
    """None: the task's own."""
    prompt_tokens: int | None = None
    """Length assumed for the prompt; None: the task's."""
    host_memory_bytes: int = 0
    """For devices whose cores share the host's memory; 0: not known, so nothing is too large."""
    attention_override: bool = True
    """False refuses heads that do not divide, instead of computing attention whole on every rank."""
    trust_remote_code: bool = False
    thorough: bool = False
    """True asks for the probes, too."""


@dataclass(frozen=True)
class Fit:
    """One legal number of cores: how the model would lie on it, and whether it holds."""

    cores: int
    tp: int
    ep: int
    rank_bytes: RankBytes
    capacity_bytes: int
    """What one core offers to weights and cache; 0 when it is not known."""
    holds: bool
    reason: Reason | None = None
    why: str = ""
    """Why not, as a sentence; empty if it holds."""
    override: dict[str, str] = field(default_factory=dict)
    override_why: str = ""


def make_plan(checkpoint: Checkpoint, outline: Outline | Problem, device: Device, task: Task, options: PlanOptions) -> Plan | Refusal:
    """The plan of a model on a device, on the fewest cores that hold it or on those asked for, or why there is none.

    Raises UsageError for a number of cores that the device does not have.
    """
    check_cores(device, options)
    if isinstance(outline, Problem):
        return _refusal(checkpoint, task, outline.reason, f"{_sentence(outline.detail)}")
    how = loading(checkpoint.quantization, checkpoint.stored, device, outline)
    total = weights_bytes(outline, how)
    if how.refusal:
        return _refusal(checkpoint, task, Reason.QUANTIZATION, how.refusal, total)
    tried = fits(checkpoint, outline, device, task, options)
    fit = next((fit for fit in tried if fit.holds), None)
    if fit is None:
        return _refusal(checkpoint, task, *_why_none(tried, outline, device, total), total)
    return Plan(
        model_id=checkpoint.model_id,
        revision=checkpoint.revision,
        source=checkpoint.source,
        task=task.name,
        target=device.target,
        device=device.name,
        cores=fit.cores,
        tp=fit.tp,
        ep=fit.ep,
        dtype=options.dtype,
        new_tokens=options.new_tokens,
        weights_bytes=total,
        rank_bytes=fit.rank_bytes,
        capacity_bytes=fit.capacity_bytes,
        prompt=options.prompt or task.prompt,
        is_moe=outline.experts > 0,
        trust_remote_code=options.trust_remote_code and checkpoint.remote_code,
        gated=checkpoint.gated,
        tp_override=fit.override or None,
        notes=_notes(checkpoint, how, fit, options),
        longest=_longest(outline, fit, options) if options.thorough else 0,
    )


LONGEST = 8192 + 256
"""Most tokens of a probe: just beyond the length that most models' positions were first made for."""


def _longest(outline: Outline, fit: Fit, options: PlanOptions) -> int:
    """Tokens that the cache of the fullest core may hold beside the weights, at most `LONGEST`."""
    itemsize = 4 if options.dtype is Dtype.FLOAT32 else 2
    layout = Layout(fit.cores, fit.tp, fit.ep, fit.override)
    room = fit.capacity_bytes - fit.rank_bytes.weights
    sizes = range(max(LONGEST, options.new_tokens + 1), options.new_tokens, -256)
    # Half of the room: a long prompt's activations need some, too.
    return next((size for size in sizes if not fit.capacity_bytes or cache_bytes(outline, layout, size, itemsize) <= room / 2), sizes[-1])


def check_cores(device: Device, options: PlanOptions) -> None:
    """Raises UsageError when the device cannot run one model on that many cores."""
    if options.cores is not None and options.cores not in device.sizes:
        message = f"{device.name} runs a model on {_either(device.sizes)} cores, not on {options.cores}: pass --cores with one of them."
        raise UsageError(message)


def fits(checkpoint: Checkpoint, outline: Outline, device: Device, task: Task, options: PlanOptions) -> list[Fit]:
    """Every legal number of cores, or the one asked for, with what would lie on its fullest rank."""
    how = loading(checkpoint.quantization, checkpoint.stored, device, outline)
    sizes = device.sizes if options.cores is None else (options.cores,)
    return [_fit(outline, how, device, task, options, cores) for cores in sizes]


def capacity(device: Device, cores: int, options: PlanOptions) -> int:
    """Bytes that one core offers to weights and cache: its memory less the headroom; 0 when it is not known."""
    memory = device.core_bytes or options.host_memory_bytes // cores
    return int(memory * (1 - device.headroom))


def _fit(outline: Outline, how: Loading, device: Device, task: Task, options: PlanOptions, cores: int) -> Fit:
    layout, override_why, reason, why = _layout(outline, cores, options)
    tokens = options.new_tokens + (options.prompt_tokens or PROMPT_TOKENS.get(task.name, 64))
    itemsize = 4 if options.dtype is Dtype.FLOAT32 else 2
    found = rank_bytes(outline, layout, how, tokens, itemsize)
    offered = capacity(device, cores, options)
    if reason is None and offered and found.total > offered:
        reason, why = Reason.TOO_LARGE, f"{_gb(found.total)} on the fullest core, which offers {_gb(offered)}."
    return Fit(cores, layout.tp, layout.ep, found, offered, reason is None, reason, why, dict(layout.override), override_why)


def _layout(outline: Outline, cores: int, options: PlanOptions) -> tuple[Layout, str, Reason | None, str]:
    """(layout on so many cores, why attention is overridden, why it cannot be run so, the sentence)."""
    if cores == 1:
        return Layout(1), "", None, ""
    ep = cores if outline.ep_plan and outline.experts and outline.experts % cores == 0 else 1
    if not outline.tp_plan:
        return _experts_only(outline, cores, ep)
    uneven = undivided(outline, cores)
    if not uneven:
        return Layout(cores, cores, ep), "", None, ""
    rules = attention_override(uneven) if options.attention_override else None
    heads = " and ".join(sorted({f"{kind.heads} query and {kind.kv_heads} key/value heads" for kind in uneven}))
    if rules is None:
        why = f"Its {heads} do not divide by {cores}; {_either(dividing(outline, cores)) or 'no number above 1'} would work."
        return Layout(cores, cores, ep), "", Reason.HEADS_NOT_DIVISIBLE, why
    return Layout(cores, cores, ep, rules), f"{heads} do not divide by {cores}", None, ""


def _experts_only(outline: Outline, cores: int, ep: int) -> tuple[Layout, str, Reason | None, str]:
    if ep > 1 and outline.head:
        # transformers refuses ep_size without any tensor-parallel rule. One rule for the head does no harm: its output is
        # gathered. A tied head must stay whole, as the embedding does.
        rules = {outline.head: "replicate" if outline.tied else "colwise_gather_output"}
        return Layout(cores, cores, ep, rules), "", None, ""
    what = f"{outline.library} has no tensor-parallel plan for {outline.class_name}"
    if outline.ep_plan:
        what += f", and its {outline.experts} experts do not divide by {cores}"
    return Layout(cores), "", Reason.NO_PARALLEL_PLAN, f"{what}."


def dividing(outline: Outline, most: int) -> list[int]:
    """Numbers of cores above 1 that divide the heads of every attention module which the plan shares out."""
    return [cores for cores in range(2, most + 1) if not undivided(outline, cores)]


def _why_none(tried: list[Fit], outline: Outline, device: Device, total: int) -> tuple[Reason, str]:
    """The reason that stands for all sizes, and the sentence with its numbers."""
    last = tried[-1]
    needs = f"Its weights are {_gb(total)} once loaded"
    where = f"{last.cores} cores of {device.name} offer {_gb(last.capacity_bytes)} each"
    if last.capacity_bytes and total > last.capacity_bytes * last.cores:
        return Reason.TOO_LARGE, f"{needs}; {where}."
    blocked = next((fit for fit in tried if fit.reason not in (None, Reason.TOO_LARGE)), None)
    if blocked is not None and blocked.reason is not None:
        return blocked.reason, f"{needs}, too much for one core; {blocked.why[0].lower()}{blocked.why[1:]}" if len(
            tried
        ) > 1 else blocked.why
    if last.cores == 1:
        return (
            Reason.TOO_LARGE,
            f"{needs}, with a cache of {_gb(last.rank_bytes.kv_cache)}; one core of {device.name} offers {_gb(last.capacity_bytes)}.",
        )
    kept = last.rank_bytes.replicated
    if kept > last.rank_bytes.weights // 2:
        what = f"the parallel plan of {outline.class_name} in {outline.library} leaves {_gb(kept)} whole on every core"
        return Reason.NO_PARALLEL_PLAN, f"{needs}; {what}, and {where}."
    return Reason.TOO_LARGE, f"{needs}; on {last.cores} cores the fullest would hold {_gb(last.rank_bytes.total)}, and {where}."


def _notes(checkpoint: Checkpoint, how: Loading, fit: Fit, options: PlanOptions) -> tuple[str, ...]:
    notes = []
    if fit.override_why:
        notes.append(f"plan_override: attention is computed whole on every core, because its {fit.override_why}")
    elif fit.override:
        notes.append("plan_override: experts alone are shared out, because there is no tensor-parallel plan")
    if how.method and not how.kept:
        notes.append(f"weights stored as {how.method} are loaded as {options.dtype.value}")
    elif how.kept:
        notes.append(f"weights stay in {how.method}, which needs the kernels package in the stack")
    if options.trust_remote_code and checkpoint.remote_code:
        notes.append("runs code from the model's own repository")
    return tuple(notes)


def _refusal(checkpoint: Checkpoint, task: Task, reason: Reason, detail: str, total: int = 0) -> Refusal:
    return Refusal(checkpoint.model_id, checkpoint.revision, reason, detail, task.name, total)


def _sentence(text: str) -> str:
    start = text[:1].upper() + text[1:]
    return start if start.endswith((".", "...")) else f"{start}."


def _gb(count: int) -> str:
    return f"{count / GB:.1f} GB" if count >= GB / 10 else f"{count / 10**6:.1f} MB"


def _either(numbers: tuple[int, ...] | list[int]) -> str:
    if len(numbers) > 4 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    words = [str(number) for number in numbers]
    return " or ".join(([", ".join(words[:-1])] if len(words) > 1 else []) + words[-1:])

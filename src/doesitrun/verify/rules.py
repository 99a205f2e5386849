"""The rules of a verdict, and the table that orders them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from doesitrun.outcomes import Reason
from doesitrun.records import Dtype, Plan
from doesitrun.verify.evidence import DeviceRun, Reference
from doesitrun.verify.fluency import Fluency
from doesitrun.verify.ratio import Numbers, compare, is_finite, leading_matches
from doesitrun.verify.thresholds import THRESHOLDS

Rung = Literal["reference", "executed", "numbers", "fluent", "second_prompt", "padded_batch", "long_position", "long_text"]


@dataclass(frozen=True)
class Case:
    """All that a rule may look at. `reference` and `fluency` are None where there is none."""

    plan: Plan
    run: DeviceRun
    reference: Reference | None
    fluency: Fluency | None

    @property
    def is_sharded(self) -> bool:
        return self.plan.cores > 1

    @property
    def ratio_limit(self) -> float:
        return THRESHOLDS.ratio_float32 if self.plan.dtype is Dtype.FLOAT32 else THRESHOLDS.ratio

    @property
    def expert_limit(self) -> float:
        return THRESHOLDS.expert * self.ratio_limit / THRESHOLDS.ratio

    @cached_property
    def numbers(self) -> Numbers | None:
        """None without a reference, or where either side is not finite."""
        if self.reference is None or not is_finite((*device_logits(self), *reference_logits(self))):
            return None
        return compare(self.run, self.reference, self.plan.dtype)

    @property
    def match(self) -> str:
        return f"{self.numbers.match_tokens}/{len(self.run.tokens)}" if self.numbers else ""


def device_logits(case: Case) -> Iterator[Sequence[float]]:
    """The device's logits, position by position."""
    return (row for text in case.run.texts for row in text.top_logits)


def reference_logits(case: Case) -> Iterator[Sequence[float]]:
    """The CPU's logits of all its runs, position by position."""
    texts = case.reference.texts if case.reference else ()
    return (row for text in texts for run in (text.fp32, *text.low) for row in run)


Finding = tuple[Reason, str]
Rule = Callable[[Case], Finding | None]


def names_of(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def whole_checkpoint(case: Case) -> Finding | None:
    """No tensor is missing or of another shape, in the reference or on the device."""
    reference = case.reference
    missing = (*(reference.missing_keys if reference else ()), *case.run.missing_keys)
    if missing:
        return Reason.MISSING_WEIGHTS, f"The checkpoint lacks tensors that the model needs: {names_of(sorted(set(missing)))}."
    if reference and reference.mismatched_keys:
        names = names_of(reference.mismatched_keys)
        return (
            Reason.BROKEN_CHECKPOINT,
            f"Tensors of the checkpoint have another shape than the model: {names}.",
        )
    return None


def same_weights_twice(case: Case) -> Finding | None:
    """Two loads of the checkpoint gave the same weights. It is loaded twice only where something about it is suspicious."""
    if case.reference is None or len(set(case.reference.weights_digests)) <= 1:
        return None
    return Reason.REFERENCE_BROKEN, "Two loads of the checkpoint gave different weights: some of them are drawn at random."


def speaks_english(case: Case) -> Finding | None:
    """The CPU's loss on the passage is far below that of guessing."""
    if case.reference is None:
        return None
    loss, guess = case.reference.passage_loss, math.log(max(case.reference.vocab_size, 2))
    limit = THRESHOLDS.passage_loss * guess
    if loss is not None and loss <= limit:
        return None
    said = "could not be computed" if loss is None else f"is {loss:.2f} nats per token (limit {limit:.2f}; guessing gives {guess:.2f})"
    return Reason.REFERENCE_BROKEN, f"On the CPU its loss on plain English {said}."


def same_prompt(case: Case) -> Finding | None:
    """Both sides were given the same ids, so their logits may be compared."""
    if case.reference is None or case.reference.prompt_ids == case.run.prompt_ids:
        return None
    counts = f"{len(case.run.prompt_ids)} ids on the device, {len(case.reference.prompt_ids)} on the CPU"
    return Reason.REFERENCE_FAILED, f"The prompt was tokenised in two ways: {counts}."


def finite_yardstick(case: Case) -> Finding | None:
    """The CPU's own logits are finite in both dtypes."""
    if case.reference is None or not is_finite(device_logits(case)) or is_finite(reference_logits(case)):
        return None
    if not all(is_finite(text.fp32) for text in case.reference.texts):
        return Reason.REFERENCE_BROKEN, "On the CPU it computes NaN or infinity in float32."
    return Reason.REFERENCE_FAILED, f"On the CPU it computes NaN or infinity in {case.plan.dtype}: there is no yardstick in this dtype."


def compiled(case: Case) -> Finding | None:
    """Compiled graphs ran on every rank."""
    if not case.run.compiled or case.run.graphs < 1:
        return Reason.NOT_COMPILED, "No compiled graph ran."
    idle = [str(rank.rank) for rank in case.run.ranks if rank.graphs < 1]
    return (Reason.NOT_COMPILED, f"No compiled graph ran on rank {', '.join(idle)}.") if idle else None


def no_fallback(case: Case) -> Finding | None:
    """Nothing fell back to another device or to eager mode."""
    return (Reason.EAGER_FALLBACK, f"Fell back: {names_of(case.run.fallbacks)}.") if case.run.fallbacks else None


def held_its_weights(case: Case) -> Finding | None:
    """The device's memory held the weights. A peak of 0 means that the target cannot tell."""
    fullest = max(case.run.ranks, key=lambda rank: rank.peak_bytes)
    for rank in case.run.ranks:
        # What is planned is planned for the fullest rank; the others may hold less.
        needed = case.plan.rank_bytes.weights if rank is fullest else rank.weights_bytes
        if 0 < rank.peak_bytes < THRESHOLDS.held * needed:
            held = f"held at most {_gb(rank.peak_bytes)} GB for weights of {_gb(needed)} GB"
            return Reason.EAGER_FALLBACK, f"Rank {rank.rank} {held}: it ran elsewhere."
    return None


def sharded_as_planned(case: Case) -> Finding | None:
    """No rank holds more of the weights than the plan gives it."""
    planned = case.plan.rank_bytes.weights
    fullest = max(case.run.ranks, key=lambda rank: rank.weights_bytes)
    if not case.is_sharded or fullest.weights_bytes <= THRESHOLDS.weights * planned:
        return None
    return Reason.REPLICATED, f"Rank {fullest.rank} holds {_gb(fullest.weights_bytes)} GB of weights where the plan has {_gb(planned)} GB."


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g}"


def finite_logits(case: Case) -> Finding | None:
    """No NaN and no infinity."""
    for step, logits in enumerate(case.run.top_logits):
        if not is_finite((logits,)):
            return Reason.NAN_LOGITS, f"The logits of token {step + 1} of {len(case.run.tokens)} hold NaN or infinity."
    if not is_finite(device_logits(case)):
        return Reason.NAN_LOGITS, "The logits of a passage that it was given hold NaN or infinity."
    return None


def greedy(case: Case) -> Finding | None:
    """Each token is the best of its own logits that was allowed. Ties may go either way."""
    for step, (token, ids, logits) in enumerate(zip(case.run.tokens, case.run.top_ids, case.run.top_logits, strict=True)):
        allowed = {key: logit for key, logit in zip(ids, logits, strict=True) if key not in case.run.eos_ids}
        if allowed.get(token, math.nan) != max(allowed.values()):
            return Reason.WRONG_NUMBERS, f"Token {step + 1} of {len(case.run.tokens)} is not the best one of its own logits."
    return None


def repeatable(case: Case) -> Finding | None:
    """The second pass gave the tokens of the first."""
    same = leading_matches(case.run.warm_tokens, case.run.tokens)
    if same == len(case.run.tokens):
        return None
    return Reason.UNSTABLE_TOKENS, f"The second pass gave another token than the first at {same + 1} of {len(case.run.tokens)}."


def ranks_agree(case: Case) -> Finding | None:
    """All ranks generated the same tokens."""
    odd = [str(rank.rank) for rank in case.run.ranks if rank.tokens != case.run.tokens]
    return (Reason.RANKS_DISAGREE, f"Rank {', '.join(odd)} generated other tokens than the result has.") if odd else None


def right_numbers(case: Case) -> Finding | None:
    """R is within its limit."""
    if case.numbers is None or case.numbers.ratio <= case.ratio_limit:
        return None
    figures = f"R = {case.numbers.ratio:.3g} (limit {case.ratio_limit})"
    return Reason.WRONG_NUMBERS, f"{figures}; {case.match} tokens equal the CPU's."


def right_experts(case: Case) -> Finding | None:
    """The positions that visit an expert are no further off than the others, whichever expert it is."""
    worst = case.numbers.worst if case.numbers else None
    if worst is None or worst.ratio <= case.expert_limit:
        return None
    where = f"the {worst.visits} positions that visit expert {worst.number} of the {_ordinal(worst.layer + 1)} layer with experts"
    return Reason.WRONG_NUMBERS, f"R = {worst.ratio:.3g} (limit {case.expert_limit:.3g}) over {where}."


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def reads_well(case: Case) -> Finding | None:
    """The text is fluent. Where right numbers vouch for it, the CPU would have said the same: no finding."""
    if case.fluency is None or case.fluency.fluent or case.numbers is not None:
        return None
    return Reason.NOT_FLUENT, f"The text is {case.fluency.english}."


RULES: tuple[tuple[Rung, Rule], ...] = (
    ("reference", whole_checkpoint),
    ("reference", same_weights_twice),
    ("reference", speaks_english),
    ("reference", same_prompt),
    ("executed", compiled),
    ("executed", no_fallback),
    ("executed", held_its_weights),
    ("executed", sharded_as_planned),
    ("executed", finite_logits),
    ("executed", repeatable),
    ("executed", ranks_agree),
    ("executed", greedy),
    ("numbers", finite_yardstick),
    ("numbers", right_numbers),
    ("numbers", right_experts),
    ("fluent", reads_well),
)
"""In the order in which they give the outcome: what is upstream's fault first, then what makes numbers meaningless."""

NUMBERS_ALONE: tuple[Rule, ...] = (finite_logits, ranks_agree, greedy, same_prompt, finite_yardstick, right_numbers)
"""For the layout oracle, which is eager, and whose checkpoint the run's own verdict has looked at."""

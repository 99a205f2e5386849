"""The ratio R: how far the device's logits are off, in units of the dtype's own rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from doesitrun.records import Dtype
from doesitrun.verify.evidence import DeviceRun, Reference
from doesitrun.verify.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Expert:
    """An expert of a mixture, and how far off the positions are that visit it."""

    layer: int
    """Place among the layers that have experts, from 0."""
    number: int
    visits: int
    ratio: float
    """R of those positions, in units of the run's typical one."""


@dataclass(frozen=True)
class Numbers:
    """How far the device's logits are off, in units of the dtype's own rounding."""

    ratio: float
    """R: mean over positions."""
    ratio_median: float
    match_tokens: int
    """Leading tokens equal to the CPU's greedy choice."""
    positions: int
    worst: Expert | None = None
    """The expert whose positions are off most; None without experts, or where none is visited often enough."""
    judged: int = 0
    """Experts that enough positions visit for a fault of theirs to be told from noise."""
    experts: int = 0
    """Experts in all layers together."""


def centred(values: Sequence[float]) -> list[float]:
    """The values less their mean: a common shift of all logits changes no probability."""
    mean = fmean(values)
    return [value - mean for value in values]


def rms(values: Iterable[float]) -> float:
    """Root of the mean square."""
    return math.sqrt(fmean(value * value for value in values))


UNIT_ROUNDOFF = {Dtype.BFLOAT16: 2.0**-8, Dtype.FLOAT16: 2.0**-11}


def position_ratio(device: Sequence[float], wide: Sequence[float], narrow: Sequence[Sequence[float]], roundoff: float) -> float:
    """R of one position: rms(device - fp32) / rms(low - fp32) of the mean-centred logits, over all runs in low precision.

    The denominator is at least what rounding the logits themselves once makes: by chance, or for a toy
    model, low precision may come out exact, and a right device must not be divided by zero then. A
    rounding error is spread evenly over +-roundoff x value, which has an rms of 1/sqrt(3) of that.
    """
    exact = centred(wide)
    error = rms(a - b for a, b in zip(centred(device), exact, strict=True))
    noise = rms(a - b for run in narrow for a, b in zip(centred(run), exact, strict=True))
    noise = max(noise, roundoff * rms(exact) / math.sqrt(3))
    if noise == 0:
        return 0.0 if error == 0 else math.inf
    return error / noise


def leading_matches(tokens: Sequence[int], choices: Sequence[int]) -> int:
    """How many tokens from the start are the CPU's choices.

    The CPU was given the device's tokens. Up to the first difference those are its own too, so this is
    exactly what a CPU run that generates freely would have in common with the device.
    """
    return next((index for index, (token, choice) in enumerate(zip(tokens, choices, strict=True)) if token != choice), len(tokens))


def compare(run: DeviceRun, reference: Reference, dtype: Dtype) -> Numbers:
    """The device's numbers against the reference's. All of them must be finite."""
    roundoff = UNIT_ROUNDOFF.get(dtype, UNIT_ROUNDOFF[Dtype.BFLOAT16])
    ratios = [
        position_ratio(device, wide, narrow, roundoff)
        for text, expected in zip(run.texts, reference.texts, strict=True)
        for device, wide, *narrow in zip(text.top_logits, expected.fp32, *expected.low, strict=True)
    ]
    choices = reference.fp32_argmax if dtype is Dtype.FLOAT32 else reference.low_argmax
    found = experts(reference, ratios)
    # A router that rounding tips over makes single positions wild in right runs, too: none may outweigh the others.
    mean = fmean(min(ratio, THRESHOLDS.most_of_a_position) for ratio in ratios) if reference.experts else fmean(ratios)
    return Numbers(
        ratio=mean,
        ratio_median=median(ratios),
        match_tokens=leading_matches(run.tokens, choices),
        positions=len(ratios),
        worst=max(found, key=lambda expert: expert.ratio, default=None),
        judged=len(found),
        experts=sum(reference.experts),
    )


def experts(reference: Reference, ratios: Sequence[float]) -> list[Expert]:
    """The experts that enough positions visit, with the ratio of those positions. `ratios` are those of all texts, in order."""
    visitors: dict[tuple[int, int], list[float]] = {}
    for layer in range(len(reference.texts[0].visits)):
        positions = (visited for text in reference.texts for visited in text.visits[layer])
        for ratio, visited in zip(ratios, positions, strict=True):
            for number in visited:
                visitors.setdefault((layer, number), []).append(ratio)
    typical = max(1.0, median(ratios))
    enough = {place: sorted(own) for place, own in visitors.items() if len(own) >= THRESHOLDS.visits}
    return [Expert(*place, len(own), middle(own) / typical) for place, own in enough.items()]


def middle(ratios: Sequence[float]) -> float:
    """The median of ascending ratios, the lower one; of a few, their lower quartile: a single wild position is no fault."""
    return ratios[(len(ratios) - 1) // (2 if len(ratios) >= THRESHOLDS.many_visits else 4)]


LARGEST_FLOAT32 = 3.4028235e38


def is_finite(rows: Iterable[Iterable[float]]) -> bool:
    """True without NaN and without what float32 cannot hold."""
    return all(abs(value) <= LARGEST_FLOAT32 for row in rows for value in row)

"""The ratio R: how far the device's logits are off, in units of the dtype's own rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from doesitrun.records import Dtype
from doesitrun.verify.evidence import DeviceRun, Reference


@dataclass(frozen=True)
class Numbers:
    """How far the device's logits are off, in units of the dtype's own rounding."""

    ratio: float
    """R: mean over positions."""
    ratio_median: float
    match_tokens: int
    """Leading tokens equal to the CPU's greedy choice."""


def centred(values: Sequence[float]) -> list[float]:
    """The values less their mean: a common shift of all logits changes no probability."""
    mean = fmean(values)
    return [value - mean for value in values]


def rms(values: Iterable[float]) -> float:
    """Root of the mean square."""
    return math.sqrt(fmean(value * value for value in values))


UNIT_ROUNDOFF = {Dtype.BFLOAT16: 2.0**-8, Dtype.FLOAT16: 2.0**-11}


def position_ratio(device: Sequence[float], wide: Sequence[float], narrow: Sequence[float], roundoff: float) -> float:
    """R of one position: rms(device - fp32) / rms(low - fp32) of the mean-centred logits.

    The denominator is at least what rounding the logits themselves once makes: by chance, or for a toy
    model, low precision may come out exact, and a right device must not be divided by zero then. A
    rounding error is spread evenly over +-roundoff x value, which has an rms of 1/sqrt(3) of that.
    """
    exact = centred(wide)
    error = rms(a - b for a, b in zip(centred(device), exact, strict=True))
    noise = rms(a - b for a, b in zip(centred(narrow), exact, strict=True))
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
    steps = zip(run.top_logits, reference.fp32, reference.low, strict=True)
    ratios = [position_ratio(device, wide, narrow, roundoff) for device, wide, narrow in steps]
    choices = reference.fp32_argmax if dtype is Dtype.FLOAT32 else reference.low_argmax
    return Numbers(fmean(ratios), median(ratios), leading_matches(run.tokens, choices))


LARGEST_FLOAT32 = 3.4028235e38


def is_finite(rows: Iterable[Iterable[float]]) -> bool:
    """True without NaN and without what float32 cannot hold."""
    return all(abs(value) <= LARGEST_FLOAT32 for row in rows for value in row)

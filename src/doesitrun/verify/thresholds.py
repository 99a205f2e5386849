"""Every number that a verdict depends on."""

from __future__ import annotations

from dataclasses import dataclass

from doesitrun.records import VERDICT_VERSION


@dataclass(frozen=True)
class Thresholds:
    """Every number that a verdict depends on. A change is a new `VERDICT_VERSION` and a line in the changelog."""

    version: int = VERDICT_VERSION
    ratio: float = 1.5
    """Largest R of a right run whose dtype is the yardstick's."""
    ratio_float32: float = 0.25
    """Largest R of a float32 run, whose yardstick is bfloat16.

    TF32, the coarsest arithmetic that counts as float32, rounds 8 times finer than bfloat16 (10 explicit
    bits of mantissa against 7): R = 0.125 for a right run, and twice that is allowed.
    """
    passage_loss: float = 0.6
    """Largest loss on the passage, as a share of ln(vocabulary)."""
    weights: float = 1.05
    """Largest weights of a rank, as a multiple of the planned ones."""
    held: float = 0.9
    """Smallest peak memory of a rank, as a share of its own weights."""
    nll: float = 4.0
    """Largest mean negative log-likelihood of fluent text under the judge, nats per token."""
    repeated: float = 0.5
    """Largest share of words that lie in a run of four words seen before."""
    latin: float = 0.8
    """Smallest share of Latin letters among the letters of English text."""


THRESHOLDS = Thresholds()

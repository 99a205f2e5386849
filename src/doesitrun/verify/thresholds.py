"""Every number that a verdict depends on."""

from __future__ import annotations

from dataclasses import dataclass

from doesitrun.records import VERDICT_VERSION


@dataclass(frozen=True)
class Thresholds:
    """Every number that a verdict depends on. A change is a new `VERDICT_VERSION` and a line in the changelog."""

    version: int = VERDICT_VERSION
    ratio: float = 1.5
    """Largest R of a right run whose dtype is the yardstick's.

    Measured on SmolLM2-135M in bfloat16, 32 positions. Right runs: without a cache 0.99, with a cache 1.03,
    eager attention 1.03. Faults: int8-rounded weights 2.5, GELU for SiLU in one of 30 layers 3.9 (all 32
    tokens equal the CPU's), fp8-rounded weights 5.0, one zeroed head 6.4, wrong rope base 8.9, two swapped
    layers 10, a zeroed output projection 11, norm epsilon of 1e-2 for 1e-5 15. An epsilon of 1e-3 is
    at the limit (1.6), one of 1e-6 changes nothing (1.00). Eight of those nine texts read as fluent.
    """
    most_of_a_position: float = 3.0
    """What a single position of a mixture of experts adds to R at most.

    bfloat16 tips routers over at near ties, after which a position of a right run is off by up to 40 times the noise.
    Measured on four mixtures, 256 positions, ten right runs each: R without this bound 0.84-1.51, with it 0.82-1.21.
    """
    expert: float = 2.0
    """Largest R of the positions that visit one expert, in units of the run's typical position, of a bfloat16 run.

    Measured on four mixtures with 16 right runs each: with trained weights at most 1.7; with random ones, of whose
    positions rounding tips almost half, at most 1.7 as well. A zeroed expert: 1.9-16, the smaller ones where its whole
    effect is about the noise.
    """
    visits: int = 4
    """Fewest positions that an expert is judged by. Of fewer, all may be wild in a right run (measured: up to 13)."""
    many_visits: int = 16
    """From so many visits on the median is taken; below, the lower quartile. The median of 8 to 13 positions of a right
    run with random weights was up to 2.3, their lower quartile up to 1.6."""
    ratio_float32: float = 0.25
    """Largest R of a float32 run, whose yardstick is bfloat16.

    TF32, the coarsest arithmetic that counts as float32, rounds 8 times finer than bfloat16 (10 explicit
    bits of mantissa against 7): R = 0.125 for a right run, and twice that is allowed.
    """
    passage_loss: float = 0.6
    """Largest loss on the passage, as a share of ln(vocabulary).

    Meant for weights that are not there at all, so that small, old and foreign models are let through.
    Measured on SmolLM2-135M, as a share: the checkpoint itself 0.34, without its last layer 0.49, without
    five of its 30 layers 0.55, without ten 0.61; random head 1.01, random embedding 1.04, all weights
    random 1.02, without its first layer 1.16, layers shuffled 1.61. A fault of one layer cannot be seen
    here (a layer of random weights 0.35), nor need it be: the device has the same checkpoint.
    """
    weights: float = 1.05
    """Largest weights of a rank, as a multiple of the planned ones."""
    held: float = 0.9
    """Smallest peak memory of the fullest rank, as a share of the planned weights, and of any rank, as a share of its own."""
    nll: float = 5.2
    """Largest mean negative log-likelihood of fluent text under the judge, nats per token.

    With SmolLM2-135M as the judge, texts of about 32 tokens without a prompt: prose by people 2.3-5.1, near-fluent
    nonsense 5.0-7.9, shuffled and random words 5.9-10.4. What language models write greedily after a prompt has 0.6-1.2.
    Code and echoes are likely to a judge (0.5-4), so they are known by the limits below. Set on one half of
    `bench/data/judge_texts.toml`; `make bench-judge` measures the other.
    """
    repeated: float = 0.5
    """Largest share of words that lie in a run of four words seen before."""
    latin: float = 0.8
    """Smallest share of Latin letters among the letters of English text."""
    echoed: float = 0.4
    """Largest share of characters that lie in a piece said four times or more in a row."""
    odd: float = 0.15
    """Largest share of what stands between spaces that is no word, number or abbreviation."""
    function_least: float = 0.2
    function_most: float = 0.75
    """Smallest and largest share of words that carry grammar alone, of 12 words or more."""
    commonest: float = 0.2
    """Largest share of the commonest word that means something, of 12 words or more."""
    probe: float = 1.5
    """Largest R of a probe, as a multiple of the largest R of a run.

    A probe looks for what makes R large (another prompt's cache 20-43, padding that is seen 28-109; right runs 0.97-1.05)
    at 32 positions only, where R wanders further. No more than 2: a position of a mixture of experts adds 3 at most.
    """
    stuck: float = 0.75
    """Largest share of runs of four words seen before in the long text. Greedy text of a small model repeats itself sooner
    or later; one that is stuck from the start has more than 0.9."""


THRESHOLDS = Thresholds()

"""Whether a text is fluent English: the judge's figure, and what can be seen on the text's face."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from doesitrun.verify.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Fluency:
    """The word on a text."""

    fluent: bool
    english: str
    """For people: "fluent (2.31 nats)", "not fluent: repeats itself"."""
    nll: float | None


WORD = re.compile(r"\w+(?:['\u2019]\w+)?")
RUN_OF_WORDS = 4


def repeated_share(words: Sequence[str]) -> float:
    """Share of the runs of four words that were there before; 0 for texts shorter than that."""
    runs = [tuple(words[start : start + RUN_OF_WORDS]) for start in range(len(words) - RUN_OF_WORDS + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def latin_share(text: str) -> float:
    """Share of Latin letters (with accents) among the letters; 0 for a text without letters."""
    letters = [char for char in text if char.isalpha()]
    return sum(char < "\u0250" for char in letters) / len(letters) if letters else 0.0


def degenerate(text: str) -> str | None:
    """What is wrong with a text on its face, or None."""
    words = WORD.findall(text.lower())
    if not words:
        return "no words"
    if latin_share(text) < THRESHOLDS.latin:
        return "not in Latin letters"
    most = Counter(words).most_common(1)[0][1]
    if len(words) >= RUN_OF_WORDS and (repeated_share(words) > THRESHOLDS.repeated or most > THRESHOLDS.repeated * len(words)):
        return "repeats itself"
    return None


def fluency(text: str, nll: float | None) -> Fluency:
    """The word on a text, of which the judge's figure is known."""
    wrong = degenerate(text)
    if wrong is None and nll is None:
        wrong = "the judge finds no tokens"
    if wrong is None and nll is not None and not nll <= THRESHOLDS.nll:
        wrong = f"{nll:.2f} nats (limit {THRESHOLDS.nll})"
    return Fluency(wrong is None, f"not fluent: {wrong}" if wrong else f"fluent ({nll:.2f} nats)", nll)


def judge_limits() -> str:
    """The limits that a text has to keep, as a row says them."""
    return f"nll<={THRESHOLDS.nll:g}, repeated<={THRESHOLDS.repeated:g}, latin>={THRESHOLDS.latin:g}"

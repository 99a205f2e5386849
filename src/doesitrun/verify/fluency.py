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


FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those which who whom whose what and or but nor so if than because while though although as at "
        "by for from in into of off on onto out over to up with about after before between under is are was were be been being "
        "am has have had having do does did will would can could shall should may might must not no it its he him his she her "
        "they them their we us our you your i me my there when where then too very more most some any each one",
    )
)
"""Words that carry grammar rather than meaning: English prose has them at about every second place."""
ECHO = re.compile(r"(.{1,12}?)\1{3,}", re.DOTALL)
"""A piece of up to twelve characters, four times or more in a row."""
PLAIN = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|[$\u20ac\u00a3]?\d+(?:[.,:]\d+)*(?:%|st|nd|rd|th|s)?|[^\W\d_](?:\.[^\W\d_])+")
"""What stands between spaces in prose, less its outer punctuation: a word, a number, an abbreviation."""
OUTER = ".,;:!?\"'()[]\u201c\u201d\u2018\u2019\u2026-\u2013\u2014*"
WORD = re.compile(r"\w+(?:['\u2019]\w+)?")
RUN_OF_WORDS = 4
SOME_WORDS = 12
"""Fewer say nothing of the choice of words."""


def repeated_share(words: Sequence[str]) -> float:
    """Share of the runs of four words that were there before; 0 for texts shorter than that."""
    runs = [tuple(words[start : start + RUN_OF_WORDS]) for start in range(len(words) - RUN_OF_WORDS + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def latin_share(text: str) -> float:
    """Share of Latin letters (with accents) among the letters; 0 for a text without letters."""
    letters = [char for char in text if char.isalpha()]
    return sum(char < "\u0250" for char in letters) / len(letters) if letters else 0.0


def echoed_share(text: str) -> float:
    """Share of the characters that lie in an echo: `j4j4j4j4`, `no, no, no, no`. Dots and lines are no echo."""
    return sum(len(match[0]) for match in ECHO.finditer(text) if match[1].strip(OUTER + " \n_=#")) / len(text) if text else 0.0


def odd_share(text: str) -> float:
    """Share of what stands between spaces that is no word, number or abbreviation: identifiers, tags, brackets, addresses."""
    pieces = [piece.strip(OUTER) for piece in re.split(r"[\s\u2013\u2014]+", text)]
    kept = [piece for piece in pieces if piece]
    return sum(PLAIN.fullmatch(piece) is None for piece in kept) / len(kept) if kept else 0.0


def function_share(words: Sequence[str]) -> float:
    """Share of the words that carry grammar alone."""
    return sum(word in FUNCTION_WORDS for word in words) / len(words) if words else 0.0


def commonest_share(words: Sequence[str]) -> float:
    """Share of the commonest word that means something."""
    counts = Counter(word for word in words if word not in FUNCTION_WORDS)
    return counts.most_common(1)[0][1] / len(words) if counts else 0.0


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
    if echoed_share(text) > THRESHOLDS.echoed:
        return "repeats itself"
    if odd_share(text) > THRESHOLDS.odd:
        return "not prose: code, or debris"
    return _odd_words(words) if len(words) >= SOME_WORDS else None


def _odd_words(words: Sequence[str]) -> str | None:
    """What is wrong with the choice of words, which a short text cannot show."""
    if not THRESHOLDS.function_least <= function_share(words) <= THRESHOLDS.function_most:
        return f"{function_share(words):.0%} of its words carry grammar alone"
    return "one word over and over" if commonest_share(words) > THRESHOLDS.commonest else None


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
    words = f"function words {THRESHOLDS.function_least:g} to {THRESHOLDS.function_most:g}, commonest<={THRESHOLDS.commonest:g}"
    text = f"repeated<={THRESHOLDS.repeated:g}, echoed<={THRESHOLDS.echoed:g}, odd<={THRESHOLDS.odd:g}, latin>={THRESHOLDS.latin:g}"
    return f"nll<={THRESHOLDS.nll:g}, {text}, {words}"

"""How well the judge tells fluent English from broken, on texts labelled by hand.

The rules and limits were set by looking at one half of the texts (every second one of a kind, beginning with the
first); the accuracy that counts is that of the other half, and of those texts that were written afterwards to be hard.
The likelihood alone, with the same limit, stands beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import report
from doesitrun import isolate
from doesitrun.stacks import INSTACK
from doesitrun.verify import THRESHOLDS, judge_limits
from doesitrun.verify.fluency import fluency

DATA = Path(__file__).parent / "data" / "judge_texts.toml"
CACHE = Path(__file__).resolve().parent.parent / ".doesitrun" / "tests"
MEANINGS = {
    "fluent": "texts labelled fluent",
    "broken": "texts labelled broken",
    "accuracy_held_out": "share judged rightly in the half that no rule was set by",
    "accuracy_later": "of which those that were written when the rules stood, to be hard",
    "accuracy_set": "the same in the other half",
    "false_broken_held_out": "fluent texts called broken, held out",
    "missed_held_out": "broken texts called fluent, held out",
    "accuracy_likelihood_alone": "held out, by the judge model's likelihood and nothing else",
    "judge_s": "seconds for all texts, loading included",
}


@dataclass(frozen=True)
class Labelled:
    """A text, its label, and whether rules may be set by it."""

    is_fluent: bool
    kind: str
    place: int
    text: str

    @property
    def is_held_out(self) -> bool:
        return self.kind == "later" or self.place % 2 == 1


def labelled() -> list[Labelled]:
    """All texts, in the order of the file."""
    groups = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return [
        Labelled(label == "fluent", kind, place, text)
        for label, kinds in groups.items()
        for kind, texts in kinds.items()
        for place, text in enumerate(texts)
    ]


def accuracy(texts: Sequence[Labelled], nlls: Sequence[float], *, by_likelihood: bool = False) -> tuple[float, list[Labelled]]:
    """The share judged rightly, and the texts judged wrongly."""

    def said(each: Labelled, nll: float) -> bool:
        return nll <= THRESHOLDS.nll if by_likelihood else fluency(each.text, nll).fluent

    wrong = [each for each, nll in zip(texts, nlls, strict=True) if said(each, nll) != each.is_fluent]
    return 1 - len(wrong) / len(texts), wrong


def half(texts: Sequence[Labelled], nlls: Sequence[float], *, held_out: bool) -> tuple[list[Labelled], list[float]]:
    pairs = [(each, nll) for each, nll in zip(texts, nlls, strict=True) if each.is_held_out == held_out]
    return [each for each, _ in pairs], [nll for _, nll in pairs]


def later(texts: Sequence[Labelled], nlls: Sequence[float]) -> tuple[list[Labelled], list[float]]:
    pairs = [(each, nll) for each, nll in zip(texts, nlls, strict=True) if each.kind == "later"]
    return [each for each, _ in pairs], [nll for _, nll in pairs]


def main() -> None:
    checkpoint = CACHE / "checkpoints" / "SmolLM2-135M-Instruct"
    if not checkpoint.exists():
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        isolate.run_script(INSTACK / "demo_checkpoint.py", sys.executable, {"folder": str(checkpoint)}, CACHE / "scripts" / "unpack")
    texts = labelled()
    request = {"model": str(checkpoint), "revision": None, "texts": [{"prompt": "", "text": each.text} for each in texts]}
    with tempfile.TemporaryDirectory() as folder:
        answer = isolate.run_script(INSTACK / "judge.py", sys.executable, request, Path(folder))
    nlls = [float("inf") if nll is None else nll for nll in answer["nll"]]
    others, theirs = half(texts, nlls, held_out=True)
    held_out, wrong = accuracy(others, theirs)
    figures = {
        "fluent": sum(each.is_fluent for each in texts),
        "broken": sum(not each.is_fluent for each in texts),
        "accuracy_held_out": held_out,
        "accuracy_set": accuracy(*half(texts, nlls, held_out=False))[0],
        "false_broken_held_out": sum(each.is_fluent for each in wrong),
        "missed_held_out": sum(not each.is_fluent for each in wrong),
        "accuracy_later": accuracy(*later(texts, nlls))[0],
        "accuracy_likelihood_alone": accuracy(others, theirs, by_likelihood=True)[0],
        "judge_s": sum(answer["seconds"].values()),
        "judge": checkpoint.name,
        "limits": judge_limits(),
        "wrong": [f"{each.kind} {each.place}: {each.text}" for each in accuracy(texts, nlls)[1]],
        "nll": [round(nll, 3) for nll in nlls],
    }
    report.write("judge", figures, MEANINGS)
    print(json.dumps(figures["wrong"], ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()

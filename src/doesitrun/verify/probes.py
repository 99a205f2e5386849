"""Probes: what one short prompt cannot show of a run, each a rung of its own.

`second_prompt`  another, longer prompt in the same process and graph, then the first one again
`padded_batch`   both prompts as a batch, the shorter one padded on the left, against each alone on the CPU
`long_position`  a prompt that leads beyond the sliding window and the length that the positions were made for
`long_text`      256 tokens, and whether they repeat themselves

Each sequence is held to the CPU by the ratio R, as the run itself is; where no host memory holds the model, the judge
reads the texts instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

from doesitrun.explain import explain_log
from doesitrun.outcomes import Reason, Stage
from doesitrun.records import Dtype, Plan
from doesitrun.script import SECOND_PROMPT
from doesitrun.verify.evidence import Expected, MalformedError, Reading, entries, take
from doesitrun.verify.fluency import WORD, fluency, repeated_share
from doesitrun.verify.ratio import UNIT_ROUNDOFF, is_finite, leading_matches, position_ratio
from doesitrun.verify.rules import Case, Finding, Rung
from doesitrun.verify.thresholds import THRESHOLDS

NAMES: tuple[Rung, ...] = ("second_prompt", "padded_batch", "long_position", "long_text")
MOST = 4
"""Sequences of a probe; run.py has at most two."""


@dataclass(frozen=True)
class Continuation:
    """One prompt and what the device said next."""

    read: Reading
    text: str

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.read.tokens


@dataclass(frozen=True)
class Probe:
    """What a probe left: its sequences, or the error that ended it."""

    name: Rung
    sequences: tuple[Continuation, ...] = ()
    error: str | None = None
    wanted: int = 0
    """Tokens that it should have had, prompt and answer together; 0 where any number will do."""


@dataclass(frozen=True)
class Answer:
    """What the CPU says at the positions of a sequence, and the tokens that it would have chosen there."""

    expected: Expected
    choices: tuple[int, ...]


@dataclass(frozen=True)
class Probed:
    """A probe with its word. `is_sure` is False where it could not be tried or compared as it should."""

    probe: Probe
    finding: Finding | None
    said: str
    is_sure: bool = True
    remark: str | None = None


# ---------------------------------------------------------------------------------- reading
def read_probes(plan: Plan, result: Mapping[str, Any]) -> tuple[Probe, ...]:
    """The probes that a result reports; none for a plan that asks for none. Raises MalformedError."""
    if not plan.is_thorough:
        return ()
    found = tuple(_probe(values) for values in entries(result, "probes", dict))
    names = [probe.name for probe in found]
    if len(set(names)) != len(names) or (set(NAMES) - set(names) and not (found and found[-1].error)):
        message = f"of the probes {', '.join(NAMES)} it has {', '.join(names) or 'none'}"
        raise MalformedError(message)
    return found


def _probe(values: Mapping[str, Any]) -> Probe:
    name = take(values, "name", str)
    if name not in NAMES or name not in get_args(Rung):
        message = f"there is no probe {name[:40]!r}"
        raise MalformedError(message)
    if "error" in values:
        return Probe(name, error=take(values, "error", str))
    sequences = tuple(_sequence(each) for each in entries(values, "sequences", dict))
    if not 0 < len(sequences) <= MOST:
        message = f"the probe {name} has {len(sequences)} sequences"
        raise MalformedError(message)
    return Probe(name, sequences, wanted=take(values, "wanted", int) if name == "long_position" else 0)


def _sequence(values: Mapping[str, Any]) -> Continuation:
    return Continuation(Reading.read(values, len(entries(values, "tokens", int))), take(values, "text", str))


def asked_sequences(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What reference.py is asked about the probes of a usable result."""
    found = [sequence for probe in result.get("probes") or () for sequence in probe.get("sequences") or ()]
    return [{name: sequence[name] for name in ("prompt_ids", "tokens", "top_ids")} for sequence in found]


def judged_texts(probe: Probe) -> tuple[str, ...]:
    """The texts of a probe that the judge reads. A long position's is left out: its prompt is too long for a small judge."""
    return () if probe.name == "long_position" else tuple(sequence.text for sequence in probe.sequences)


def judge_texts(plan: Plan, result: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the judge is asked about the probes of a usable result: each text with its prompt."""
    prompts: dict[Rung, tuple[str, ...]] = {"second_prompt": (SECOND_PROMPT, plan.prompt), "padded_batch": (plan.prompt, SECOND_PROMPT)}
    return [
        {"prompt": prompt, "text": text}
        for probe in read_probes(plan, result)
        for prompt, text in zip(prompts.get(probe.name, (plan.prompt,)), judged_texts(probe), strict=False)
    ]


def _answers(probes: Sequence[Probe], reference: Mapping[str, Any], dtype: Dtype) -> list[Answer]:
    """The CPU's side of all sequences, in order. Raises MalformedError."""
    sequences = [sequence for probe in probes for sequence in probe.sequences]
    pairs = zip(sequences, entries(reference, "probes", dict, length=len(sequences)), strict=True)
    name = "fp32_argmax" if dtype is Dtype.FLOAT32 else "low_argmax"
    return [
        Answer(Expected.read(values, sequence.read), entries(values, name, int, length=len(sequence.tokens))) for sequence, values in pairs
    ]


# ---------------------------------------------------------------------------------- judging
def probed(
    case: Case, probes: Sequence[Probe], reference: Mapping[str, Any] | None, nlls: Sequence[float | None] | None
) -> tuple[Probed, ...]:
    """The word on each probe, in the order of `NAMES`. Raises MalformedError for a reference that does not fit.

    `nlls` are the judge's figures for the run's own text and then for those of the probes.
    """
    if not probes:
        return ()
    answers = iter(_answers(probes, reference, case.plan.dtype)) if reference is not None else None
    read = iter(nlls[1:]) if nlls is not None else None
    found = {}
    for probe in probes:
        theirs = [next(answers) for _ in probe.sequences] if answers is not None else None
        own = [next(read) for _ in judged_texts(probe)] if read is not None else None
        found[probe.name] = _word(case, probe, theirs, own)
    left_out = [Probed(Probe(name), None, f"{name} was left out", is_sure=False) for name in NAMES if name not in found]
    found |= {each.probe.name: each for each in left_out}
    return tuple(found[name] for name in NAMES)


def _word(case: Case, probe: Probe, answers: Sequence[Answer] | None, nlls: Sequence[float | None] | None) -> Probed:
    if probe.error is not None:
        return _failed(case, probe, probe.error)
    for place, sequence in enumerate(probe.sequences):
        finding = _odd(case, probe, place, sequence)
        if finding is not None:
            return Probed(probe, finding, f"{probe.name} {finding[0].value}")
    if answers is not None:
        return _compared(case, probe, answers)
    return _read(probe, nlls)


def _failed(case: Case, probe: Probe, error: str) -> Probed:
    """The word on a probe that an error ended. A long position that does not fit the memory is no fault."""
    outcome = explain_log(error, case.plan.target, Stage.RUN)
    reason = Reason.PYTHON_ERROR if outcome.reason in (None, Reason.NO_RESULT) else outcome.reason
    assert reason is not None
    if probe.name == "long_position" and reason in (Reason.DEVICE_OOM, Reason.HOST_OOM):
        remark = "the memory did not hold the probe long_position"
        return Probed(probe, None, f"{probe.name} {reason.value}", is_sure=False, remark=remark)
    return Probed(probe, (reason, f"In the probe {probe.name}: {outcome.detail}"), f"{probe.name} {reason.value}", is_sure=False)


def _odd(case: Case, probe: Probe, place: int, sequence: Continuation) -> Finding | None:
    """What can be seen without the CPU: numbers that are none, and tokens that are not the best of their own logits."""
    where = _where(probe, place)
    for step, (token, ids, logits) in enumerate(zip(sequence.tokens, sequence.read.top_ids, sequence.read.top_logits, strict=True)):
        said = f"token {step + 1} of {len(sequence.tokens)}"
        if not is_finite((logits,)):
            return Reason.NAN_LOGITS, f"{where}, the logits of {said} hold NaN or infinity."
        allowed = {key: logit for key, logit in zip(ids, logits, strict=True) if key not in case.run.eos_ids}
        if not allowed or allowed.get(token) != max(allowed.values()):
            return Reason.WRONG_NUMBERS, f"{where}, {said} is not the best one of its own logits."
    return None


def _where(probe: Probe, place: int) -> str:
    return f"In the probe {probe.name}" + (f", sequence {place + 1} of {len(probe.sequences)}" if len(probe.sequences) > 1 else "")


def _compared(case: Case, probe: Probe, answers: Sequence[Answer]) -> Probed:
    limit = case.ratio_limit * THRESHOLDS.probe
    ratios = [_ratio(case, sequence, theirs) for sequence, theirs in zip(probe.sequences, answers, strict=True)]
    said = f"{probe.name} R {', '.join('-' if ratio is None else f'{ratio:.3g}' for ratio in ratios)}{_length(probe)}"
    for place, (sequence, theirs, ratio) in enumerate(zip(probe.sequences, answers, ratios, strict=True)):
        if ratio is not None and ratio > limit:
            equal = f"{leading_matches(sequence.tokens, theirs.choices)}/{len(sequence.tokens)}"
            figures = f"R = {ratio:.3g} (limit {limit:g}); {equal} tokens equal the CPU's"
            return Probed(probe, (Reason.WRONG_NUMBERS, f"{_where(probe, place)}: {figures}."), said)
    repeats = probe.name == "long_text" and _is_stuck(probe.sequences[0].text)
    remark = "the long text repeats itself, which the numbers say of the CPU's too" if repeats else _short(probe)
    return Probed(probe, None, said, is_sure=None not in ratios and _short(probe) is None, remark=remark)


def _ratio(case: Case, sequence: Continuation, answer: Answer) -> float | None:
    """R of a sequence, mean over its positions as in `compare`; None where the CPU's own numbers are not finite."""
    expected = answer.expected
    if not all(is_finite(run) for run in (expected.fp32, *expected.low)):
        return None
    roundoff = UNIT_ROUNDOFF.get(case.plan.dtype, UNIT_ROUNDOFF[Dtype.BFLOAT16])
    steps = zip(sequence.read.top_logits, expected.fp32, *expected.low, strict=True)
    most = THRESHOLDS.most_of_a_position if case.reference and case.reference.experts else math.inf
    return fmean(min(position_ratio(device, wide, narrow, roundoff), most) for device, wide, *narrow in steps)


def _length(probe: Probe) -> str:
    if probe.name != "long_position":
        return ""
    return f" at {_reached(probe)} tokens"


def _reached(probe: Probe) -> int:
    return len(probe.sequences[0].read.prompt_ids) + len(probe.sequences[0].tokens)


def _short(probe: Probe) -> str | None:
    """A remark on a long position that memory, or the model's own limit, made shorter than it should be."""
    if probe.name != "long_position" or not probe.sequences or _reached(probe) >= probe.wanted:
        return None
    return f"the probe long_position reached {_reached(probe)} of {probe.wanted} tokens"


def _is_stuck(text: str) -> bool:
    return repeated_share(WORD.findall(text.lower())) > THRESHOLDS.stuck


def _read(probe: Probe, nlls: Sequence[float | None] | None) -> Probed:
    """The word where there is no CPU reference: the texts have to be fluent."""
    if probe.name == "long_text" and _is_stuck(probe.sequences[0].text):
        return Probed(probe, (Reason.NOT_FLUENT, f"In the probe {probe.name}, the text repeats itself."), f"{probe.name} repeats itself")
    if nlls is None or probe.name == "long_position":
        return Probed(probe, None, f"{probe.name} ran{_length(probe)}", is_sure=False, remark=_short(probe))
    # A long text is judged by its likelihood and by being stuck; that it comes back to a phrase is no fault.
    texts = [sequence.text if probe.name != "long_text" else _beginning(sequence.text) for sequence in probe.sequences]
    words = [fluency(text, nll) for text, nll in zip(texts, nlls, strict=True)]
    for place, word in enumerate(words):
        if not word.fluent:
            return Probed(
                probe, (Reason.NOT_FLUENT, f"{_where(probe, place)}, the text is {word.english}."), f"{probe.name} {word.english}"
            )
    return Probed(probe, None, f"{probe.name} {', '.join(word.english for word in words)}")


def _beginning(text: str) -> str:
    return " ".join(text.split()[:40])


def remarks(probes: Iterable[Probed]) -> list[str]:
    """What the row's notes say of the probes."""
    return [each.remark for each in probes if each.remark is not None]

"""What a run, the CPU reference and the judge left behind, checked: whatever is odd is a sentence, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class MalformedError(ValueError):
    """A file does not hold what its contract says; the text is a clause that names what is wrong."""


LARGEST = 2**63 - 1
"""What fits a column of the dataset."""


def take(values: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """The entry `name`, which is of one of `kinds`. Integers are checked for size. True is no number."""
    value = values.get(name)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        message = f"{name} is {'missing' if value is None else 'of the wrong type'}"
        raise MalformedError(message)
    if isinstance(value, int) and not 0 <= value <= LARGEST and float not in kinds:
        message = f"{name} is {'negative' if value < 0 else 'too large'}"
        raise MalformedError(message)
    return value


def entries(values: Mapping[str, Any], name: str, *kinds: type, length: int | None = None) -> tuple[Any, ...]:
    """The list `name`, of `length` entries of one of `kinds`."""
    items = take(values, name, list)
    if length is not None and len(items) != length:
        message = f"{name} has {len(items)} entries instead of {length}"
        raise MalformedError(message)
    return tuple(take({name: item}, name, *kinds) for item in items)


def _number(value: float, name: str) -> float:
    """A JSON number as a float; JSON has integers that no float can hold."""
    try:
        return float(value)
    except OverflowError:
        message = f"{name} is too large"
        raise MalformedError(message) from None


def logit_rows(values: Mapping[str, Any], name: str, length: int) -> tuple[tuple[float, ...], ...]:
    rows = entries(values, name, list, length=length)
    return tuple(tuple(_number(value, name) for value in entries({name: row}, name, int, float)) for row in rows)


@dataclass(frozen=True)
class RankReport:
    """What one rank said of itself."""

    rank: int
    tokens: tuple[int, ...]
    peak_bytes: int
    weights_bytes: int
    graphs: int
    graph_hits: int | None = None
    """Graphs from the cache; None for a script that does not say, as below."""
    graph_misses: int | None = None


@dataclass(frozen=True)
class Reading:
    """What the device made of a text that it was given: a passage."""

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    top_ids: tuple[tuple[int, ...], ...]
    top_logits: tuple[tuple[float, ...], ...]

    @classmethod
    def read(cls, values: Mapping[str, Any], new_tokens: int) -> Reading:
        """The reading that `values` reports. Raises MalformedError."""
        reading = cls(
            prompt_ids=entries(values, "prompt_ids", int),
            tokens=entries(values, "tokens", int, length=new_tokens),
            top_ids=tuple(entries({"top_ids": row}, "top_ids", int) for row in entries(values, "top_ids", list, length=new_tokens)),
            top_logits=logit_rows(values, "top_logits", new_tokens),
        )
        if not reading.prompt_ids or not reading.tokens:
            message = "no prompt or no tokens"
            raise MalformedError(message)
        for step, (ids, logits) in enumerate(zip(reading.top_ids, reading.top_logits, strict=True)):
            if len(ids) < 2 or len(ids) != len(logits) or len(set(ids)) != len(ids):
                message = f"the logits of step {step} do not fit their ids"
                raise MalformedError(message)
        return reading


@dataclass(frozen=True)
class DeviceRun:
    """result.json, checked. Logits may hold NaN and infinities; nothing else may be odd."""

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    warm_tokens: tuple[int, ...]
    eos_ids: tuple[int, ...]
    top_ids: tuple[tuple[int, ...], ...]
    top_logits: tuple[tuple[float, ...], ...]
    text: str
    compiled: bool
    graphs: int
    ranks: tuple[RankReport, ...]
    missing_keys: tuple[str, ...]
    fallbacks: tuple[str, ...]
    passages: tuple[Reading, ...] = ()
    """Texts that it was given rather than chose; none where the plan asks for none."""

    @classmethod
    def read(cls, values: Mapping[str, Any], new_tokens: int, cores: int) -> DeviceRun:
        """The run that `values` reports. Raises MalformedError."""
        own = Reading.read(values, new_tokens)
        passages = entries(values, "passages", dict) if "passages" in values else ()
        run = cls(
            prompt_ids=own.prompt_ids,
            tokens=own.tokens,
            warm_tokens=entries(values, "warm_tokens", int, length=new_tokens),
            eos_ids=entries(values, "eos_ids", int),
            top_ids=own.top_ids,
            top_logits=own.top_logits,
            text=take(values, "text", str),
            compiled=take(values, "compiled", bool),
            graphs=take(values, "graphs", int),
            ranks=tuple(_rank(rank) for rank in entries(values, "ranks", dict, length=cores)),
            missing_keys=entries(values, "missing_keys", str),
            fallbacks=entries(values, "fallbacks", str),
            passages=tuple(Reading.read(passage, new_tokens) for passage in passages),
        )
        run.check()
        return run

    @property
    def own(self) -> Reading:
        """What it generated, as a text that it read."""
        return Reading(self.prompt_ids, self.tokens, self.top_ids, self.top_logits)

    @property
    def texts(self) -> tuple[Reading, ...]:
        """All that it read: what it generated itself, then the passages."""
        return (self.own, *self.passages)

    def check(self) -> None:
        """Raises MalformedError where no token was allowed at a step."""
        for step, ids in enumerate(self.top_ids):
            if not set(ids) - set(self.eos_ids):
                message = f"step {step} has no logit of a token that was allowed"
                raise MalformedError(message)


def _rank(values: Mapping[str, Any]) -> RankReport:
    numbers = {name: take(values, name, int) for name in ("rank", "peak_bytes", "weights_bytes", "graphs")}
    told = {name: take(values, name, int, type(None)) for name in ("graph_hits", "graph_misses")}
    return RankReport(tokens=entries(values, "tokens", int), **numbers, **told)


@dataclass(frozen=True)
class Expected:
    """What the CPU made of a text: per position the logits of the device's ids, and the experts that it visits.

    `low` holds the runs in low precision: one, or for a mixture of experts several, of which each is as right as the others.
    """

    fp32: tuple[tuple[float, ...], ...]
    low: tuple[tuple[tuple[float, ...], ...], ...]
    visits: tuple[tuple[tuple[int, ...], ...], ...]
    """By layer of experts and position: those that all of the CPU's runs chose. Empty for a dense model."""

    @classmethod
    def read(cls, values: Mapping[str, Any], text: Reading) -> Expected:
        """What `values` holds of the text. Raises MalformedError."""
        steps = len(text.tokens)
        shaken = entries(values, "shaken", list) if "shaken" in values else ()
        fp32, *low = (
            logit_rows({name: rows}, name, steps)
            for name, rows in (*((n, values.get(n)) for n in ("fp32", "low")), *(("shaken", s) for s in shaken))
        )
        if any(len(ids) != len(row) for run in (fp32, *low) for ids, row in zip(text.top_ids, run, strict=True)):
            message = "its logits are not those of the device's ids"
            raise MalformedError(message)
        layers = entries(values, "visits", list) if "visits" in values else ()
        visits = tuple(
            tuple(entries({"visits": experts}, "visits", int) for experts in entries({"visits": layer}, "visits", list, length=steps))
            for layer in layers
        )
        return cls(fp32, tuple(low), visits)


@dataclass(frozen=True)
class Reference:
    """reference.py's answer, checked against the run that it was asked about."""

    missing_keys: tuple[str, ...]
    mismatched_keys: tuple[str, ...]
    passage_loss: float | None
    vocab_size: int
    texts: tuple[Expected, ...]
    """What is expected of the run's texts, in their order."""
    experts: tuple[int, ...]
    """Number of experts of each layer that has some."""
    fp32_argmax: tuple[int, ...]
    low_argmax: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    weights_digests: tuple[str, ...] = ()
    """Of the loads that were compared; empty where nothing was suspicious."""
    unexpected_keys: tuple[str, ...] = ()

    @classmethod
    def read(cls, values: Mapping[str, Any], run: DeviceRun) -> Reference:
        """The reference that `values` holds. Raises MalformedError."""
        steps = len(run.tokens)
        passages = entries(values, "passages", dict, length=len(run.passages)) if run.passages else ()
        texts = tuple(Expected.read(each, text) for each, text in zip((values, *passages), run.texts, strict=True))
        if len({len(text.visits) for text in texts}) > 1:
            message = "its texts have different numbers of layers with experts"
            raise MalformedError(message)
        loss = take(values, "passage_loss", int, float, type(None))
        return cls(
            missing_keys=entries(values, "missing_keys", str),
            mismatched_keys=entries(values, "mismatched_keys", str),
            passage_loss=None if loss is None else _number(loss, "passage_loss"),
            vocab_size=take(values, "vocab_size", int),
            texts=texts,
            experts=entries(values, "experts", int) if "experts" in values else (),
            fp32_argmax=entries(values, "fp32_argmax", int, length=steps),
            low_argmax=entries(values, "low_argmax", int, length=steps),
            prompt_ids=entries(values, "prompt_ids", int),
            weights_digests=entries(values, "weights_digests", str) if "weights_digests" in values else (),
            unexpected_keys=entries(values, "unexpected_keys", str) if "unexpected_keys" in values else (),
        )


def judge_nlls(values: Mapping[str, Any], texts: int) -> tuple[float | None, ...]:
    """The judge's figure for each text that it was asked about; None when it finds no tokens in it. Raises MalformedError."""
    found = entries(values, "nll", int, float, type(None), length=texts)
    return tuple(None if nll is None else _number(nll, "nll") for nll in found)

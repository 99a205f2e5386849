"""From the tops of the rankings to a choice: what tells users most per core-hour goes first; pure and deterministic.

What a run tells is its family's popularity, divided by how many of its architecture and of its size class are chosen
already: the second Llama tells half of what the first one told. A family is a model with its fine-tunes and
quantisations of the same architecture; one member of it is run, and stands for the others.
Gains only fall while others are chosen, so a heap whose top is re-weighed finds the best one without looking at all.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from doesitrun.outcomes import Fault, Reason, Stage
from doesitrun.records import Forecast, Ranked
from doesitrun.select.hand import Hand, Pin
from doesitrun.select.pace import Pace, size_of
from doesitrun.select.selected import Selected

FUSED = 60
"""Reciprocal rank fusion: a place counts 1 / (60 + rank), the constant of Cormack, Clarke and Büttcher (SIGIR 2009)."""
TRENDING, DOWNLOADS = "trending", "downloads"


@dataclass(frozen=True)
class Wanted:
    """What is asked of a selection."""

    target: str
    device: str
    ranked_on: str = ""
    top: int = 500
    """Only the first so many of each ranking are looked at."""
    count: int | None = None
    """At most so many are chosen."""
    core_hours: float | None = None
    """At most so many core-hours, by the estimates."""
    hand: Hand = field(default_factory=Hand)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True)
class _Candidate:
    """A model with all that is known of it."""

    ranked: Ranked
    places: Mapping[str, int]
    forecast: Forecast | None
    family: tuple[str, str]
    popularity: float
    """1 for the first of one ranking, 2 for the first of both."""
    hours: float

    @property
    def id(self) -> str:
        return self.ranked.model_id

    @property
    def architecture(self) -> str:
        return self.ranked.architecture or (self.forecast.architecture if self.forecast else None) or "unknown architecture"

    @property
    def size(self) -> str:
        return size_of(self.ranked.parameters, self.forecast.weights_bytes if self.forecast else None)


def choose(ranked: Iterable[Ranked], forecasts: Iterable[Forecast], wanted: Wanted) -> list[Selected]:
    """One line per model: the chosen ones in the order in which they should run, then the excluded ones by name."""
    plans = {forecast.model_id: forecast for forecast in forecasts}
    candidates = _candidates(ranked, plans, wanted)
    excluded = [line for each in candidates if (line := _sorted_out(each, wanted)) is not None]
    gone = {line.model_id for line in excluded}
    families: dict[tuple[str, str], list[_Candidate]] = {}
    for each in candidates:
        if each.id not in gone:
            families.setdefault(each.family, []).append(each)
    order = _Order(wanted)
    for pin in _pinned(candidates, wanted):
        order.take(pin, [])
    heap: list[tuple[float, str, _Candidate, list[_Candidate]]] = []
    for members in families.values():
        members.sort(key=lambda each: (each.ranked.base_relation == "quantized", -each.popularity, each.id))
        pinned = next((each for each in members if each.id in order.chosen_ids), None)
        if pinned is not None:
            excluded += [_covered(each, pinned, wanted) for each in members if each.id not in order.chosen_ids]
            continue
        heap.append((-order.gain(members[0], members), members[0].id, members[0], members))
    excluded += _greedy(heap, order)
    return [*order.chosen, *sorted(excluded, key=lambda line: line.model_id)]


def _greedy(heap: list[tuple[float, str, _Candidate, list[_Candidate]]], order: _Order) -> list[Selected]:
    """Takes the best of the families until the budget is used up; returns the lines of those that are not taken."""
    heapq.heapify(heap)
    excluded: list[Selected] = []
    while heap:
        _, _, first, members = heap[0]
        gain = -order.gain(first, members)
        if gain > heap[0][0]:  # others were chosen since it was weighed
            heapq.heapreplace(heap, (gain, first.id, first, members))
            continue
        heapq.heappop(heap)
        why = order.refuses(first)
        if why:
            excluded += [_line(each, order.wanted, Reason.NOT_PRIORITIZED, why) for each in members]
        else:
            order.take(first, members[1:])
            excluded += [_covered(each, first, order.wanted) for each in members[1:]]
    return excluded


class _Order:
    """The chosen ones so far, and what is left of the budget."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.chosen: list[Selected] = []
        self.chosen_ids: set[str] = set()
        self._hours = 0.0
        self._architectures: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()

    def gain(self, first: _Candidate, members: Sequence[_Candidate]) -> float:
        """What running it tells, per core-hour."""
        told = (1 + self._architectures[first.architecture]) * (1 + self._sizes[first.size])
        return sum(each.popularity for each in members) / told / first.hours

    def refuses(self, candidate: _Candidate) -> str:
        """Why the budget has no room for it, as a sentence; empty if it has."""
        count, hours = self.wanted.count, self.wanted.core_hours
        if count is not None and len(self.chosen) >= count:
            return f"{count} models that tell more per core-hour were chosen before it."
        if hours is not None and self._hours + candidate.hours > hours:
            return f"Its {candidate.hours:.2g} core-hours do not fit into what is left of {hours:g}."
        return ""

    def take(self, candidate: _Candidate, others: Sequence[_Candidate]) -> None:
        self._architectures[candidate.architecture] += 1
        self._sizes[candidate.size] += 1
        self._hours += candidate.hours
        self.chosen_ids.add(candidate.id)
        self.chosen.append(_line(candidate, self.wanted, None, self._why(candidate, others), place=len(self.chosen) + 1))

    def _why(self, candidate: _Candidate, others: Sequence[_Candidate]) -> str:
        pin = self.wanted.hand.pins.get(candidate.id)
        nth = [f"no. {self._architectures[candidate.architecture]} of {candidate.architecture}"]
        nth += [f"no. {self._sizes[candidate.size]} of {candidate.size}", f"about {candidate.hours:.2g} core-hours"]
        ranks = [f"{name} {rank}" for name, rank in sorted(candidate.places.items())]
        stands = f"; it stands for {len(others)} more made from the same model" if others else ""
        blocked = candidate.forecast is not None and candidate.forecast.outcome != "plan"
        doubt = f"; the planner says: {candidate.forecast.detail}" if pin and blocked and candidate.forecast else ""
        said = f"{', '.join([*ranks, *nth])}{stands}{doubt}".rstrip(".")
        return f"Pinned: {pin.reason} {said}." if pin else f"{said[0].upper()}{said[1:]}."


# ---------------------------------------------------------------------------------- candidates
def _candidates(ranked: Iterable[Ranked], plans: Mapping[str, Forecast], wanted: Wanted) -> list[_Candidate]:
    """Every model of the tops once, by name, and those that are pinned without being ranked."""
    lines: dict[str, Ranked] = {}
    places: dict[str, dict[str, int]] = {}
    for line in sorted(ranked, key=lambda line: (line.model_id, line.rank, line.by, line.task)):
        lines.setdefault(line.model_id, line)
        if line.rank <= wanted.top:
            ranks = places.setdefault(line.model_id, {})
            ranks[line.by] = min(line.rank, ranks.get(line.by, line.rank))
    for pin in wanted.hand.pins.values():
        lines.setdefault(pin.model, _unranked(pin))
        places.setdefault(pin.model, {})
    names = sorted(name for name in places)
    return [_candidate(lines[name], places[name], plans.get(name), lines, wanted) for name in names]


def _unranked(pin: Pin) -> Ranked:
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Ranked))
    return Ranked(**unknown | {"model_id": pin.model, "task": pin.task or "text-generation", "by": "", "rank": 0, "sha": pin.revision})


def _candidate(
    line: Ranked, places: Mapping[str, int], forecast: Forecast | None, lines: Mapping[str, Ranked], wanted: Wanted
) -> _Candidate:
    popularity = sum((FUSED + 1) / (FUSED + rank) for rank in places.values())
    known = forecast.weights_bytes if forecast is not None else None
    weights = known or (line.parameters * 2 if line.parameters else None)
    hours = wanted.pace.core_hours(weights, forecast.cores if forecast is not None else None)
    return _Candidate(line, places, forecast, (_root(line, lines), line.architecture or ""), popularity, hours)


def _root(line: Ranked, lines: Mapping[str, Ranked]) -> str:
    """The model at the beginning of the chain of bases, as far as the rankings tell; a circle ends where it began."""
    name, seen = line.model_id, {line.model_id}
    while True:
        known = lines.get(name)
        base = known.base_model if known is not None else None
        if base is None or base in seen:
            return name
        seen.add(base)
        name = base


def _pinned(candidates: Sequence[_Candidate], wanted: Wanted) -> list[_Candidate]:
    known = {each.id: each for each in candidates}
    return [known[name] for name in wanted.hand.pins]


# ---------------------------------------------------------------------------------- lines
def _sorted_out(candidate: _Candidate, wanted: Wanted) -> Selected | None:
    """The line of what is excluded before any choice: by hand, or because there is no plan."""
    if candidate.id in wanted.hand.pins:
        return None
    skip = wanted.hand.skips.get(candidate.id)
    if skip is not None:
        return _line(candidate, wanted, Reason.NOT_PRIORITIZED, skip.reason, link=skip.link)
    forecast = candidate.forecast
    if forecast is None or forecast.outcome == "plan":
        return None
    reason = _known_reason(forecast.reason)
    if reason.fault is Fault.HARNESS:  # the planner, host or Hub failed: nothing is known of the model
        return None
    return _line(candidate, wanted, reason, forecast.detail or reason.meaning, stage=Stage.PLAN)


def _known_reason(text: str | None) -> Reason:
    """The reason of a forecast; one of a later version's list counts as a failure of the harness, which tells nothing."""
    try:
        return Reason(text or "")
    except ValueError:
        return Reason.HARNESS_ERROR


def _covered(candidate: _Candidate, by: _Candidate, wanted: Wanted) -> Selected:
    """The line of a member of a family that another one stands for."""
    quantized = candidate.ranked.base_relation == "quantized"
    base = candidate.ranked.base_model
    what = "quantisation" if quantized else "fine-tune"
    if base is None:
        why = f"{by.id}, which was made from it, is chosen."
    elif base == by.id:
        why = f"A {what} of {base}, which is chosen."
    else:
        why = f"A {what} of {base}, of whose family {by.id} is chosen."
    return _line(candidate, wanted, Reason.DUPLICATE if quantized else Reason.NOT_PRIORITIZED, why, base_model=by.id)


def _line(
    candidate: _Candidate, wanted: Wanted, reason: Reason | None, detail: str, *, stage: Stage = Stage.SELECT, **more: object
) -> Selected:
    ranked, forecast = candidate.ranked, candidate.forecast
    values: dict[str, object] = {
        "model_id": candidate.id,
        "chosen": reason is None,
        "target": wanted.target,
        "device": wanted.device,
        "task": (forecast.task if forecast is not None else None) or ranked.task,
        "detail": detail,
        "reason": reason,
        "stage": None if reason is None else stage,
        "revision": (forecast.revision if forecast is not None else None) or ranked.sha,
        "cores": forecast.cores if forecast is not None else None,
        "est_core_hours": round(candidate.hours, 4),
        "base_model": ranked.base_model,
        "pinned": candidate.id in wanted.hand.pins,
        "trending_rank": candidate.places.get(TRENDING),
        "downloads_rank": candidate.places.get(DOWNLOADS),
        "architecture": ranked.architecture or (forecast.architecture if forecast is not None else None),
        "model_type": ranked.model_type or (forecast.model_type if forecast is not None else None),
        "parameters": ranked.parameters,
        "weights_bytes": forecast.weights_bytes if forecast is not None else None,
        "ranked_on": wanted.ranked_on or None,
        **more,
    }
    return Selected(**values)  # type: ignore[arg-type]

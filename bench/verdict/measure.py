"""One case of the bench, run and judged in three ways."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import torch

from bench.verdict import faults
from bench.verdict.device import Around, Bench, Generate, change, kept_graphs, visitors
from bench.verdict.faults import Case, Json
from doesitrun import verify
from doesitrun.outcomes import Result
from doesitrun.records import Dtype, Plan, RankBytes
from doesitrun.verify import THRESHOLDS
from doesitrun.verify.ratio import middle

LONGER = "The weather had been bad for weeks, and none of the boats had left the harbour since the day on which the storm came up. So"


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the three ways of judging say of a case."""

    name: str
    kind: str
    model: str
    layout: str
    dtype: str
    R: float | None
    expert_ratio: float | None
    match_tokens: int
    tokens: int
    fluent: bool
    english: str
    verdict: str
    reason: str
    change: float | None
    """For a fault: what it does to float32 logits, in units of the yardstick's noise, mean over positions; None is NaN."""
    change_there: float | None
    """For a fault of one expert: the same at half of the positions that visit it, or at three quarters where those are few."""
    visits: int | None
    judge_applies: bool = True
    """False where the CPU's own text is not fluent, too."""

    @property
    def is_caught(self) -> bool:
        return self.verdict == Result.FAIL

    @property
    def is_large(self) -> bool:
        """Beyond twice the noise: overall, or at the positions of an expert that is visited often enough to be judged."""
        if self.kind != "fault":
            return False
        there = self.change_there if self.visits is not None and self.visits >= THRESHOLDS.visits else 0.0
        return self.change is None or self.change > 2 or (there or 0.0) > 2


def measure(case: Case, bench: Bench) -> Measured:
    """The case, run on the device side, then against the reference and the judge."""
    plan = planned(case, bench)
    if case.expert:
        case, number = with_expert(case, plan, bench)
    length = prompt_length(plan, bench)
    apply = faults.later_by_one(length) if case.special == "later" else case.apply
    if case.cores > 1:
        result = bench.run_ranks(plan, case.ranks)
    else:
        model = loaded(case, bench)
        apply(model)
        with arithmetic(case):
            result = bench.run(plan, model, passages=case.passages, compiled=case.compiled, around=around(case, bench))
    answer = bench.answer(plan, result)
    word = bench.word(plan, result)
    seen = verify.verdict(plan, result, answer, {"nll": [word.nll]})
    size, there, visits = None, None, None
    if case.kind == "fault":
        changes = changed(case, apply, bench, plan, result, answer)
        size = fmean(changes) if all(math.isfinite(each) for each in changes) else None
        if case.expert:
            places = visitors(answer, case.expert[0], number)
            visits, there = len(places), middle(sorted(changes[place] for place in places)) if places else 0.0
    return Measured(
        name=case.name,
        kind=case.kind,
        model=case.model,
        layout=case.layout,
        dtype=plan.dtype.short,
        R=rounded(seen.logit_ratio),
        expert_ratio=rounded(seen.expert_ratio),
        match_tokens=seen.match_tokens or 0,
        tokens=plan.new_tokens,
        fluent=word.fluent,
        english=word.english,
        verdict=str(seen.outcome.result),
        reason=str(seen.outcome.reason or ""),
        change=rounded(size),
        change_there=rounded(there),
        visits=visits,
        judge_applies=case.model in ("smollm2", "seeing"),
    )


def rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.3g}")


def planned(case: Case, bench: Bench) -> Plan:
    plan = bench.plan(case.model, case.cores, case.dtype)
    if case.special == "no ep":
        plan = dataclasses.replace(plan, ep=1)
    if case.special == "no tp":
        rules = {f"model.layers.*.self_attn.{name}_proj": "replicate" for name in "qkvo"}
        plan = dataclasses.replace(plan, tp_override=rules, rank_bytes=RankBytes(replicated=plan.weights_bytes))
    return plan


def loaded(case: Case, bench: Bench) -> Any:
    model = bench.model(case.model, case.dtype.value)
    if case.special == "eager attention":
        model.set_attn_implementation("eager")
    if hasattr(model.config, "_experts_implementation"):
        model.config._experts_implementation = "eager" if case.special == "experts eager" else "batched_mm"  # noqa: SLF001  its only switch
    return model


def prompt_length(plan: Plan, bench: Bench) -> int:
    """Ids of the prompt; for a picture this is not asked."""
    return len(bench.judge_tokenizer(plan.prompt)["input_ids"])


def with_expert(case: Case, plan: Plan, bench: Bench) -> tuple[Case, int]:
    """The case with the expert that its rule picks by the visits of a right run."""
    assert case.expert
    layer, which = case.expert
    number = picked(visits_of(case.model, layer, plan, bench), which)
    return dataclasses.replace(case, apply=faults.zeroed_expert(layer, number)), number


def visits_of(model: str, layer: int, plan: Plan, bench: Bench) -> dict[int, int]:
    """How many positions visit each expert of a layer when the model runs right."""
    if (model, layer) not in bench.visits:
        result = bench.run(plan, loaded(Case("", "right", model), bench))
        answer = bench.answer(plan, result)
        bench.visits[model, layer] = {number: len(visitors(answer, layer, number)) for number in range(answer["experts"][layer])}
    return bench.visits[model, layer]


def picked(counts: dict[int, int], which: str) -> int:
    """The expert of a rule; where none has so few visits, the one that has the fewest."""
    order = sorted(counts, key=lambda number: (counts[number], number))
    within = {
        "few visits": (THRESHOLDS.many_visits, 10**9),
        "4 to 15 visits": (THRESHOLDS.visits, THRESHOLDS.many_visits - 1),
        "fewer than 4 visits": (0, 3),
    }
    if which in within:
        low, high = within[which]
        return next((number for number in order if low <= counts[number] <= high), order[0])
    return order[-1] if which == "most used" else order[len(order) // 2]


# ---------------------------------------------------------------------------------- what is not in the model
@contextlib.contextmanager
def arithmetic(case: Case) -> Iterator[None]:
    """Other right arithmetic of the same machine, and the compiler's kept graphs."""
    before = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        if case.compiled:
            stack.enter_context(kept_graphs())
        if case.special == "blas":
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield
    torch.set_num_threads(before)


def around(case: Case, bench: Bench) -> Around | None:
    """What stands around generate()."""
    if case.special == "dynamic":
        return lambda generate: lambda model, inputs, **more: growing(generate, model, inputs, more)
    if case.special in ("batch", "mask"):
        return lambda generate: lambda model, inputs, **_: row_of_two(generate, model, inputs, bench, masked=case.special == "batch")
    if case.special == "stuck":
        return stuck
    if case.special == "threads":
        return lambda generate: lambda model, inputs, **more: threaded(generate, model, inputs, more)
    if case.special == "blind":
        return lambda generate: lambda model, inputs, **more: generate(model, blind(inputs), **more)
    return None


def growing(generate: Generate, model: Any, inputs: Json, more: Json) -> tuple[list[int], torch.Tensor, float]:
    """With transformers' own cache, which grows: the static one that the script asks for is turned down."""
    own = model.generate

    def call(**told: Any) -> Any:
        return own(**{name: value for name, value in told.items() if name not in ("cache_implementation", "compile_config")})

    model.generate = call
    try:
        return generate(model, inputs, **more)
    finally:
        del model.generate


def threaded(generate: Generate, model: Any, inputs: Json, more: Json) -> tuple[list[int], torch.Tensor, float]:
    torch.set_num_threads(2)
    return generate(model, inputs, **more)


def row_of_two(generate: Generate, model: Any, inputs: Json, bench: Bench, *, masked: bool) -> tuple[list[int], torch.Tensor, float]:
    """The prompt as the first row of a batch, padded on the left to the length of a longer one."""
    longer = torch.tensor([bench.judge_tokenizer(LONGER)["input_ids"]])
    padded = pad(inputs, longer.shape[1] - inputs["input_ids"].shape[1], masked=masked)
    batch = {"input_ids": torch.cat([padded["input_ids"], longer])}
    batch["attention_mask"] = torch.cat([padded["attention_mask"], torch.ones_like(longer)])
    tokens, logits, seconds = generate(model, batch)
    return tokens, logits[::2], seconds


def pad(inputs: Json, width: int, *, masked: bool) -> Json:
    ids = inputs["input_ids"]
    filler = torch.full((1, width), 2)
    mask = torch.cat([torch.zeros_like(filler) if masked else torch.ones_like(filler), inputs["attention_mask"]], 1)
    return {"input_ids": torch.cat([filler, ids], 1), "attention_mask": mask}


def stuck(generate: Generate) -> Generate:
    """The cache keeps what the first prompt left in it: of another one only the last id is read."""
    first: list[torch.Tensor] = []

    def call(model: Any, inputs: Json, **more: Any) -> tuple[list[int], torch.Tensor, float]:
        first.append(inputs["input_ids"])
        return generate(model, {**inputs, "input_ids": with_beginning(inputs["input_ids"], first[0])}, **more)

    return call


def with_beginning(ids: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    length = first.shape[1] - 1
    return torch.cat([first[:, :length], ids[:, length:]], 1)


def blind(inputs: Json) -> Json:
    return {**inputs, "pixel_values": torch.zeros_like(inputs["pixel_values"])}


def changed(case: Case, apply: faults.Apply, bench: Bench, plan: Plan, result: Json, answer: Json) -> list[float]:
    """What the fault does to float32 logits, by position."""
    if case.ranks:
        # A right float32 run has R of nearly 0 here, so R of a broken one is the fault alone.
        wide = bench.plan(case.model, case.cores, Dtype.FLOAT32)
        broken = bench.run_ranks(wide, case.ranks)
        ratio = verify.verdict(wide, broken, bench.answer(wide, broken), {"nll": [1.0]}).logit_ratio
        return [math.inf if ratio is None else ratio]
    if case.name == "NaN on one step":
        return [math.nan]
    model = bench.model(case.model, case.dtype.value).float()
    apply(model)
    given: dict[str, Callable[[Json], Json]] = {
        "mask": lambda inputs: pad(inputs, len(bench.judge_tokenizer(LONGER)["input_ids"]) - prompt_length(plan, bench), masked=False),
        "stuck": lambda inputs: {**inputs, "input_ids": with_beginning(inputs["input_ids"], torch.tensor([result["prompt_ids"]]))},
        "blind": blind,
    }
    return change(bench, plan, result, answer, model, given.get(case.special))

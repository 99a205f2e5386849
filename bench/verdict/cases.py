"""The list of the bench: faults and right variants. What a case stands for is said where its name does not."""

from __future__ import annotations

from bench.verdict import faults
from bench.verdict.faults import Case
from doesitrun.records import Dtype


def fault(name: str, model: str, apply: faults.Apply = lambda _: None, **more: object) -> Case:
    return Case(name, "fault", model, apply, **more)  # type: ignore[arg-type]


def right(name: str, model: str, **more: object) -> Case:
    return Case(name, "right", model, **more)  # type: ignore[arg-type]


SMOLLM2 = [
    fault("one head zeroed", "smollm2", faults.zeroed_head(10, 1)),
    fault("one output projection zeroed", "smollm2", faults.zeroed("self_attn.o_proj", 15)),
    fault("half of one MLP projection", "smollm2", faults.halved("mlp.up_proj", 12)),
    fault("two layers swapped", "smollm2", faults.swapped_layers(7, 8)),
    fault("norm epsilon 1e-2 for 1e-5", "smollm2", faults.epsilon(1e-2)),
    fault("norm epsilon 1e-6 for 1e-5", "smollm2", faults.epsilon(1e-6)),
    fault("rope base 1e4 for 1e5", "smollm2", faults.rope_base(1e4)),
    fault("GELU for SiLU in 1 of 30 layers", "smollm2", faults.gelu(12)),
    fault("key/value heads swapped in one layer", "smollm2", faults.swapped_kv_heads(20)),
    fault("positions off by one from decoding on", "smollm2", special="later"),
    fault("attention mask of a padded batch ignored", "smollm2", special="mask"),
    fault("cache stuck on the first prompt, one prompt run", "smollm2", special="stuck"),
    fault("cache stuck on the first prompt, passages run", "smollm2", special="stuck", passages=True),
    fault("a quarter of the head's rows x 1.1", "smollm2", faults.scaled_rows(0.25, 1.1)),
    fault("weights rounded to fp8", "smollm2", faults.rounded_weights("fp8")),
    fault("weights rounded to int8", "smollm2", faults.rounded_weights("int8")),
    fault("weights of one layer rounded to int8", "smollm2", faults.rounded_weights("int8", 12)),
    fault("NaN on one step", "smollm2", faults.nan_at(9)),
    fault("softmax scale of another model in a stale graph", "smollm2", faults.softmax_scale(0.5)),
    fault("float16 run with one head zeroed", "smollm2", faults.zeroed_head(10, 1), dtype=Dtype.FLOAT16),
    right("static cache, eager", "smollm2"),
    right("eager attention", "smollm2", special="eager attention"),
    right("growing cache", "smollm2", special="dynamic"),
    right("compiled", "smollm2", compiled=True),
    right("batch of two, left-padded", "smollm2", special="batch"),
    right("other threads", "smollm2", special="threads"),
    right("other BLAS order", "smollm2", special="blas"),
    right("float16", "smollm2", dtype=Dtype.FLOAT16),
    right("float32", "smollm2", dtype=Dtype.FLOAT32),
    right("passages, too", "smollm2", passages=True),
    right("3 ranks", "smollm2", cores=3, layout="TP 3"),
]
DENSE = [
    fault("one head zeroed", "gqa", faults.zeroed_head(1, 3)),
    fault("key/value heads swapped in one layer", "gqa", faults.swapped_kv_heads(1)),
    fault("rope scaling missing", "gqa", faults.rope_base(1e4)),
    fault("head tied to the embedding", "gqa", faults.head_is_embedding),
    fault("half of one MLP projection", "gqa", faults.halved("mlp.up_proj", 1)),
    fault("a sum without one rank's part", "gqa", cores=2, layout="TP 2", ranks=faults.SKIPPED_SUM),
    fault("rank 1 loads the shard of rank 0", "gqa", cores=2, layout="TP 2", ranks=faults.LOADED_TWICE),
    fault("sliding window ignored", "sliding", faults.window(4096)),
    fault("sliding window one too short", "sliding", faults.window(47)),
    fault("one head zeroed", "sliding", faults.zeroed_head(1, 3)),
    right("static cache, eager", "gqa"),
    right("eager attention", "gqa", special="eager attention"),
    right("2 ranks", "gqa", cores=2, layout="TP 2"),
    right("static cache, eager", "sliding"),
    right("growing cache", "sliding", special="dynamic"),
]
ONE_EXPERT = ("most used", "middle", "few visits", "4 to 15 visits", "fewer than 4 visits")
MIXTURES = [
    case
    for model in ("moe16", "moe64")
    for case in (
        *(fault(f"an expert zeroed: {which}", model, expert=(1, which)) for which in ONE_EXPERT),
        fault("one head zeroed", model, faults.zeroed_head(1, 3)),
        fault("router paired with the next experts", model, faults.paired_wrongly(1)),
        fault("the same in one layer", model, faults.paired_wrongly(1, 1)),
        fault("one expert too few", model, faults.fewer_experts),
        right("static cache, eager", model),
        right("experts one by one", model, special="experts eager"),
        right("eager attention", model, special="eager attention"),
        right("float32", model, dtype=Dtype.FLOAT32),
        right("2 ranks", model, cores=2, layout="TP+EP 2"),
    )
]
SHARED = [
    fault("shared expert missing", "moe64", faults.scaled_shared(0.0)),
    fault("shared expert twice", "moe64", faults.scaled_shared(2.0)),
    fault("shared expert summed twice over ranks", "moe64", cores=2, layout="TP+EP 2", ranks=faults.SHARED_TWICE),
    fault("each rank has the other's experts", "moe16", cores=2, layout="TP+EP 2", ranks=faults.OTHER_EXPERTS),
    right("2 ranks, tensor parallel alone", "moe16", cores=2, layout="TP 2", special="no ep"),
    right("2 ranks, expert parallel alone", "moe16", cores=2, layout="EP 2", special="no tp"),
]
SEEING = [
    fault("picture not looked at", "seeing", special="blind"),
    fault("one head zeroed", "seeing", faults.zeroed_head(10, 1)),
    right("static cache, eager", "seeing"),
    right("eager attention", "seeing", special="eager attention"),
]
CASES = [*SMOLLM2, *DENSE, *MIXTURES, *SHARED, *SEEING]
QUICK = [*DENSE[:5], DENSE[7], *DENSE[10:12], *MIXTURES[:12]]
assert len({(case.name, case.model, case.kind) for case in CASES}) == len(CASES)

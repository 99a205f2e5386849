"""Hand-made outlines: small models of every kind that the planner tells apart."""

from __future__ import annotations

from typing import Any

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.plan.outlines import Attention, CacheLayers, Outline, Parameter
from doesitrun.records import Device

LAYER = "model.layers.*"
ATTENTION = f"{LAYER}.self_attn"
EXPERTS = f"{LAYER}.mlp.experts"
TP = {
    "lm_head": "colwise_gather_output",
    "model.embed_tokens": "embedding_rowwise",
    f"{ATTENTION}.q_proj": "colwise",
    f"{ATTENTION}.k_proj": "colwise",
    f"{ATTENTION}.v_proj": "colwise",
    f"{ATTENTION}.o_proj": "rowwise",
}
EP = {EXPERTS: "ep_dispatch_experts", f"{EXPERTS}.gate_up_proj": "grouped_gemm", f"{EXPERTS}.down_proj": "grouped_gemm"}
DEVICE = Device("toy", "neuron", (1, 2, 4, 8), 10 * 10**6, 0.5)
"""5 MB a core once the headroom is taken off."""


def checkpoint(**fields: Any) -> Checkpoint:
    return Checkpoint(**{"model_id": "local/toy", "revision": "abc", "source": "/toy", "config": {}, **fields})


def outline(*, layers: int = 4, hidden: int = 64, heads: int = 8, kv_heads: int = 4, vocab: int = 1000, **fields: Any) -> Outline:
    """A dense decoder with a tensor-parallel plan, unless `fields` say otherwise."""
    width = hidden // heads
    tp: dict[str, str] = fields.pop("tp_plan", TP)

    def weight(module: str, *shape: int, count: int = 1, **more: Any) -> Parameter:
        return Parameter(f"{module}.weight", shape, "bfloat16", 2, count, tp=tp.get(module), quantizable=count > 1, **more)

    parameters = (
        weight("model.embed_tokens", vocab, hidden),
        weight(f"{ATTENTION}.q_proj", heads * width, hidden, count=layers),
        weight(f"{ATTENTION}.k_proj", kv_heads * width, hidden, count=layers),
        weight(f"{ATTENTION}.v_proj", kv_heads * width, hidden, count=layers),
        weight(f"{ATTENTION}.o_proj", hidden, heads * width, count=layers),
        Parameter(f"{LAYER}.input_layernorm.weight", (hidden,), "bfloat16", 2, layers),
        weight("lm_head", vocab, hidden),
        *fields.pop("more", ()),
    )
    styles = {rule: style for rule, style in tp.items() if rule.startswith(ATTENTION)}
    known: dict[str, Any] = {
        "key": "0",
        "task": "text-generation",
        "class_name": "ToyForCausalLM",
        "model_type": "toy",
        "parameters": parameters,
        "tp_plan": tp,
        "ep_plan": {},
        "attention": (Attention(ATTENTION, heads, kv_heads, layers, styles),) if styles else (),
        "cache": (CacheLayers(kv_heads, width, width, layers),),
        "layer_types": ("full_attention",),
        "head": "lm_head",
        "layers": layers,
        "versions": {"transformers": "5.24.0"},
    }
    return Outline(**{**known, **fields})


def experts(number: int, *, layers: int = 4, hidden: int = 64, inner: int = 256, sharded_by_tp: bool = False) -> dict[str, Any]:
    """The fields of a mixture of `number` experts per layer."""
    tp = ("packed_colwise", "rowwise") if sharded_by_tp else (None, None)
    return {
        "more": (
            Parameter(f"{EXPERTS}.gate_up_proj", (number, 2 * inner, hidden), "bfloat16", 2, layers, tp=tp[0], ep="grouped_gemm"),
            Parameter(f"{EXPERTS}.down_proj", (number, hidden, inner), "bfloat16", 2, layers, tp=tp[1], ep="grouped_gemm"),
        ),
        "ep_plan": EP,
        "experts": number,
        "top_k": 2,
    }

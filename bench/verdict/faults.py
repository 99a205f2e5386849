"""What is broken on the device side, and in which right ways the device may differ. Each is a change to a loaded model.

A fault is applied to the model in the device's dtype, and once more to a float32 one, to see how large it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from doesitrun.records import Dtype

Json = dict[str, Any]
Apply = Callable[[Any], None]


@dataclass(frozen=True)
class Case:
    """One run of the bench."""

    name: str
    kind: str
    """fault or right."""
    model: str
    apply: Apply = lambda _: None
    dtype: Dtype = Dtype.BFLOAT16
    layout: str = "1 core"
    cores: int = 1
    passages: bool = False
    compiled: bool = False
    special: str = ""
    """A change that is not one of the model: see `__main__`."""
    ranks: str = ""
    """For ranks: the body of a function of `model` and `rank`."""
    expert: tuple[int, str] | None = None
    """For a fault of one expert: the layer, and which one by its use."""


def decoder(model: Any) -> Any:
    inner = model.model
    return inner.text_model if hasattr(inner, "text_model") else inner


def zeroed_head(layer: int, head: int) -> Apply:
    def apply(model: Any) -> None:
        attention = decoder(model).layers[layer].self_attn
        attention.o_proj.weight.data[:, head * attention.head_dim : (head + 1) * attention.head_dim] = 0

    return apply


def zeroed(path: str, layer: int) -> Apply:
    return lambda model: decoder(model).layers[layer].get_submodule(path).weight.data.zero_()


def halved(path: str, layer: int) -> Apply:
    """Half of the rows are not there."""

    def apply(model: Any) -> None:
        weight = decoder(model).layers[layer].get_submodule(path).weight.data
        weight[len(weight) // 2 :] = 0

    return apply


def swapped_layers(one: int, other: int) -> Apply:
    def apply(model: Any) -> None:
        """The weights change places, so that each layer keeps its own place in the cache."""
        layers = decoder(model).layers
        first, second = ({k: v.clone() for k, v in layers[place].state_dict().items()} for place in (one, other))
        layers[one].load_state_dict(second)
        layers[other].load_state_dict(first)

    return apply


def epsilon(value: float) -> Apply:
    def apply(model: Any) -> None:
        for module in model.modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = value

    return apply


def rope_base(value: float) -> Apply:
    """Plain frequencies of that base, so it also takes any scaling away."""

    def apply(model: Any) -> None:
        rotary = decoder(model).rotary_emb
        width = 2 * len(rotary.inv_freq)
        rotary.inv_freq.copy_(1 / value ** (torch.arange(0, width, 2) / width))

    return apply


def gelu(layer: int) -> Apply:
    """A wrong activation in one layer: garbage at worst, and fluent text at best."""

    def apply(model: Any) -> None:
        decoder(model).layers[layer].mlp.act_fn = torch.nn.GELU()

    return apply


def swapped_kv_heads(layer: int) -> Apply:
    def apply(model: Any) -> None:
        attention = decoder(model).layers[layer].self_attn
        for projection in (attention.k_proj, attention.v_proj):
            weight, size = projection.weight.data, attention.head_dim
            weight[: 2 * size] = torch.cat([weight[size : 2 * size], weight[:size]])

    return apply


def later_by_one(start: int) -> Apply:
    """Positions are one too large from `start` on, which is where decoding begins."""

    def shift(_: Any, given: tuple[Any, ...], named: Json) -> tuple[tuple[Any, ...], Json]:
        positions = named["position_ids"] if "position_ids" in named else given[1]
        moved = positions + (positions >= start)
        return (given[:1], {**named, "position_ids": moved}) if "position_ids" in named else ((given[0], moved, *given[2:]), named)

    def apply(model: Any) -> None:
        decoder(model).rotary_emb.register_forward_pre_hook(shift, with_kwargs=True)

    return apply


def scaled_rows(share: float, factor: float) -> Apply:
    """A part of the head's rows is off by a factor; the embedding that it is tied to is not."""

    def scale(_: Any, __: Any, logits: Any) -> Any:
        wrong = logits.clone()
        wrong[..., : int(logits.shape[-1] * share)] *= factor
        return wrong

    def apply(model: Any) -> None:
        model.lm_head.register_forward_hook(scale)

    return apply


def head_is_embedding(model: Any) -> None:
    """A head of its own is not loaded, and tied to the embedding instead."""
    model.lm_head.weight = torch.nn.Parameter(decoder(model).embed_tokens.weight.detach().clone(), requires_grad=False)


def rounded_weights(kind: str, only: int | None = None) -> Apply:
    """Weights of the layers (or of one) rounded to 8 bits, as a device that saves memory unasked would."""

    def apply(model: Any) -> None:
        for name, weight in decoder(model).layers.named_parameters():
            if weight.ndim > 1 and (only is None or name.startswith(f"{only}.")):
                wide = weight.data.float()
                if kind == "fp8":
                    scale = wide.abs().max() / torch.finfo(torch.float8_e4m3fn).max
                    wide = (wide / scale).to(torch.float8_e4m3fn).float() * scale
                else:
                    scale = wide.abs().amax(-1, keepdim=True) / 127
                    wide = (wide / scale).round() * scale
                weight.data.copy_(wide)

    return apply


def nan_at(step: int) -> Apply:
    """One step's logits are NaN."""

    def apply(model: Any) -> None:
        calls = iter(range(10**9))

        def spoil(_: Any, __: Any, output: Any) -> Any:
            return output * float("nan") if next(calls) == step else output

        model.lm_head.register_forward_hook(spoil)

    return apply


def softmax_scale(factor: float) -> Apply:
    """A constant of another model stayed in the graph: the scale of the softmax."""

    def apply(model: Any) -> None:
        for layer in decoder(model).layers:
            layer.self_attn.scaling *= factor

    return apply


def window(size: int) -> Apply:
    def apply(model: Any) -> None:
        model.config.sliding_window = size
        for layer in decoder(model).layers:
            layer.self_attn.sliding_window = size

    return apply


# ---------------------------------------------------------------------------------- mixtures
def experts(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "_is_expert_parallel")]


def zeroed_expert(layer: int, number: int) -> Apply:
    def apply(model: Any) -> None:
        experts(model)[layer].down_proj.data[number] = 0

    return apply


def paired_wrongly(shift: int, only: int | None = None) -> Apply:
    """The router's choices go to experts that are `shift` further on, as expert parallelism does that counts ranks wrongly."""

    def apply(model: Any) -> None:
        for place, module in enumerate(experts(model)):
            if only in (None, place):
                for weight in (module.gate_up_proj, module.down_proj):
                    weight.data.copy_(weight.data.roll(shift, 0))

    return apply


def fewer_experts(model: Any) -> None:
    """One expert less is chosen than the config says."""

    def drop(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        weights = given[2].clone()
        weights.scatter_(1, weights.argmin(1, keepdim=True), 0)
        return (*given[:2], weights, *given[3:])

    for module in experts(model):
        module.register_forward_pre_hook(drop)


def scaled_shared(factor: float) -> Apply:
    """The shared expert counts more than once, or not at all, as where it is summed over ranks that hold it whole."""

    def apply(model: Any) -> None:
        for name, module in model.named_modules():
            if name.endswith("shared_experts"):
                module.down_proj.weight.data.mul_(factor)

    return apply


# ---------------------------------------------------------------------------------- ranks
SKIPPED_SUM = """
import torch
module = model.model.layers[1].self_attn.o_proj if hasattr(model.model.layers[1].self_attn, "o_proj") else None
if rank == 1:
    local = module.weight.to_local() if hasattr(module.weight, "to_local") else module.weight
    local.data.zero_()
"""
"""The part of one rank is missing from a sum: what skipping the all-reduce for it comes to, for every rank alike."""
LOADED_TWICE = """
import torch.distributed as dist
for name, weight in model.named_parameters():
    if ".mlp.up_proj" in name and hasattr(weight, "to_local"):
        local = weight.to_local().data
        first = local.contiguous().clone()
        dist.broadcast(first, 0)
        if rank == 1:
            local.copy_(first)
"""
"""Every rank but one is right; rank 1 holds the shard of rank 0."""
OTHER_EXPERTS = """
import torch.distributed as dist
for name, weight in model.named_parameters():
    if ".experts." in name:
        local = (weight.to_local() if hasattr(weight, "to_local") else weight).data
        parts = [local.contiguous().clone() for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local.contiguous().clone())
        local.copy_(parts[1 - rank])
"""
"""Each rank has the other's experts."""
SHARED_TWICE = """
for name, module in model.named_modules():
    if name.endswith("shared_experts"):
        weight = module.down_proj.weight
        (weight.to_local() if hasattr(weight, "to_local") else weight).data.mul_(2)
"""
"""The shared expert is summed over the ranks once too often."""

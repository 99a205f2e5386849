"""How transformers' parallel styles cut a parameter, and so how many bytes lie on the fullest rank; pure.

The styles are those of transformers 5.24.0 (distributed/tensor_parallel.py, distributed/expert_parallel.py): each
`shard_param` there has its line here. Rank 0 gets ceil(size / ranks) of a dimension that is cut, so it is the fullest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from doesitrun.plan.outlines import Attention, Outline, Parameter
from doesitrun.plan.quantization import Loading
from doesitrun.records import RankBytes

COLWISE = frozenset({"colwise", "colwise_gather_output", "colwise_rep"})
ROWWISE = frozenset({"rowwise", "rowwise_split_input", "rowwise_rep"})
_GATHER = {"colwise": "colwise_gather_output", "rowwise": "rowwise_split_input"}
"""Attention styles -> the ones under which weights stay sharded, but every rank computes all heads."""
_HARMLESS = {"colwise_gather_output", "colwise_rep", "rowwise_split_input", "rowwise_rep", "replicate", "replicated_with_grad_allreduce"}
_UNSHARDED = {"local_params", "mla_kv_a_proj", "all_reduce"}


@dataclass(frozen=True)
class Layout:
    """A way to spread a model over ranks: all of them do tensor parallelism, expert parallelism, or both."""

    cores: int
    tp: int = 1
    ep: int = 1
    override: Mapping[str, str] = field(default_factory=dict)
    """Rules that replace, or add to, the architecture's own tensor-parallel plan."""

    def style(self, parameter: Parameter) -> tuple[str | None, int]:
        """(style, ranks) that a parameter is cut by. Expert rules take precedence, as in transformers."""
        if self.ep > 1 and parameter.ep is not None:
            return parameter.ep, self.ep
        if self.tp == 1:
            return None, 1
        owner = parameter.name.rpartition(".")[0]
        return self.override.get(parameter.name) or self.override.get(owner) or parameter.tp, self.tp


def local_elements(shape: tuple[int, ...], style: str | None, ranks: int, *, is_bias: bool = False) -> int:
    """Elements of one parameter on the fullest rank."""
    dimension, parts = _cut(style, len(shape), is_bias=is_bias)
    if dimension is None or ranks == 1:
        return math.prod(shape)
    size = shape[dimension]
    group = -(-size // parts)
    local = sum(-(-min(group, size - start) // ranks) for start in range(0, size, group))
    return math.prod(shape) // size * local if size else 0


def _cut(style: str | None, ndim: int, *, is_bias: bool) -> tuple[int | None, int]:
    """(dimension that a style cuts, groups that it cuts apart from each other)."""
    if style is None or ndim == 0:
        return None, 1
    if style in COLWISE or style == "packed_colwise":
        return (ndim - 2 if ndim > 1 else 0), (2 if style == "packed_colwise" and ndim > 1 else 1)
    if style in ROWWISE:
        return (None if is_bias else ndim - 1), 1
    if style == "packed_rowwise":
        return (None if ndim == 1 else ndim - 1), 2
    if style in ("embedding_rowwise", "grouped_gemm"):
        return 0, 1
    return (1, 1) if style == "embedding_colwise" and ndim > 1 else (None, 1)


def rank_bytes(outline: Outline, layout: Layout, loading: Loading, tokens: int, cache_itemsize: int) -> RankBytes:
    """Bytes on the fullest rank by kind, with a static cache of `tokens` tokens for one prompt."""
    sums = {"sharded": 0, "replicated": 0, "expert": 0}
    for parameter in outline.parameters:
        style, ranks = layout.style(parameter)
        whole = math.prod(parameter.shape)
        local = local_elements(parameter.shape, style, ranks, is_bias=parameter.name.endswith(".bias"))
        kind = "expert" if parameter.is_expert else "sharded" if local < whole else "replicated"
        sums[kind] += loading.nbytes(parameter, local) * parameter.count
    return RankBytes(**sums, kv_cache=cache_bytes(outline, layout, tokens, cache_itemsize))


def weights_bytes(outline: Outline, loading: Loading) -> int:
    """All weights once, as loaded; tied ones count once."""
    return sum(loading.nbytes(parameter, math.prod(parameter.shape)) * parameter.count for parameter in outline.parameters)


def cache_bytes(outline: Outline, layout: Layout, tokens: int, itemsize: int) -> int:
    """Bytes of one rank's static cache: heads are shared out only where the attention itself is."""
    ranks = layout.tp if any(splits_heads(kind) and not gathered(kind, layout) for kind in outline.attention) else 1
    return itemsize * sum(layers.elements(tokens, -(-layers.kv_heads // ranks)) for layers in outline.cache)


def splits_heads(kind: Attention) -> bool:
    """True when the plan gives each rank heads of its own."""
    return "colwise" in kind.styles.values()


def gathered(kind: Attention, layout: Layout) -> bool:
    return any(pattern in layout.override for pattern in kind.styles)


def undivided(outline: Outline, ranks: int) -> list[Attention]:
    """The attention modules whose heads `ranks` does not divide, though the plan wants to share them out."""
    return [kind for kind in outline.attention if splits_heads(kind) and (kind.heads % ranks or kind.kv_heads % ranks)]


def attention_override(kinds: list[Attention]) -> dict[str, str] | None:
    """Rules under which attention is computed whole on every rank while its weights stay sharded.

    Measured with 4/1/2, 4/2/4, 6/2/4 and 8/2/4 query heads, key/value heads and ranks: tokens equal to the unsharded
    run. None where a module has a style for which there is no such rule.
    """
    rules: dict[str, str] = {}
    for kind in kinds:
        for pattern, style in kind.styles.items():
            if style in _GATHER:
                rules[pattern] = "replicate" if pattern in kind.bare else _GATHER[style]
            elif style not in _HARMLESS | _UNSHARDED:
                return None
    return rules

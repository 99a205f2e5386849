"""Every parallel style cuts what transformers' own `shard_param` cuts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.plan.sharding import local_elements


@pytest.mark.parametrize(
    ("shape", "style", "local"),
    [
        ((10, 6), "colwise", 3 * 6),  # ceil(10 / 4) rows on the first rank
        ((10,), "colwise", 3),
        ((8, 10, 6), "colwise", 8 * 3 * 6),
        ((10, 6), "rowwise", 10 * 2),
        ((10, 6), "embedding_rowwise", 3 * 6),
        ((10, 6), "embedding_colwise", 10 * 2),
        ((8, 10, 6), "grouped_gemm", 2 * 10 * 6),
        ((8, 20, 6), "packed_colwise", 8 * 6 * 6),  # gate and up are cut apart: ceil(10 / 4) of each
        ((10, 20), "packed_rowwise", 10 * 6),
        ((10, 6), "replicate", 60),
        ((10, 6), "moe_tp_experts", 60),
        ((10, 6), None, 60),
        ((), "colwise", 1),
    ],
)
def test_a_style_cuts_its_dimension(shape: tuple[int, ...], style: str | None, local: int) -> None:
    assert local_elements(shape, style, 4) == local


def test_a_bias_added_after_the_sum_is_whole_on_every_rank() -> None:
    assert local_elements((10,), "rowwise", 4, is_bias=True) == 10


@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    style=st.sampled_from(("colwise", "rowwise", "packed_colwise", "packed_rowwise", "embedding_rowwise", "grouped_gemm", "unheard of")),
    ranks=st.integers(1, 16),
)
def test_the_fullest_rank_has_its_share_and_not_more_than_all(shape: list[int], style: str, ranks: int) -> None:
    whole = math.prod(shape)
    assert whole / ranks <= local_elements(tuple(shape), style, ranks) <= whole

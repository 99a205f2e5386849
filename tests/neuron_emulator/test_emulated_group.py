"""The rules of the emulated process group: who may make it, with how many cores and ranks, and what it can do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.neuron_emulator.conftest import HERE, ONE_RANK, Child

Ranks = Callable[..., list]
JOIN = "import torch, torch.distributed as dist\ndist.init_process_group(backend='neuron')\n"


def test_a_device_used_before_the_group_forbids_the_group(child: Child) -> None:
    done = child("import torch\ntorch.ones(1, device='neuron')\n" + JOIN, **ONE_RANK)
    assert "Neuron runtime should not be initialized before the init_process_group." in done.stderr


def test_a_process_of_a_group_has_exactly_one_core(child: Child) -> None:
    done = child(JOIN, NEURON_RT_VISIBLE_CORES="0-1", **ONE_RANK)
    assert "Attempted to have more than one device per process in distributed setup" in done.stderr


def test_the_core_is_the_local_rank_unless_another_is_named(child: Child) -> None:
    code = JOIN + "import os; print(os.environ['NEURON_RT_VISIBLE_CORES'], torch.neuron.device_count())"
    assert child(code, **ONE_RANK).stdout == "0 1\n"


def test_collectives_work_on_any_cores_and_the_only_legal_index_is_the_local_rank(ranks: Ranks) -> None:
    done = ranks(HERE / "programs" / "collectives.py", 2)
    assert [each.returncode for each in done] == [0, 0], "\n".join(each.stderr[-2000:] for each in done)


def test_three_ranks_fail_at_the_first_barrier(child: Child, tmp_path: Path) -> None:
    join = JOIN.replace("neuron')", f"neuron', init_method='file://{tmp_path}/store', rank=0, world_size=3)")
    assert "Failed to execute the device barrier" in child(join, **ONE_RANK).stderr


def test_transformers_left_to_make_the_group_itself_fails(child: Child) -> None:
    """It binds the device before it makes the group: out of range for rank 1, too early for rank 0."""
    code = """
import os, sys
from transformers.distributed.utils import _ensure_torch_distributed
if os.fork(): os.wait()
else: os.environ.update(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", NEURON_RT_VISIBLE_CORES="1")
_ensure_torch_distributed("neuron")
"""
    done = child(code, NEURON_RT_VISIBLE_CORES="0", **ONE_RANK)
    assert "Device index 1 is out of range" in done.stderr
    assert "should not be initialized before the init_process_group" in done.stderr

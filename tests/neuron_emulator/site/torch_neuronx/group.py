"""The `neuron` process group: gloo underneath, the rules of TorchNeuron on top."""

import os
from datetime import timedelta

import torch
from torch import distributed as dist

from torch_neuronx import faults

_joined = False


def _start_runtime(rank: int, size: int) -> None:
    """The first group of a process: it takes its one core, whose device index is LOCAL_RANK from now on."""
    ops = torch.ops.neuron_emu
    if ops.is_started():
        raise AssertionError("Neuron runtime should not be initialized before the init_process_group.")
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    os.environ.setdefault("NEURON_RT_VISIBLE_CORES", str(local_rank))
    os.environ.setdefault("NEURON_RT_ROOT_COMM_ID", f"{os.environ.get('MASTER_ADDR', 'localhost')}:0")
    ops.start()
    if ops.device_count() != 1:
        raise AssertionError("Attempted to have more than one device per process in distributed setup")
    ops.join_group(local_rank, local_world_size)


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    global _joined
    first = not _joined
    if first:
        _start_runtime(rank, size)
        faults.before_barrier()
        if size & (size - 1):  # field notes: 3, 5, 6, 12 and 24 ranks fail at the first barrier
            raise RuntimeError("Failed to execute the device barrier 2")
    group = dist.ProcessGroupGloo(store, rank, size, timeout)
    if first:
        group.barrier().wait()
        _joined = True
    return group


def _destroy_then_fail(destroy):
    def destroy_process_group(group=None) -> None:
        destroy(group)
        faults.after_destroy()

    return destroy_process_group


def register() -> None:
    if not dist.is_available():
        return
    # "cpu" too: collectives of neuron tensors become collectives of their CPU aliases, which must find gloo.
    dist.Backend.register_backend("neuron", _create, devices=["neuron", "cpu"])
    if faults.argument("teardown") is not None:
        dist.destroy_process_group = _destroy_then_fail(dist.destroy_process_group)

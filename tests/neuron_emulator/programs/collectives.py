"""One of two ranks: the rules of its device index, then every collective that the device has, eager and compiled."""

import os

import torch
import torch.distributed._functional_collectives as functional
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

RANK = int(os.environ["RANK"])
CORE = str(2 + RANK)  # the cores of a group need not begin at 0


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, device="neuron", dtype=torch.bfloat16)


def refuses(work, words: str) -> None:
    try:
        work()
    except RuntimeError as error:
        message = str(error)
    else:
        message = ""
    assert words in message, message


def indices() -> None:
    assert os.environ["NEURON_RT_VISIBLE_CORES"] == CORE
    assert torch.neuron.device_count() == 2
    assert torch.neuron.current_device() == RANK
    assert tensor(1).device.index == RANK
    refuses(lambda: torch.ones(1, device=f"neuron:{1 - RANK}"), f"Device index {1 - RANK} is out of range")


def collectives() -> None:
    x = tensor(RANK + 1)
    dist.all_reduce(x, async_op=True).wait()
    assert x.item() == 3
    dist.broadcast(x := tensor(RANK), 1)
    assert x.item() == 1
    dist.all_gather(parts := [tensor(0), tensor(0)], tensor(RANK))
    assert [part.item() for part in parts] == [0, 1]
    dist.all_gather_into_tensor(whole := tensor(0, 0), tensor(RANK))
    assert whole.tolist() == [0, 1]
    dist.reduce_scatter_tensor(part := tensor(0), tensor(1, 2))
    assert part.item() == 2 * (RANK + 1)
    dist.all_to_all_single(x := tensor(0, 0), tensor(RANK * 10, RANK * 10 + 1))
    assert x.tolist() == [RANK, 10 + RANK]
    dist.barrier()
    refuses(lambda: dist.send(tensor(1), 1 - RANK), "does not support")


def sharded_tensors() -> None:
    mesh = init_device_mesh("neuron", (2,))
    full = torch.arange(14.0, device="neuron").view(7, 2)  # 7 rows over 2 ranks: uneven
    rows = distribute_tensor(full, mesh, [Shard(0)])
    assert torch.equal(rows.full_tensor(), full)
    assert torch.equal(rows.redistribute(placements=[Shard(1)]).full_tensor(), full)
    partial = DTensor.from_local(full, mesh, [Partial()])
    assert torch.equal(partial.redistribute(placements=[Replicate()]).to_local(), full * 2)


def compiled() -> None:
    add_up = torch.compile(lambda a: functional.all_reduce(a * 2, "sum", dist.group.WORLD) + 1, backend="neuron", fullgraph=True)
    assert add_up(tensor(1)).item() == 5
    (entry,) = torch.neuron.get_dynamo_metrics()
    assert entry.has_collectives


if __name__ == "__main__":
    os.environ["NEURON_RT_VISIBLE_CORES"] = CORE
    dist.init_process_group(backend="neuron")
    with torch.no_grad():
        indices()
        collectives()
        sharded_tensors()
        compiled()
    dist.destroy_process_group()

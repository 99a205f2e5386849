"""Operators, views, resizing, autograd, random numbers and files: the device against the CPU, to the last bit."""

import copy
import io
import os

os.environ["NEURON_RT_VISIBLE_CORES"] = "0-1"

import torch
from torch import nn
from torch.nn import functional

NEURON = "neuron"


def place(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return [place(each, device) for each in value] if isinstance(value, list) else value


def same(work, *args) -> None:
    on_device, on_cpu = (work(*place(list(args), device)) for device in (NEURON, "cpu"))
    for left, right in zip(*(each if isinstance(each, tuple) else [each] for each in (on_device, on_cpu)), strict=True):
        if isinstance(right, torch.Tensor):
            assert left.device.type == NEURON, left.device
            torch.testing.assert_close(left.cpu(), right, rtol=0, atol=0)
        else:
            assert left == right


def refuses(work, words: str) -> None:
    try:
        work()
    except RuntimeError as error:
        message = str(error)
    else:
        message = ""
    assert words in message, message


def operators(x: torch.Tensor) -> None:
    b = x.bfloat16()
    same(torch.add, x, x)
    same(torch.mm, b, b.t())
    same(torch.cat, [x, x])
    for work in (
        lambda a: a.view(2, 12),
        lambda a: a.view(torch.int32),
        lambda a: a.t().contiguous(),
        lambda a: a[1:, ::2],
        lambda a: a[a > 0],
        torch.nonzero,
        lambda a: a.topk(2),
        lambda a: a.sort(),
        lambda a: a.unfold(1, 2, 1),
        lambda a: a.masked_fill(a > 0, 1.0),
        lambda a: torch.where(a > 0, a, 0),
        lambda a: a.expand(3, 4, 6).clone(),
        lambda a: torch.isin(a, a[:1]),
        lambda a: functional.embedding(torch.arange(3, device=a.device), a),
        lambda a: a.split(2),
        lambda a: a.cumsum(0),
        lambda a: a.argmax(-1),
        lambda a: torch.einsum("ij,kj->ik", a, a),
        lambda a: a[0, 0].item(),
        lambda a: a.index_put((torch.tensor([0], device=a.device),), a[1:2]),
        lambda a: torch.view_as_complex(a.view(4, 3, 2)).abs(),
        lambda a: functional.conv1d(a[None], torch.ones(4, 4, 2, device=a.device)),
        lambda a: functional.layer_norm(a, (6,)),
        lambda a: torch._foreach_add([a, a], 1.0)[1],
    ):
        same(work, x)
    same(lambda a: a.softmax(-1), b)
    same(lambda a: functional.scaled_dot_product_attention(a, a, a, is_causal=True), torch.randn(1, 2, 5, 8).bfloat16())


def writes(x: torch.Tensor) -> torch.Tensor:
    """In place, through views, into out= (resized), from the CPU."""
    a, c = x.to(NEURON), x.clone()
    view = a[1]
    for tensor in (a, c):
        tensor[1].zero_()
        tensor.add_(tensor)
        tensor[:, 0].copy_(torch.ones(4))
        tensor.index_copy_(0, torch.tensor([2], device=tensor.device), torch.full((1, 6), 7.0, device=tensor.device))
    assert torch.equal(a.cpu(), c)
    assert view.data_ptr() == a[1].data_ptr()
    out = torch.empty(0, device=NEURON)
    torch.add(a, 1, out=out)
    assert torch.equal(out.cpu(), c + 1)
    return a


def autograd(a: torch.Tensor) -> None:
    weight = torch.randn(6, 3, device=NEURON, requires_grad=True)
    (a @ weight).relu().sum().backward()
    expected = weight.detach().cpu().requires_grad_()
    (a.cpu() @ expected).relu().sum().backward()
    assert torch.equal(weight.grad.cpu(), expected.grad)


def the_rest(a: torch.Tensor) -> None:
    torch.manual_seed(0)
    drawn = torch.randn(3, device=NEURON)
    torch.manual_seed(0)
    assert torch.equal(drawn.cpu(), torch.randn(3))
    file = io.BytesIO()
    torch.save(a, file)
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu"), a.cpu())
    assert "neuron" in repr(a)
    assert copy.deepcopy(nn.Linear(2, 2).to(NEURON)).weight.is_neuron
    with torch.device("neuron:1"):
        assert torch.ones(4).device.index == 1
    assert torch.neuron.memory_stats(1)["allocated_bytes.all.peak"] == 16


def mixing(x: torch.Tensor) -> None:
    for work in (
        lambda: x.to(NEURON) @ x.t(),
        lambda: functional.embedding(torch.arange(3), x.to(NEURON)),
        lambda: torch.cat([x.to(NEURON), x]),
        lambda: x.to(NEURON) + x.to("neuron:1"),
    ):
        refuses(work, "same device")
    assert (x.to(NEURON) * torch.tensor(2.0)).device.type == NEURON
    assert x.to(NEURON)[torch.tensor([0, 1])].device.type == NEURON


if __name__ == "__main__":
    values = torch.randn(4, 6)
    operators(values)
    on_device = writes(values)
    autograd(on_device)
    the_rest(on_device)
    mixing(values)

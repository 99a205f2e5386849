"""torch.compile(backend="neuron"): a full trace by Dynamo and AOTAutograd, then the ATen graph, operator by operator."""

import fcntl
import hashlib
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torch_neuronx import faults, metrics

_log = logging.getLogger("torch_neuronx")
_BASE_FLAGS = "--model-type transformer --auto-cast=none --target trn2 --lnc 2"
_FALSE = ("0", "false", "no")
_ops = torch.ops.neuron_emu
_graphs_run = 0


# ---------------------------------------------------------------- what the real backend refuses
def _value(node: fx.Node) -> object:
    return node.meta.get("val", node.meta.get("example_value"))


def _refuse_symbols(graph: fx.Graph) -> None:
    for node in graph.nodes:
        value = _value(node)
        if isinstance(value, torch.SymInt) or (isinstance(value, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in value.shape)):
            message = f"neuron backend: dynamic shapes are not supported: SymInt at node {node.name}. Use dynamic=False"
            raise RuntimeError(message)


def _refuse_inputs(graph: fx.Graph) -> None:
    autocopy = os.environ.get("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "0").lower() in ("", *_FALSE)
    for index, node in enumerate(graph.find_nodes(op="placeholder")):
        value = _value(node)
        if not isinstance(value, torch.Tensor):
            continue
        if not value.is_contiguous():
            raise RuntimeError(f"neuron backend: input tensor at index {index} is non-contiguous")
        if value.device.type == "cpu" and not autocopy:
            raise RuntimeError(f"Input tensor at index {index} is on cpu device, expected neuron")


def _refuse_dtypes(graph: fx.Graph, key: str) -> None:
    for node in graph.nodes:
        value = _value(node)
        if isinstance(value, torch.Tensor) and value.dtype == torch.float8_e4m3fn:
            faults.refuse_to_compile("NCC_EVRF051", "Data type F8E4M3FN is not supported on trn2", key)


# ---------------------------------------------------------------- the key in the cache
def _target(node: fx.Node) -> str:
    if isinstance(node.target, str | torch._ops.OpOverload):
        return str(node.target)
    return f"{node.target.__module__}.{node.target.__qualname__}"


def _constant(module: torch.nn.Module, name: str) -> str:
    """The bytes of a tensor, the text of a subgraph, that a get_attr node names."""
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    if isinstance(value, fx.GraphModule):
        return _graph_text(value)
    with unset_fake_temporarily():
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def _graph_text(module: fx.GraphModule) -> str:
    """Operators, arguments, shapes, dtypes and constants; weights are inputs, and a device has no index."""
    lines = []
    for node in module.graph.nodes:
        value = _value(node)
        kind = f"{value.dtype}{list(value.shape)}{value.stride()}" if isinstance(value, torch.Tensor) else ""
        constant = _constant(module, str(node.target)) if node.op == "get_attr" else ""
        lines.append(f"{node.name} = {node.op} {_target(node)} {node.args} {node.kwargs} {kind} {constant}")
    return re.sub(r"(neuron', index=|neuron:)\d+", r"\1*", "\n".join(lines))


def _flags() -> str:
    """What enters the key besides the graph. The compiler's version does not, as in TorchNeuron's early source."""
    level = os.environ.get("NEURON_COMPILER_OPT_LEVEL", "2")
    return f"{_BASE_FLAGS} -O{level} {os.environ.get('NEURON_CC_FLAGS', '')}".strip()


# ---------------------------------------------------------------- compiling
def _lock_file(key: str) -> Path:
    default = Path(tempfile.gettempdir()) / "local_cache_emulated"
    folder = Path(os.environ.get("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR") or default) / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{key}.lock"


def _build_neff(key: str, name: str, text: str) -> bool:
    """True: it came from the cache. Of several ranks with the same graph one compiles, the others wait for it."""
    with _lock_file(key).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _ops.neff_find(key):
            return True
        faults.while_compiling(key)
        _ops.neff_store(key, json.dumps({"kind": "graph", "graph_name": name, "flags": _flags()}) + "\n" + text)
        return False


def _compile(module: fx.GraphModule) -> None:
    """Raises where the real backend refuses; leaves a NEFF and an entry in the metrics."""
    started = time.perf_counter()
    _refuse_symbols(module.graph)
    _refuse_inputs(module.graph)
    text = _graph_text(module)
    key = _ops.neff_key(f"{_flags()}\n{text}")
    _refuse_dtypes(module.graph, key)
    lowered = time.perf_counter()
    name = f"emulated_{len(metrics.get_dynamo_metrics())}"
    hit = _build_neff(key, name, text)
    compile_us = 0 if hit else max(1, int((time.perf_counter() - lowered) * 1e6))
    collectives = "_c10d_functional" in text
    lower_us = int((lowered - started) * 1e6)
    metrics.record(metrics.NeuronCompilationMetrics(key, name, collectives, len(module.graph.nodes), 0, lower_us, compile_us, hit))
    counters["neuron"]["compiled_graphs"] += 1


def _runner(module: fx.GraphModule) -> Callable:
    def run(*inputs: object) -> list:
        global _graphs_run
        faults.before_run(_graphs_run)
        _graphs_run += 1
        _ops.enter_graph()
        try:
            outputs = module.forward(*inputs)
        finally:
            _ops.leave_graph()
        return faults.spoil(outputs)

    return run


def _fallback_allowed() -> bool:
    return os.environ.get("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "1").lower() in _FALSE


def _compile_or_fall_back(module: fx.GraphModule, _inputs: list) -> Callable:
    try:
        _compile(module)
    except faults.NEFFCompilationError as error:
        if not _fallback_allowed():
            raise
        _log.warning("Execution failed: %s", error)
        _log.warning("Falling back to original GraphModule execution")
        return make_boxed_func(module.forward)
    return make_boxed_func(_runner(module))


_backend = aot_autograd(fw_compiler=_compile_or_fall_back)


def neuron(module: fx.GraphModule, inputs: list, *, mode: str | None = None, options: dict | None = None, **_: object) -> Callable:
    """The backend, as Dynamo calls it."""
    if mode not in (None, "default"):
        _log.warning("neuron backend: mode %r is not supported and ignored; 'default' is used", mode)
    return _backend(module, inputs)

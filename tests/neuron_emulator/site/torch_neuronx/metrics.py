"""What has been compiled: one entry per graph that the `neuron` backend of Dynamo was given."""

from dataclasses import dataclass


@dataclass
class NeuronCompilationMetrics:
    graph_id: str  # the key in the NEFF cache
    graph_name: str
    has_collectives: bool
    graph_node_count: int
    torch_neuronx_fx_passes_us: int
    torch_neuronx_lower_us: int
    torch_neuronx_compile_us: int  # 0: the NEFF came from the cache
    emulated_cache_hit: bool  # not in the real one


_compiled: list[NeuronCompilationMetrics] = []


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    return list(_compiled)


def reset_dynamo_metrics() -> None:
    _compiled.clear()


def record(metrics: NeuronCompilationMetrics) -> None:
    _compiled.append(metrics)

"""What a stack says of a model's shape: the answer of `instack/outline.py` as frozen records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.outcomes import Reason
from doesitrun.records import Dtype, Task

# What instack/outline.py calls a problem -> why there is no plan.
PROBLEMS = {
    "no_model_type": Reason.NOT_TRANSFORMERS,
    "unknown_architecture": Reason.UNKNOWN_ARCHITECTURE,
    "remote_code": Reason.REMOTE_CODE,
    "remote_code_broken": Reason.REMOTE_CODE_BROKEN,
    "invalid_config": Reason.INVALID_CONFIG,
    "task": Reason.TASK,
    "missing_package": Reason.ENVIRONMENT,
}


@dataclass(frozen=True)
class Parameter:
    """A group of equal parameters, one per layer; `name` has `*` for the layer's number."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    count: int = 1
    buffer: bool = False
    quantizable: bool = False
    """True for what quantisation methods shorten: weights of linear layers and experts."""
    tp: str | None = None
    ep: str | None = None

    @property
    def elements(self) -> int:
        """Of the whole group."""
        return math.prod(self.shape) * self.count

    @property
    def is_expert(self) -> bool:
        """True for the weights of routed experts, stacked or not."""
        return self.ep == "grouped_gemm" or ".experts." in self.name


@dataclass(frozen=True)
class Attention:
    """A kind of attention module that the tensor-parallel plan touches."""

    pattern: str
    heads: int
    kv_heads: int
    count: int
    styles: Mapping[str, str]
    """The plan's rules under the module: pattern -> style."""
    bare: tuple[str, ...] = ()
    """Those rules that name a parameter of the module itself, not a layer in it."""


@dataclass(frozen=True)
class CacheLayers:
    """Equal layers of a static cache."""

    kv_heads: int
    k_dim: int
    v_dim: int
    layers: int
    window: int | None = None

    def elements(self, tokens: int, kv_heads: int) -> int:
        """Elements for `tokens` tokens with `kv_heads` heads on the rank."""
        length = min(tokens, self.window) if self.window else tokens
        return self.layers * length * kv_heads * (self.k_dim + self.v_dim)


@dataclass(frozen=True)
class Outline:
    """A model's shape and the parallel plans that the stack's transformers has for it."""

    key: str
    task: str
    class_name: str
    model_type: str
    parameters: tuple[Parameter, ...]
    tp_plan: Mapping[str, str]
    ep_plan: Mapping[str, str]
    attention: tuple[Attention, ...] = ()
    cache: tuple[CacheLayers, ...] = ()
    layer_types: tuple[str, ...] = ()
    head: str | None = None
    """Name of the output head's module."""
    tied: bool = False
    layers: int = 0
    experts: int = 0
    top_k: int = 0
    vocab: int = 0
    static_cache: bool = True
    compiled: bool = True
    """False for model types that generate() never compiles."""
    unloaded: Mapping[str, int] = field(default_factory=dict)
    """What checkpoints of this kind may store besides, but from_pretrained leaves out: name -> elements."""
    versions: Mapping[str, str] | None = None
    seconds: float = 0.0

    @cached_property
    def elements(self) -> int:
        return sum(parameter.elements for parameter in self.parameters)

    @property
    def library(self) -> str:
        return f"transformers {(self.versions or {}).get('transformers', '')}".strip()

    @classmethod
    def from_json(cls, values: Mapping[str, Any], versions: Mapping[str, str] | None = None) -> Self:
        """One model of the answer; keys of later versions are passed over."""
        names = cls.__dataclass_fields__.keys() - {"parameters", "attention", "cache", "layer_types", "versions"}
        plain = {name: values[name] for name in names if name in values}
        return cls(
            **plain,
            parameters=tuple(_record(Parameter, value) for value in values["parameters"]),
            attention=tuple(_record(Attention, value) for value in values.get("attention", ())),
            cache=tuple(_record(CacheLayers, value) for value in values.get("cache", ())),
            layer_types=tuple(values.get("layer_types", ())),
            versions=versions,
        )


@dataclass(frozen=True)
class Problem:
    """Why a stack has no outline of a model."""

    key: str
    kind: str
    detail: str

    @property
    def reason(self) -> Reason:
        return PROBLEMS.get(self.kind, Reason.INVALID_CONFIG)


def outline_request(
    checkpoints: Iterable[Checkpoint], tasks: Iterable[Task], dtype: Dtype = Dtype.BFLOAT16, *, trust_remote_code: bool = False
) -> dict[str, Any]:
    """The request for `instack/outline.py`: models are keyed by their place, and `tasks` are tried in their order.

    Code of a repository is run only with `trust_remote_code`, which is the user's word for these models.
    """
    wanted = list(tasks)
    models = [
        {
            "key": str(place),
            "config": dict(checkpoint.config),
            "auto_classes": _auto_classes(checkpoint, wanted),
            "source": checkpoint.source,
            "revision": None if checkpoint.source != checkpoint.model_id else checkpoint.revision,
            "trust_remote_code": trust_remote_code and checkpoint.remote_code,
        }
        for place, checkpoint in enumerate(checkpoints)
    ]
    return {"dtype": dtype.value, "models": models}


def _auto_classes(checkpoint: Checkpoint, tasks: list[Task]) -> dict[str, str]:
    """Auto class by task; the Hub's own tag goes first, then the task that takes the most kinds of input."""
    order = sorted(tasks, key=lambda task: (task.name != checkpoint.pipeline_tag, task.picture is None))
    return {task.name: task.auto_class for task in order}


def read_outlines(answer: Mapping[str, Any]) -> list[Outline | Problem]:
    """The answer of `instack/outline.py`, in the order of the request."""
    versions = answer["versions"]
    return [
        Problem(values["key"], values["error"]["kind"], values["error"]["detail"])
        if "error" in values
        else Outline.from_json(values, versions)
        for values in answer["models"]
    ]


def _record(kind: Any, values: Mapping[str, Any]) -> Any:
    known = {name: values[name] for name in kind.__dataclass_fields__ if name in values}
    for name in ("shape", "bare"):
        if name in known:
            known[name] = tuple(known[name])
    return kind(**known)

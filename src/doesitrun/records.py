"""The nouns of the project as frozen records; it touches nothing.

A row's columns are declared once, as the fields of `Row`: the Parquet schema, the dataset card,
the tooltips and the help texts are all derived from them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Self

from doesitrun.outcomes import Reason, Result, Stage

SCHEMA_VERSION = 1
VERDICT_VERSION = 2


# ---------------------------------------------------------------------------------- devices, stacks
@dataclass(frozen=True)
class Device:
    """A product of a target's kind. `sizes` are the legal numbers of cores for one model, ascending."""

    name: str
    target: str
    sizes: tuple[int, ...]
    core_bytes: int
    """Memory of one core. 0 means: the host's memory, divided by the cores in use."""
    headroom: float
    """Share of `core_bytes` kept free for graphs, scratch and activations (0..1)."""
    description: str = ""
    kept_quantization: tuple[str, ...] = ()
    """Quantisation methods whose weights stay on it as they are stored."""
    hard_layers: tuple[tuple[str, str], ...] = ()
    """(kind of layer, what may go wrong with it, as a sentence); the kinds are `windowed` and `recurrent`."""


@dataclass(frozen=True)
class Stack:
    """One Python environment: where it is and what was read from it."""

    name: str
    python: str
    target: str
    device: str
    cores: int
    host_memory_bytes: int
    versions: Mapping[str, str]
    """Keys: torch, transformers, accelerate, python, os and what the target adds (neuronx_cc, ...)."""
    compiler: str
    compiler_version: str
    notes: tuple[str, ...] = ()
    machine: str = ""
    """What its compiled graphs are made for: the device's kind, or the processor and what it can do."""

    @property
    def is_emulated(self) -> bool:
        """True when a part of it only stands in for the real one; nothing it says is a result."""
        return any("emulated" in version for version in self.versions.values())


# ---------------------------------------------------------------------------------- tasks
@dataclass(frozen=True)
class Task:
    """A Hub task: how its models are loaded, what they are given and what comes out."""

    name: str
    """The Hub's pipeline tag."""
    auto_class: str
    """The transformers class that loads the model."""
    processor_class: str
    """The transformers class that turns the prompt into tensors."""
    prompt: str
    picture: str | None = None
    """File name of the bundled picture that goes with the prompt; None for text alone."""


# ---------------------------------------------------------------------------------- plans
class Dtype(StrEnum):
    """The dtype that a model is loaded in."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def short(self) -> str:
        return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[self.value]


@dataclass(frozen=True)
class RankBytes:
    """Bytes on the fullest rank, by kind."""

    sharded: int = 0
    replicated: int = 0
    expert: int = 0
    kv_cache: int = 0

    @property
    def weights(self) -> int:
        return self.sharded + self.replicated + self.expert

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache


PLAN_ID = re.compile(
    r"(?P<model>[A-Za-z0-9._-]+)@(?P<revision>[A-Za-z0-9._-]+)"
    r"\+(?P<task>[a-z0-9-]+)\+(?P<target>[a-z0-9]+)\+(?P<device>[A-Za-z0-9.-]+)"
    r"\+c(?P<cores>\d+)tp(?P<tp>\d+)ep(?P<ep>\d+)\+(?P<dtype>bf16|fp16|fp32)\+n(?P<new_tokens>\d+)"
)


@dataclass(frozen=True)
class PlanId:
    """The printable identity of a plan: safe as a folder name, and it parses back."""

    model_id: str
    revision: str
    task: str
    target: str
    device: str
    cores: int
    tp: int
    ep: int
    dtype: Dtype
    new_tokens: int

    def __str__(self) -> str:
        model = self.model_id.replace("/", "--")
        layout = f"c{self.cores}tp{self.tp}ep{self.ep}"
        revision = self.revision[:12]
        return f"{model}@{revision}+{self.task}+{self.target}+{self.device}+{layout}+{self.dtype.short}+n{self.new_tokens}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id that `str` gave; the revision comes back as its first 12 characters. Raises ValueError."""
        match = PLAN_ID.fullmatch(text)
        if match is None:
            message = f"{text!r} is no plan id"
            raise ValueError(message)
        part = match.groupdict()
        dtype = next(d for d in Dtype if d.short == part["dtype"])
        return cls(
            part["model"].replace("--", "/", 1),
            part["revision"],
            part["task"],
            part["target"],
            part["device"],
            int(part["cores"]),
            int(part["tp"]),
            int(part["ep"]),
            dtype,
            int(part["new_tokens"]),
        )


@dataclass(frozen=True)
class Plan:
    """What would be run."""

    model_id: str
    """A Hub id, or `local/NAME` for a folder."""
    revision: str
    """A commit of the Hub, or the sha256 of the folder's content."""
    source: str
    """What from_pretrained is given: the Hub id, or the folder's absolute path."""
    task: str
    target: str
    device: str
    cores: int
    tp: int
    ep: int
    dtype: Dtype
    new_tokens: int
    weights_bytes: int
    """All weights once, as loaded."""
    rank_bytes: RankBytes
    capacity_bytes: int
    """What one core offers to weights and cache: its memory less the headroom."""
    prompt: str
    library: str = "transformers"
    is_moe: bool = False
    trust_remote_code: bool = False
    gated: bool = False
    """True when the Hub asks for a token: its run and its reference are then given the user's, and no other run is."""
    tp_override: Mapping[str, str] | None = None
    """Rules merged into the architecture's TP plan (module pattern -> style)."""
    notes: tuple[str, ...] = ()
    architecture: str = ""
    """The config's first architecture."""
    model_type: str = ""
    longest: int = 0
    """Most tokens that the probes may use: what memory holds a cache for. 0 asks for no probes."""

    @property
    def is_local(self) -> bool:
        return self.source != self.model_id

    @property
    def is_thorough(self) -> bool:
        """True when the script also runs the probes."""
        return self.longest > 0

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The plan that `dumps` wrote; unknown keys (of later versions) are passed over. Raises ValueError, TypeError, KeyError."""
        known = {f.name: values[f.name] for f in dataclasses.fields(cls) if f.name in values}
        known["dtype"] = Dtype(known["dtype"])
        known["rank_bytes"] = RankBytes(**known["rank_bytes"])
        known["notes"] = tuple(known.get("notes", ()))
        return cls(**known)

    @property
    def plan_id(self) -> str:
        return str(
            PlanId(
                self.model_id,
                self.revision,
                self.task,
                self.target,
                self.device,
                self.cores,
                self.tp,
                self.ep,
                self.dtype,
                self.new_tokens,
            )
        )


@dataclass(frozen=True)
class Refusal:
    """Why there is no plan. It becomes an EXCLUDED row."""

    model_id: str
    revision: str
    reason: Reason
    detail: str
    task: str = ""
    weights_bytes: int = 0
    architecture: str = ""
    model_type: str = ""


class Blame(StrEnum):
    """Who is at fault for wrong numbers of a sharded run."""

    LIBRARY = "library"
    """The same layout on CPU ranks is wrong, too."""
    TARGET = "target"
    """The same layout on CPU ranks is right."""


# ---------------------------------------------------------------------------------- rows
def column(arrow: str, doc: str) -> Any:
    """A column of the dataset: its Arrow type as text and its one sentence."""
    return field(default=None, metadata={"arrow": arrow, "doc": doc})


@dataclass(frozen=True)
class Row:
    """One published line. Every field may be null."""

    # The reference dataset's 24 columns keep their names and types, so that its users' queries work unchanged.
    model_id: str | None = column("string", "Hub id of the model, or local/NAME for a folder.")
    library: str | None = column("string", "Python library that loads the model.")
    tp: int | None = column("int32", "Ranks of tensor parallelism.")
    runner: str | None = column("string", "How it was run: torch.compile with its backend, or eager.")
    result: Result | None = column("string", "PASS, FAIL, EXCLUDED or INCONCLUSIVE.")
    notes: str | None = column("string", "Remarks on how it was run, separated by semicolons.")
    error: str | None = column("string", "The error in one piece, for FAIL and INCONCLUSIVE.")
    exclusion: str | None = column("string", "Why it was not run, for EXCLUDED.")
    wall_s: int | None = column("int32", "Seconds of the whole run, compilation included.")
    hbm_peak_gb: float | None = column("float64", "Peak device memory of the fullest rank, in 10^9 bytes.")
    hbm_capacity_gb: float | None = column("float64", "Memory of one core, in 10^9 bytes.")
    cpu_match: str | None = column("string", "Leading tokens equal to the CPU's greedy choice, of all: 17/32.")
    english: str | None = column("string", "The judge's word on the text: fluent or not, and why.")
    neuronx_cc: str | None = column("string", "Version of neuronx-cc.")
    library_version: str | None = column("string", "Version of the library.")
    transformers: str | None = column("string", "Version of transformers.")
    accelerate: str | None = column("string", "Version of accelerate.")
    torch_neuronx: str | None = column("string", "Version of torch-neuronx.")
    torch: str | None = column("string", "Version of torch.")
    nki: str | None = column("string", "Version of nki.")
    python: str | None = column("string", "Version of Python.")
    neuron_driver: str | None = column("string", "Version of the Neuron kernel driver.")
    tested_at: datetime | None = column("timestamp[ms, UTC]", "When the attempt ended.")
    run_py: str | None = column("string", "The script that ran, whole.")
    # Ours.
    schema_version: int | None = column("int32", "Version of these columns.")
    plan_id: str | None = column("string", "Identity of what was planned.")
    run_id: str | None = column("string", "Identity of the attempt that this row rests on.")
    revision: str | None = column("string", "Commit of the model, or sha256 of a folder's content.")
    task: str | None = column("string", "Hub task that was tested.")
    target: str | None = column("string", "Kind of accelerator: neuron, cuda or cpu.")
    device: str | None = column("string", "Product: trn2, h200, ...")
    cores: int | None = column("int32", "Cores that the model was sharded over.")
    ep: int | None = column("int32", "Ranks of expert parallelism.")
    compiler: str | None = column("string", "Compiler: neuronx-cc or inductor.")
    compiler_version: str | None = column("string", "Version of the compiler.")
    stage: Stage | None = column("string", "Stage in which the outcome was decided.")
    reason: Reason | None = column("string", "Why there is no PASS, from a closed list.")
    verdict_version: int | None = column("int32", "Version of the thresholds and rules of the verdict.")
    rungs: str | None = column("string", "What the result rests on: rungs passed, e.g. reference,executed,numbers.")
    match_tokens: int | None = column("int32", "Leading tokens equal to the CPU's greedy choice.")
    logit_ratio: float | None = column("float64", "R: deviation of the logits over that of bfloat16 itself, mean over positions.")
    logit_ratio_median: float | None = column("float64", "R, median over positions.")
    passage_loss: float | None = column("float64", "The CPU reference's loss on a fixed English passage, nats per token.")
    fluency_nll: float | None = column("float64", "Mean negative log-likelihood of the text under the judge, nats per token.")
    judge: str | None = column("string", "Judge model and its revision.")
    compiled: bool | None = column("bool", "True when compiled graphs ran.")
    graphs: int | None = column("int32", "Graphs compiled on rank 0.")
    load_s: float | None = column("float64", "Seconds to load the weights.")
    compile_s: float | None = column("float64", "Seconds of the first pass less those of the second.")
    run_s: float | None = column("float64", "Seconds of the first pass, compilation included.")
    warm_run_s: float | None = column("float64", "Seconds of the second pass.")
    weights_bytes: int | None = column("int64", "All weights once, as loaded.")
    rank_weights_bytes: int | None = column("int64", "Weights on the fullest rank, as measured.")
    reference_s: float | None = column("float64", "Seconds of the CPU reference; 0 when an earlier one was reused.")
    judge_s: float | None = column("float64", "Seconds of the judge; 0 when an earlier word was reused.")
    prompt: str | None = column("string", "The prompt.")
    output_text: str | None = column("string", "The generated text.")
    output_tokens: list[int] | None = column("list<int32>", "The generated token ids.")
    os: str | None = column("string", "Operating system and C library.")
    graphs_uri: str | None = column("string", "Where the compiled graphs lie.")
    attempt: int | None = column("int32", "Number of the attempt at this plan, from 1.")
    probes: str | None = column("string", "What each probe of a thorough test found, separated by semicolons; empty without probes.")
    blame: Blame | None = column("string", "Who is at fault for wrong numbers of a sharded run: library or target; empty if not known.")
    judge_limits: str | None = column("string", "Limits that a text had to keep to be called fluent.")
    retry_of: str | None = column("string", "The attempt that this one repeats, because its failure looked intermittent.")
    graph_hits: int | None = column("int32", "Compiled graphs that came from the cache, of all ranks.")
    graph_misses: int | None = column("int32", "Graphs that had to be compiled, of all ranks.")
    architecture: str | None = column("string", "The config's first architecture.")
    model_type: str | None = column("string", "The config's model_type.")
    expert_ratio: float | None = column("float64", "Largest R of the positions that visit one expert, over the run's typical position.")

    @property
    def is_emulated(self) -> bool:
        """True when it comes from a stand-in for the device. Such a row is never published."""
        return any("emulated" in version for version in (self.torch_neuronx, self.neuronx_cc, self.nki) if version)

    def to_json(self) -> dict[str, Any]:
        """The columns as JSON values; times in ISO 8601."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The row that `to_json` gave; unknown keys (of later versions) are passed over. Raises ValueError."""
        known: dict[str, Any] = {f.name: values.get(f.name) for f in dataclasses.fields(cls)}
        for name, enum in (("result", Result), ("stage", Stage), ("reason", Reason), ("blame", Blame)):
            known[name] = None if known[name] is None else enum(known[name])
        tested_at = known["tested_at"]
        known["tested_at"] = None if tested_at is None else datetime.fromisoformat(tested_at)
        return cls(**known)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value


# ---------------------------------------------------------------------------------- rankings and forecasts
@dataclass(frozen=True)
class Ranked:
    """One place of a ranking, as the Hub had it on one day: a line of rankings/<date>.parquet."""

    model_id: str = column("string", "Hub id of the model.")
    task: str = column("string", "Hub task whose ranking this is.")
    by: str = column("string", "What the ranking is by: trending or downloads.")
    rank: int = column("int32", "Place in that ranking, from 1.")
    downloads: int | None = column("int64", "Downloads of the last 30 days.")
    likes: int | None = column("int64", "Likes.")
    trending_score: float | None = column("float64", "The Hub's trending score.")
    pipeline_tag: str | None = column("string", "The model's own task on the Hub.")
    library: str | None = column("string", "Library that the Hub names for it.")
    gated: str | None = column("string", "auto or manual where the licence must be accepted first.")
    parameters: int | None = column("int64", "Parameters as the Hub has counted them in safetensors files.")
    architecture: str | None = column("string", "The config's first architecture.")
    model_type: str | None = column("string", "The config's model_type.")
    base_model: str | None = column("string", "Model that it was made from.")
    base_relation: str | None = column("string", "How: finetune, quantized, adapter or merge.")
    sha: str | None = column("string", "Commit.")
    taken_at: datetime | None = column("timestamp[ms, UTC]", "When the Hub was asked.")


@dataclass(frozen=True)
class Forecast:
    """What the planner says of a model that need not have been run: a line of plans/<date>/<target>.parquet."""

    model_id: str = column("string", "Hub id of the model.")
    revision: str | None = column("string", "Commit that was planned.")
    outcome: str = column("string", "plan or excluded.")
    reason: str | None = column("string", "Why there is no plan, from the closed list.")
    detail: str | None = column("string", "The sentence that names the culprit.")
    task: str | None = column("string", "Hub task.")
    target: str = column("string", "Kind of accelerator.")
    device: str = column("string", "Product.")
    cores: int | None = column("int32", "Fewest cores that hold it.")
    tp: int | None = column("int32", "Ranks of tensor parallelism.")
    ep: int | None = column("int32", "Ranks of expert parallelism.")
    sizes: list[int] | None = column("list<int32>", "Numbers of cores it could run on.")
    dtype: str | None = column("string", "What the weights are loaded as.")
    weights_bytes: int | None = column("int64", "All weights once, as loaded.")
    max_rank_bytes: int | None = column("int64", "Weights and cache of the fullest rank.")
    capacity_bytes: int | None = column("int64", "What one core offers to weights and cache.")
    architecture: str | None = column("string", "The config's first architecture.")
    model_type: str | None = column("string", "The config's model_type.")
    notes: str | None = column("string", "Remarks, separated by semicolons.")
    transformers: str | None = column("string", "Version of transformers that was asked.")
    planned_at: datetime | None = column("timestamp[ms, UTC]", "When it was planned.")


@dataclass(frozen=True)
class Column:
    """A column as the card, the schema and the help texts see it."""

    name: str
    arrow: str
    doc: str


def columns(record: type[Row | Ranked | Forecast]) -> tuple[Column, ...]:
    """The columns of a record's table, in order."""
    return tuple(Column(f.name, f.metadata["arrow"], f.metadata["doc"]) for f in dataclasses.fields(record))


COLUMNS: tuple[Column, ...] = columns(Row)


def dumps(record: Any) -> str:
    """A record as one line of JSON: what `--json` prints and what plan.json holds."""
    values = dataclasses.asdict(record) if dataclasses.is_dataclass(record) and not isinstance(record, type) else record
    return json.dumps(values, default=_plain, ensure_ascii=False)

"""The nouns of the project as frozen records and closed enums; it touches nothing.

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

SCHEMA_VERSION = 1
VERDICT_VERSION = 1


# ---------------------------------------------------------------------------------- outcomes
class Result(StrEnum):
    """What a row says of a model. A row without a result is pending."""

    PASS = "PASS"
    FAIL = "FAIL"
    EXCLUDED = "EXCLUDED"
    INCONCLUSIVE = "INCONCLUSIVE"


class Stage(StrEnum):
    """Where a model was when its outcome was decided, in the order in which they come."""

    SELECT = "select"
    PLAN = "plan"
    START = "start"
    LOAD = "load"
    COMPILE = "compile"
    RUN = "run"
    EXIT = "exit"
    VERIFY = "verify"


class Fault(StrEnum):
    """Whose fault a reason is, and so which result it gives."""

    MODEL = "model"
    """The model does not run on this target with this stack."""
    CHOICE = "choice"
    """Nobody asked for it, or it may not be done unasked."""
    INCOMPATIBLE = "incompatible"
    """It cannot be run as things are, and that is known without running it."""
    UPSTREAM = "upstream"
    """The checkpoint itself is broken, on every target."""
    HARNESS = "harness"
    """The harness, host, network, cores or Hub failed; nothing is known of the model."""

    @property
    def result(self) -> Result:
        return {"model": Result.FAIL, "harness": Result.INCONCLUSIVE}.get(self.value, Result.EXCLUDED)


class Reason(StrEnum):
    """Why a model has no PASS: a closed list. Each knows whose fault it is, what it means and what to do."""

    fault: Fault
    meaning: str
    advice: str

    def __new__(cls, value: str, fault: Fault = Fault.HARNESS, meaning: str = "", advice: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.fault, member.meaning, member.advice = fault, meaning, advice
        return member

    @property
    def is_models_fault(self) -> bool:
        """True when the reason counts against the model on this target."""
        return self.fault is Fault.MODEL

    @property
    def result(self) -> Result:
        return self.fault.result

    # choices
    NOT_PRIORITIZED = "not_prioritized", Fault.CHOICE, "Nobody has queued it.", "Run `doesitrun test` on it yourself."
    TASK = "task", Fault.CHOICE, "Its task is not tested yet.", "Pass --task if the model can do one that is."
    DUPLICATE = "duplicate", Fault.CHOICE, "It is a copy of a model that is tested.", "Look the base model up."
    GATED = "gated", Fault.CHOICE, "Its licence must be accepted on the Hub first.", "Accept it there, then set HF_TOKEN."
    REMOTE_CODE = (
        "remote_code",
        Fault.CHOICE,
        "It needs code from its own repository, which is never run unasked.",
        "Read that code, then pass --trust-remote-code.",
    )
    # incompatibilities
    TOO_LARGE = "too_large", Fault.INCOMPATIBLE, "Its weights do not fit the most cores.", "Pick a larger device or a smaller model."
    NO_PARALLEL_PLAN = (
        "no_parallel_plan",
        Fault.INCOMPATIBLE,
        "It needs several cores, and transformers has no parallel plan for it.",
        "Use a device whose one core holds it, or a transformers version with a plan.",
    )
    HEADS_NOT_DIVISIBLE = (
        "heads_not_divisible",
        Fault.INCOMPATIBLE,
        "Its attention heads do not divide by the number of cores.",
        "Pass --cores with a number that divides them.",
    )
    QUANTIZATION = (
        "quantization",
        Fault.INCOMPATIBLE,
        "Its quantised weights cannot be loaded on this target.",
        "Test the unquantised base model.",
    )
    UNKNOWN_ARCHITECTURE = (
        "unknown_architecture",
        Fault.INCOMPATIBLE,
        "This transformers version does not know the architecture.",
        "Use a stack with a newer transformers.",
    )
    NOT_TRANSFORMERS = (
        "not_transformers",
        Fault.INCOMPATIBLE,
        "It is not a transformers checkpoint.",
        "Point to a folder or repository with a config.json.",
    )
    NO_WEIGHTS = "no_weights", Fault.INCOMPATIBLE, "It has no weight files.", "Point to the repository that carries the weights."
    PICKLE_WEIGHTS = (
        "pickle_weights",
        Fault.INCOMPATIBLE,
        "Its weights are only there as pickles, which can run code and are never opened.",
        "Convert them to safetensors in an environment that you trust.",
    )
    # upstream
    INVALID_CONFIG = "invalid_config", Fault.UPSTREAM, "Its config cannot be read.", "Repair config.json."
    BROKEN_CHECKPOINT = "broken_checkpoint", Fault.UPSTREAM, "Its weight files are damaged.", "Download or save the checkpoint again."
    MISSING_WEIGHTS = (
        "missing_weights",
        Fault.UPSTREAM,
        "Tensors that the model needs are not in the checkpoint.",
        "Save the checkpoint again with all tensors.",
    )
    REFERENCE_BROKEN = (
        "reference_broken",
        Fault.UPSTREAM,
        "On the CPU, too, the checkpoint does not speak its language.",
        "Report it to the model's authors: no target can make it work.",
    )
    REMOTE_CODE_BROKEN = (
        "remote_code_broken",
        Fault.UPSTREAM,
        "The code in its repository does not work with this transformers version.",
        "Report it to the model's authors, or use the transformers version that they name.",
    )
    # the model on this target
    COMPILE_OOM = "compile_oom", Fault.MODEL, "The compiler found that it does not fit the device.", "Try twice the cores."
    GRAPH_TOO_BIG = "graph_too_big", Fault.MODEL, "The graph has more instructions than the compiler takes.", "Try twice the cores."
    UNSUPPORTED_OP = (
        "unsupported_op",
        Fault.MODEL,
        "An operator is not implemented for the target.",
        "Report the operator; try another attention implementation.",
    )
    UNSUPPORTED_DTYPE = "unsupported_dtype", Fault.MODEL, "A data type is not supported by the target.", "Try --dtype bfloat16."
    INDEX_RANGE = "index_range", Fault.MODEL, "An index is out of range on the target.", "Report the operator."
    DYNAMIC_SHAPE = (
        "dynamic_shape",
        Fault.MODEL,
        "A shape depends on the data, which the compiler refuses.",
        "Report the model's line that is named.",
    )
    GRAPH_BREAK = "graph_break", Fault.MODEL, "The model cannot be captured as one graph.", "Report the model's line that is named."
    RECOMPILES = "recompiles", Fault.MODEL, "It is compiled anew at every token.", "Report it; a sliding-window cache is the usual cause."
    COMPILER_BUG = "compiler_bug", Fault.MODEL, "The compiler failed inside.", "Report it with the log; try another compiler version."
    COMPILE_ERROR = "compile_error", Fault.MODEL, "The compiler refused the graph.", "Read the error; try another compiler version."
    COMPILE_TIMEOUT = "compile_timeout", Fault.MODEL, "Compilation took longer than its limit.", "Raise limits.compile_s in doesitrun.toml."
    DEVICE_OOM = "device_oom", Fault.MODEL, "The device ran out of memory.", "Try twice the cores."
    EXECUTION_ERROR = (
        "execution_error",
        Fault.MODEL,
        "The device reported an error while running.",
        "Read the error; run it again to see if it stays.",
    )
    PYTHON_ERROR = (
        "python_error",
        Fault.MODEL,
        "The model's Python code raised an error.",
        "Read the error; try another transformers version.",
    )
    PARALLEL_ERROR = "parallel_error", Fault.MODEL, "The model could not be sharded as planned.", "Try another number of cores."
    DEVICE_MISMATCH = "device_mismatch", Fault.MODEL, "Tensors were left on another device.", "Report it to transformers."
    CRASH = "crash", Fault.MODEL, "The process crashed.", "Run it again to see if it stays; report it with the log."
    TIMEOUT = "timeout", Fault.MODEL, "It took longer than its limit.", "Raise the limit of that stage in doesitrun.toml."
    NOT_COMPILED = "not_compiled", Fault.MODEL, "It ran without being compiled.", "This model type cannot be compiled by generate() yet."
    EAGER_FALLBACK = (
        "eager_fallback",
        Fault.MODEL,
        "Part of it fell back to another device or to eager mode.",
        "Read which operators are named in the log.",
    )
    REPLICATED = "replicated", Fault.MODEL, "The weights were not sharded as planned.", "Report it to transformers with the plan."
    NAN_LOGITS = "nan_logits", Fault.MODEL, "It computed NaN or infinity.", "Try another dtype or compiler version."
    UNSTABLE_TOKENS = (
        "unstable_tokens",
        Fault.MODEL,
        "Two passes over one prompt gave different tokens.",
        "Report it: greedy decoding must repeat itself.",
    )
    RANKS_DISAGREE = "ranks_disagree", Fault.MODEL, "The ranks generated different tokens.", "Report it: a collective is wrong."
    WRONG_NUMBERS = (
        "wrong_numbers",
        Fault.MODEL,
        "Its logits are off by more than rounding explains.",
        "Report it with R; the text may still look right.",
    )
    NOT_FLUENT = "not_fluent", Fault.MODEL, "The text it generated is not fluent English.", "Read the text; try fewer cores."
    # the harness, host, network, cores or Hub
    INTERRUPTED = "interrupted", Fault.HARNESS, "The run was stopped.", "Start it again."
    KILLED = (
        "killed",
        Fault.HARNESS,
        "Something outside killed the process.",
        "Look at the host's memory and kernel log, then start it again.",
    )
    HOST_OOM = "host_oom", Fault.HARNESS, "The host ran out of memory.", "Use a host with more memory, or raise limits.memory_gb."
    DISK_FULL = "disk_full", Fault.HARNESS, "The disk is full.", "Free some space, then start it again."
    NETWORK = "network", Fault.HARNESS, "The network failed.", "Start it again."
    HUB_ERROR = "hub_error", Fault.HARNESS, "The Hub failed.", "Start it again later."
    HUB_THROTTLED = "hub_throttled", Fault.HARNESS, "The Hub asked us to slow down.", "Wait five minutes, or set HF_TOKEN."
    CORE_BUSY = "core_busy", Fault.HARNESS, "Another process holds the cores.", "Wait for it to end; `doesitrun doctor` names it."
    DEVICE_MISSING = "device_missing", Fault.HARNESS, "The device was not found.", "Run `doesitrun stacks` and install what it misses."
    GROUP_START = "group_start", Fault.HARNESS, "The group of ranks could not be started.", "Start it again on a clean runtime."
    HARDWARE = "hardware", Fault.HARNESS, "The device reported a hardware fault.", "Use another device; look at the kernel log."
    VERSION_MISMATCH = (
        "version_mismatch",
        Fault.HARNESS,
        "Compiler, driver and runtime do not fit together.",
        "Install versions that were released together.",
    )
    ENVIRONMENT = "environment", Fault.HARNESS, "The stack lacks a package or has it in the wrong version.", "Install what the error names."
    NO_RESULT = "no_result", Fault.HARNESS, "The script ended without leaving a result.", "Read stderr.log; start it again."
    REFERENCE_FAILED = (
        "reference_failed",
        Fault.HARNESS,
        "The CPU reference could not be computed.",
        "Use a host with more memory, then start it again.",
    )
    JUDGE_FAILED = (
        "judge_failed",
        Fault.HARNESS,
        "The judge model could not be run.",
        "Set judge.model in doesitrun.toml to one that loads.",
    )
    HARNESS_ERROR = "harness_error", Fault.HARNESS, "doesitrun itself failed.", "Report it with --debug."


@dataclass(frozen=True)
class Outcome:
    """Stage x reason. `reason` is None for a PASS; `detail` is the sentence that names the culprit."""

    stage: Stage
    reason: Reason | None = None
    detail: str = ""

    @property
    def result(self) -> Result:
        return Result.PASS if self.reason is None else self.reason.result

    def __str__(self) -> str:
        return f"{self.stage}:{self.reason or 'ok'}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The outcome that `str` gave, without its detail. Raises ValueError for any other text."""
        stage, colon, reason = text.partition(":")
        if not colon:
            message = f"an outcome is written stage:reason, not {text!r}"
            raise ValueError(message)
        return cls(Stage(stage), None if reason == "ok" else Reason(reason))


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
    tp_override: Mapping[str, str] | None = None
    """Rules merged into the architecture's TP plan (module pattern -> style)."""
    notes: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        return self.source != self.model_id

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
    prompt: str | None = column("string", "The prompt.")
    output_text: str | None = column("string", "The generated text.")
    output_tokens: list[int] | None = column("list<int32>", "The generated token ids.")
    os: str | None = column("string", "Operating system and C library.")
    graphs_uri: str | None = column("string", "Where the compiled graphs lie.")
    attempt: int | None = column("int32", "Number of the attempt at this plan, from 1.")

    def to_json(self) -> dict[str, Any]:
        """The columns as JSON values; times in ISO 8601."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The row that `to_json` gave; unknown keys (of later versions) are passed over. Raises ValueError."""
        known: dict[str, Any] = {f.name: values.get(f.name) for f in dataclasses.fields(cls)}
        for name, enum in (("result", Result), ("stage", Stage), ("reason", Reason)):
            known[name] = None if known[name] is None else enum(known[name])
        tested_at = known["tested_at"]
        known["tested_at"] = None if tested_at is None else datetime.fromisoformat(tested_at)
        return cls(**known)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True)
class Column:
    """A column as the card, the schema and the help texts see it."""

    name: str
    arrow: str
    doc: str


COLUMNS: tuple[Column, ...] = tuple(Column(f.name, f.metadata["arrow"], f.metadata["doc"]) for f in dataclasses.fields(Row))


def dumps(record: Any) -> str:
    """A record as one line of JSON: what `--json` prints and what plan.json holds."""
    values = dataclasses.asdict(record) if dataclasses.is_dataclass(record) and not isinstance(record, type) else record
    return json.dumps(values, default=_plain, ensure_ascii=False)

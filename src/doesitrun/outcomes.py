"""How a run can end: results, stages and reasons as closed enums; it touches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


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

    @property
    def looks_intermittent(self) -> bool:
        """True when one such failure proves little: compilers and runtimes also fail now and then."""
        return self.value in _INTERMITTENT

    # choices
    NOT_PRIORITIZED = "not_prioritized", Fault.CHOICE, "Nobody has queued it.", "Run `doesitrun test` on it yourself."
    TASK = "task", Fault.CHOICE, "Its task is not tested yet.", "Pass --task if the model can do one that is."
    DUPLICATE = "duplicate", Fault.CHOICE, "It is a copy of a model that is tested.", "Look the base model up."
    GATED = "gated", Fault.CHOICE, "Its licence must be accepted on the Hub first.", "Accept it there, then set HF_TOKEN."
    PRIVATE = "private", Fault.CHOICE, "It is private, or gone.", "Make it public, or set HF_TOKEN to a token that may read it."
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
    START_TIMEOUT = (
        "start_timeout",
        Fault.HARNESS,
        "The script did not come as far as loading the model.",
        "Look whether the stack can be imported; start it again.",
    )
    RANK_LOST = (
        "rank_lost",
        Fault.HARNESS,
        "Ranks lost the connection to one that did not say why it ended.",
        "Read stderr.log; start it again.",
    )
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


_INTERMITTENT = frozenset({Reason.COMPILER_BUG, Reason.EXECUTION_ERROR, Reason.CRASH, Reason.RANK_LOST, Reason.GROUP_START})


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

"""Each class of failure is known by its log. The logs are ours, in the shape of the real ones."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.explain import KINDS, explain, explain_log, noise, patterns
from doesitrun.isolate import Ended
from doesitrun.outcomes import Outcome, Reason, Result, Stage

LOGS = Path(__file__).parent / "logs"

# folder (a target, or common: any of them), log, stage, reason, and what the sentence names
CASES = [
    ("neuron", "extensions_missing", "start", "device_missing", "Failed to import torch_neuronx C"),
    ("neuron", "no_backend", "load", "device_missing", "no attribute 'neuron'"),
    ("neuron", "compiler_not_found", "compile", "environment", "neuronx-cc not found"),
    ("neuron", "glibc", "start", "environment", "GLIBC_2.34"),
    ("neuron", "cores_busy", "load", "core_busy", "NeuronCore\\(s\\) not available"),
    ("neuron", "core_busy_number", "run", "core_busy", "1005"),
    ("neuron", "group_barrier", "start", "group_start", "device barrier"),
    ("neuron", "group_too_late", "load", "group_start", "init_process_group"),
    ("neuron", "hang_in_collectives", "run", "timeout", "suspected hang"),
    ("neuron", "execution_timeout", "run", "timeout", "execution timeout"),
    ("neuron", "hbm_error", "run", "hardware", "1201"),
    ("neuron", "device_lost", "start", "hardware", "Could not open the nd"),
    ("neuron", "network", "run", "network", "1206"),
    ("neuron", "neff_version", "compile", "version_mismatch", "NEFF version mismatch"),
    ("neuron", "lnc", "compile", "version_mismatch", "EARG001"),
    ("neuron", "compile_oom", "compile", "compile_oom", "NCC_EOOM001.*22.8 GB"),
    ("neuron", "device_oom", "run", "device_oom", "NRT allocation failed for size 1073741824"),
    ("neuron", "load_oom", "load", "device_oom", "Failed to allocate resource"),
    ("neuron", "host_oom_killed", "compile", "host_oom", "Killed"),
    ("neuron", "compiler_killed", "compile", "host_oom", "-9"),
    ("neuron", "host_alloc", "load", "host_oom", "status=11"),
    ("neuron", "graph_too_big", "compile", "graph_too_big", "EBVF030"),
    ("neuron", "op_unsupported", "compile", "unsupported_op", "aten::cumsum"),
    ("neuron", "op_not_implemented", "compile", "unsupported_op", "not implemented for 'neuron'"),
    ("neuron", "complex_dtype", "compile", "unsupported_dtype", "complex64"),
    ("neuron", "index_range_compile", "compile", "index_range", "EVRF031"),
    ("neuron", "dynamic_shape", "compile", "dynamic_shape", "EMOD025"),
    ("neuron", "compiler_bug", "compile", "compiler_bug", "NCC_IBCG901"),
    ("neuron", "compile_error", "compile", "compile_error", "HLO to NEFF compilation failed"),
    ("neuron", "compiler_timeout", "compile", "compile_timeout", "TORCH_NEURONX_NEURONX_CC_TIMEOUT"),
    ("neuron", "out_of_bounds", "run", "index_range", "1006"),
    ("neuron", "numerics", "run", "nan_logits", "1003"),
    ("neuron", "execution", "run", "execution_error", "1204"),
    ("neuron", "graph_break", "compile", "graph_break", "Unsupported"),
    ("neuron", "recompiles", "compile", "recompiles", "recompile_limit"),
    ("neuron", "device_mix", "compile", "device_mismatch", "index 3 is on cpu"),
    ("neuron", "tp_shape", "compile", "parallel_error", "invalid for input of size"),
    ("neuron", "no_tp_plan", "load", "parallel_error", "tp_plan"),
    ("neuron", "moe_align", "compile", "unsupported_op", "divisible by 128"),
    ("neuron", "first_rank", "run", "device_oom", "NRT_RESOURCE"),
    ("neuron", "only_noise", "run", "rank_lost", "Connection closed by peer"),
    ("neuron", "rank_killed", "run", "killed", "Rank 2"),
    ("neuron", "rank_crashed", "run", "crash", "SIGSEGV"),
    ("cuda", "out_of_memory", "run", "device_oom", "20.00 GiB"),
    ("cuda", "device_assert", "run", "index_range", "srcIndex"),
    ("cuda", "device_assert_other", "run", "execution_error", "device-side assert"),
    ("cuda", "no_kernel_image", "load", "version_mismatch", "no kernel image"),
    ("cuda", "driver_too_old", "load", "version_mismatch", "driver on your system is too old"),
    ("cuda", "no_gpu", "load", "device_missing", "No CUDA GPUs"),
    ("cuda", "nccl_start", "load", "group_start", "ncclSystemError"),
    ("cuda", "nccl_peer", "run", "execution_error", "illegal memory access"),
    ("cuda", "ecc", "run", "hardware", "ECC"),
    ("cuda", "triton", "compile", "compile_error", "OutOfResources"),
    ("cpu", "no_compiler", "compile", "environment", "No working C"),
    ("cpu", "cpp_compile_error", "compile", "compile_error", "CppCompileError"),
    ("cpu", "half", "run", "unsupported_dtype", "Half"),
    ("cpu", "host_memory", "load", "host_oom", "not enough memory"),
    ("cpu", "shared_memory", "run", "host_oom", "shm"),
    ("cpu", "data_dependent", "compile", "dynamic_shape", "data-dependent"),
    ("common", "throttled", "load", "hub_throttled", "429"),
    ("common", "throttled_as_bad_id", "load", "hub_throttled", "429"),
    ("common", "gated", "load", "gated", "gated repo"),
    ("common", "hub_down", "load", "hub_error", "503"),
    ("common", "no_network", "load", "network", "resolution"),
    ("common", "connection_reset", "load", "network", "Connection aborted"),
    ("common", "disk_full", "load", "disk_full", "No space left"),
    ("common", "missing_tensors", "load", "missing_weights", "lm_head.weight"),
    ("common", "safetensors_header", "load", "broken_checkpoint", "InvalidHeader|header"),
    ("common", "remote_code_packages", "load", "environment", "einops"),
    ("common", "remote_code_import", "load", "remote_code_broken", "LlamaFlashAttention2"),
    ("common", "remote_code_attribute", "run", "remote_code_broken", "max_batch_size"),
    ("common", "remote_code_flag", "load", "remote_code", "trust_remote_code"),
    ("common", "port_taken", "start", "group_start", "already in use"),
    ("common", "unknown_architecture", "load", "unknown_architecture", "does not recognize"),
    ("common", "not_sharded", "load", "replicated", "not sharded"),
    ("common", "python_error", "run", "python_error", "AttributeError: 'NoneType' object has no attribute 'shape'"),
    ("common", "handled_then_python_error", "run", "python_error", "KeyError: 'last'"),
    ("common", "spawned_rank", "run", "python_error", "TypeError: rank one"),
    ("common", "says_pass", "run", "no_result", "PASS"),
]
BY_NAME = {f"{folder}/{name}": (folder, name, stage, reason, detail) for folder, name, stage, reason, detail in CASES}


def ended(stage: str, **fields) -> Ended:
    return Ended(**{"exit_status": None if "signal" in fields else 1, "signal": None, "stage": Stage(stage)} | fields)


@pytest.mark.parametrize("case", BY_NAME.values(), ids=BY_NAME)
def test_a_log_is_explained(case):
    folder, name, stage, reason, detail = case
    log = (LOGS / folder / f"{name}.log").read_text()
    for target in ("neuron", "cuda", "cpu") if folder == "common" else (folder,):
        outcome = explain(ended(stage), None, log, target)
        assert (outcome.stage, outcome.reason) == (stage, reason), outcome
        assert re.search(detail, outcome.detail), outcome
        assert "\n" not in outcome.detail


def test_every_log_has_its_line_in_the_table():
    assert {str(path.relative_to(LOGS).with_suffix("")) for path in LOGS.rglob("*.log")} == set(BY_NAME)


@pytest.mark.parametrize("case", BY_NAME.values(), ids=BY_NAME)
def test_noise_around_a_cause_changes_nothing(case):
    folder, name, stage, reason, _ = case
    lines = "\nRuntimeError: Connection closed by peer\n[W socket.cpp:210] Broken pipe\nCompiler status PASS\n"
    log = lines + (LOGS / folder / f"{name}.log").read_text()
    expected = Reason.RANK_LOST if reason == Reason.NO_RESULT else reason
    assert explain_log(log, "neuron" if folder == "common" else folder, Stage(stage)).reason == expected


def test_words_in_a_frame_are_no_message():
    log = """Traceback (most recent call last):
  File "run.py", line 60, in load
    model = AutoModel.from_pretrained(MODEL, trust_remote_code=True, hint="No space left on device, SymInt")
ValueError: odd
"""
    assert explain_log(log, "neuron") == Outcome(Stage.RUN, Reason.PYTHON_ERROR, "ValueError: odd")


def test_a_rank_that_ended_without_a_word_is_not_held_against_the_model():
    log = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 1"
    assert explain_log(log, "neuron").reason is Reason.RANK_LOST


# ------------------------------------------------------------------------------ beyond the log
RESULT = {"tokens": [1, 2, 3]}
TELLTALE = "RuntimeError: CUDA out of memory\n"


@pytest.mark.parametrize("end", [{"exit_status": 0}, {"exit_status": 1}, {"signal": 11}, {"signal": 9, "timed_out": True}])
def test_a_result_that_was_written_outlives_the_teardown(end):
    assert explain(ended("exit", **end), RESULT, TELLTALE, "cuda") is None


def test_a_failure_before_the_last_stage_is_one_whatever_file_lies_there():
    assert explain(ended("run", signal=11), RESULT, "", "cuda") == Outcome(Stage.RUN, Reason.CRASH, "It was ended by SIGSEGV.")


@pytest.mark.parametrize("result", [None, {}, {"tokens": []}, {"text": "PASS"}, {"tokens": None}])
def test_a_good_end_without_tokens_is_no_result(result):
    for stage in ("start", "run", "exit"):
        outcome = explain(ended(stage, exit_status=0), result, "PASS", "cpu")
        assert (outcome.stage, outcome.reason, outcome.result) == (stage, Reason.NO_RESULT, Result.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("fields", "log", "reason"),
    [
        ({"signal": 9}, "", Reason.KILLED),
        ({"signal": 9, "oom_kills": 1}, "", Reason.HOST_OOM),
        ({"signal": 9}, "Killed\n", Reason.HOST_OOM),
        ({"exit_status": 137}, "", Reason.KILLED),
        ({"signal": 15}, "", Reason.KILLED),
        ({"signal": 2}, "", Reason.INTERRUPTED),
        ({"signal": 11}, "", Reason.CRASH),
        ({"exit_status": 139}, "", Reason.CRASH),
        ({"signal": 6}, "terminate called: CUDA error: uncorrectable ECC error encountered\n", Reason.HARDWARE),
        ({"signal": 64}, "", Reason.CRASH),
        ({"signal": 9, "memory_exceeded": True, "peak_bytes": 10**9}, "", Reason.HOST_OOM),
        ({"exit_status": 1, "oom_kills": 1}, "X: process 0 terminated with signal SIGKILL", Reason.HOST_OOM),
        ({"exit_status": 1}, "", Reason.NO_RESULT),
        ({"exit_status": 200}, "", Reason.NO_RESULT),
    ],
)
def test_how_a_process_ended_says_why(fields, log, reason):
    outcome = explain(ended("compile", **fields), None, log, "cuda")
    assert (outcome.stage, outcome.reason) == (Stage.COMPILE, reason)
    assert outcome.detail


@pytest.mark.parametrize(
    ("stage", "log", "reason"),
    [
        ("start", "", Reason.START_TIMEOUT),
        ("load", "", Reason.TIMEOUT),
        ("compile", "", Reason.COMPILE_TIMEOUT),
        ("run", "", Reason.TIMEOUT),
        ("exit", "", Reason.NO_RESULT),
        ("load", "NeuronCore(s) not available - Requested:1\n", Reason.CORE_BUSY),
        ("compile", "SymInt\n[INTERNAL_ERROR] [NCC_IBCG901] retrying\n", Reason.COMPILE_TIMEOUT),
        ("load", "NeuronCore(s) not available\n" + "going on\n" * 1000, Reason.TIMEOUT),
    ],
)
def test_a_time_out_is_the_stages_unless_the_end_of_the_log_blames_the_host(stage, log, reason):
    assert explain(ended(stage, signal=9, timed_out=True), None, log, "neuron").reason is reason


def test_nothing_is_known_of_a_model_before_it_is_loaded():
    log = 'Traceback (most recent call last):\n  File "run.py", line 1\nValueError: odd\n'
    for fields in ({"exit_status": 1}, {"signal": 11}):
        outcome = explain(ended("start", **fields), None, log, "cpu")
        assert (outcome.reason, outcome.result) == (Reason.ENVIRONMENT, Result.INCONCLUSIVE)
        assert "ValueError: odd" in outcome.detail


# ------------------------------------------------------------------------------ the data
def test_the_patterns_are_well_formed_and_in_reach():
    path = Path(explain.__code__.co_filename).with_name("targets") / "log_patterns.toml"
    table = tomllib.loads(path.read_text())
    assert set(table) == {"noise", "neuron", "cuda", "cpu", "common"}
    for target in table.keys() - {"noise"}:
        assert set(table[target]) <= set(KINDS)
        for entry in (entry for kind in table[target].values() for entry in kind):
            assert set(entry) <= {"reason", "match", "ncc", "nrt", "where", "detail"}
            assert entry.get("where", "log") in {"log", "error", "trace"}
            assert entry.get("match") or entry.get("ncc") or entry.get("nrt")
    for target in ("neuron", "cuda", "cpu", "another"):
        for pattern in patterns(target):
            assert not pattern.expression.search(""), "a pattern that matches nothing matches everything"


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1, "execution_error"), (4, "device_oom"), (5, "timeout"), (6, "hardware"), (11, "host_oom"), (1004, "execution_error")],
)
@pytest.mark.parametrize(
    "form",
    ["NRT EXECUTION FAILED: status={}", "nrt_load failed with error code: {}", "ERROR NRT:nrt_execute status_code={}, aborting", "NRT {}"],
)
def test_a_runtimes_number_is_read_in_each_form(code, reason, form):
    assert explain_log(form.format(code), "neuron").reason == reason


@pytest.mark.parametrize(
    "line", ["WARN NRT: retry in 6 s", "nrt version 2.35.30.0", "NRT initialised, 4 cores", "status=4 of the download"]
)
def test_other_numbers_are_no_status(line):
    assert explain_log(line, "neuron").reason is Reason.NO_RESULT


WORDS = st.sampled_from(
    [
        *("Traceback (most recent call last):", '  File "run.py", line 1', "ValueError: x", "[rank0]: ", "[rank1]: ", "\n", "\r"),
        *("-- Process 1 terminated with the following error:", "During handling of the above exception", "Process SpawnProcess-1:"),
        *("Connection closed by peer", "NCC_EOOM001", "NRT ", "status=", "1005", "Killed", "\x1b[31m", "\0", "\ud800", "{rank}", " "),
        *("process 1 terminated with signal SIGKILL", "Exception ignored in"),
    ]
)


@given(
    log=st.one_of(
        st.lists(WORDS).map("".join), st.lists(WORDS).map("\n".join), st.text(), st.binary().map(lambda b: b.decode("utf-8", "replace"))
    ),
    target=st.sampled_from(["neuron", "cuda", "cpu", "nosuch", "common", "noise"]),
    stage=st.sampled_from([Stage.START, Stage.LOAD, Stage.COMPILE, Stage.RUN, Stage.EXIT]),
    exit_status=st.one_of(st.none(), st.integers(0, 255)),
    number=st.integers(1, 70),
    flags=st.tuples(st.booleans(), st.booleans(), st.integers(0, 2)),
    result=st.one_of(st.none(), st.dictionaries(st.sampled_from(["tokens", "text"]), st.one_of(st.none(), st.lists(st.integers())))),
)
def test_whatever_happened_there_is_an_outcome(log, target, stage, exit_status, number, flags, result):
    end = Ended(
        exit_status, None if exit_status is not None else number, stage, timed_out=flags[0], memory_exceeded=flags[1], oom_kills=flags[2]
    )
    outcome = explain(end, result, log, target)
    if outcome is None:
        assert result["tokens"]
        assert stage is Stage.EXIT or exit_status == 0
    else:
        assert outcome.reason is not None
        assert outcome.stage is stage
        assert "\n" not in outcome.detail
        assert len(outcome.detail) <= 500


@pytest.mark.parametrize(
    "piece", ["\n", "a", "NRT ", "NRT status=", "Traceback (most recent call last):\n", "[rank1]: x\n", "neuronx-cc return ", "\r\x1b[31m"]
)
def test_a_long_log_takes_no_long_time(piece):
    log = piece * (8_000_000 // len(piece))
    start = time.process_time()
    explain_log(log, "neuron")
    assert time.process_time() - start < 4


def test_the_noise_is_no_cause():
    assert noise().search("RuntimeError: Connection closed by peer [127.0.0.1]:9999")
    assert not noise().search("RuntimeError: shape is invalid")

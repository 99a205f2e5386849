"""What doctor says of an environment: facts in, checks out; and what observations of a device amount to."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.doctor import visit
from doesitrun.doctor.judge import has_problem, judge
from doesitrun.errors import StackError, UsageError
from doesitrun.settings import Settings, StackSettings
from doesitrun.targets import TARGETS
from doesitrun.targets.checks import Check, Facts, Holder, Observed, Ran, Status, numbers
from doesitrun.targets.neuron_checks import cores_of
from doesitrun.targets.neuron_questions import QUESTIONS, monitor_peak

CPU = {"torch": "2.13.0+cpu", "transformers": "5.24.0", "accelerate": "1.15.0", "pillow": "12", "sentencepiece": "0.2"}
TRN = CPU | {"torch": "2.14.0+cpu", "torch-neuronx": "2.14.3.0.1", "neuronx-cc": "2.28.7631.0", "nki": "0.7.0"}
PROBE = {
    "python": "3.12.9",
    "os": "Ubuntu 24.04, glibc 2.39",
    "cpu_count": 12,
    "host_memory_bytes": 124_000_000_000,
    "device_files": [],
    "gpus": [],
    "kernel_modules": {},
    "product": "",
}
IMPORTED = {"early": [], "start_method": "fork", "headers": "/usr/include/python3.12/Python.h", "seen": {}, "modules": {}}
HOST = {
    "memory_available_bytes": 100_000_000_000,
    "graphs_folder": "/w/graphs",
    "workspace_free_bytes": 400_000_000_000,
    "hub_folder": "/hub",
    "hub_free_bytes": 400_000_000_000,
}
CHIP = {"neuron_device": 0, "nc_count": 4, "logical_neuroncore_config": 2, "neuron_processes": []}
PACKAGES = "aws-neuronx-runtime-lib 2.35.30.0\naws-neuronx-collectives 2.35.43.0\n"


def imported(**seen: object) -> dict:
    return IMPORTED | {"seen": seen, "modules": {"torch": {"version": "2", "error": "", "seconds": 2.0}}}


def cpu(**changes: object) -> Facts:
    ran = {"g++": Ran("/usr/bin/g++", on_path=True, status=0)}
    whole = Facts(python="/s/bin/python", probe=PROBE | {"distributions": CPU}, imported=imported(), programs=ran, **HOST)
    return dataclasses.replace(whole, **changes)


def trn(probe: dict | None = None, **changes: object) -> Facts:
    seen = imported(**{"torch.neuron": "module", "torch.neuron.is_initialized()": False})
    here = PROBE | {
        "distributions": TRN,
        "device_files": ["/dev/neuron0"],
        "product": "trn2.3xlarge",
        "kernel_modules": {"neuron": "2.31.7.0"},
    }
    ran = {
        "neuronx-cc": Ran("/s/bin/neuronx-cc", on_path=True, status=0, output="NeuronX Compiler version 2.28.7631.0\n"),
        "neuron-ls": Ran("/opt/aws/neuron/bin/neuron-ls", status=0, output=json.dumps([CHIP])),
        "dpkg-query": Ran("/usr/bin/dpkg-query", on_path=True, status=0, output=PACKAGES),
    }
    whole = Facts(python="/s/bin/python", probe=here | (probe or {}), imported=seen, programs=ran, **HOST)
    return dataclasses.replace(whole, **changes)


def gpu(version: object, available: object, gpus: list[str], environment: dict | None = None) -> Facts:
    seen = imported(**{"torch.version.cuda": version, "torch.cuda.is_available()": available, "torch.cuda.device_count()": 1})
    return cpu(probe=PROBE | {"distributions": CPU, "gpus": gpus}, imported=seen, environment=environment or {})


def without(name: str, of: dict = TRN) -> dict:
    return {"distributions": {key: value for key, value in of.items() if key != name}}


def ran(name: str, **changes: object) -> dict[str, Ran]:
    programs = dict(trn().programs)
    return programs | {name: dataclasses.replace(programs[name], **changes)}


def found(target: str, facts: Facts, name: str) -> Check:
    (check,) = [check for check in judge(target, facts) if check.name == name]
    return check


@pytest.mark.parametrize(("target", "facts"), [("cpu", cpu()), ("neuron", trn()), ("cuda", gpu("13.0", True, ["NVIDIA H200"]))])
def test_a_sound_environment_has_nothing_but_ok(target: str, facts: Facts) -> None:
    assert [check for check in judge(target, facts) if check.status is not Status.OK] == []


PROBLEMS = [
    ("cpu", cpu(probe=PROBE | without("transformers", CPU)), "packages", "pip install transformers"),
    ("cpu", cpu(probe=PROBE | {"distributions": CPU | {"transformers": "5.17.2"}}), "transformers", "5.24"),
    ("cpu", cpu(import_failure="imports was ended by signal 11", imported={}), "imports", "Mend the installation"),
    (
        "cpu",
        cpu(imported=IMPORTED | {"modules": {"torch": {"version": "", "error": "ImportError: libx", "seconds": 0}}}),
        "import torch",
        "again",
    ),
    ("cpu", cpu(programs={"g++": Ran(None)}), "C++ compiler", "Install g++"),
    ("cpu", cpu(programs={"g++": Ran("/usr/bin/g++", True, 1, "", "omp.h: No such file")}), "C++ compiler", "OpenMP"),
    ("cpu", cpu(imported=imported() | {"headers": ""}), "Python's headers", "python3-dev"),
    ("cpu", cpu(graphs_failure="Read-only file system"), "folder of compiled graphs", "--workspace"),
    ("cpu", cpu(workspace_free_bytes=10**9), "disk of the workspace", "--workspace"),
    ("cpu", cpu(hub_free_bytes=10**9), "disk of the Hub's files", "HF_HOME"),
    ("cpu", cpu(memory_available_bytes=10**9), "host memory", "Close other programs"),
    ("cpu", cpu(environment={"TORCHDYNAMO_DISABLE": "1"}), "variable TORCHDYNAMO_DISABLE", "nothing is compiled"),
    ("cuda", gpu(None, False, ["NVIDIA H200"]), "CUDA in torch", "CUDA build"),
    ("cuda", gpu("13.0", False, ["NVIDIA H200"]), "CUDA in torch", "driver"),
    ("cuda", gpu("13.0", True, []), "device", "--gpus all"),
    ("cuda", gpu("13.0", True, ["NVIDIA H200"], {"CUDA_VISIBLE_DEVICES": ""}), "variable CUDA_VISIBLE_DEVICES", "there is none"),
    ("neuron", trn({"distributions": TRN | {"torch": "2.13.0"}}), "torch and torch-neuronx", "torch==2.14.*"),
    ("neuron", trn(without("torch-neuronx")), "torch and torch-neuronx", "same minor"),
    ("neuron", trn(without("neuronx-cc")), "compiler's version", "package index"),
    ("neuron", trn({"distributions": TRN | {"torch-xla": "2.9"}}), "native backend", "new environment"),
    ("neuron", trn(imported=imported()), "native backend", "native torch-neuronx"),
    (
        "neuron",
        trn(imported=imported(**{"torch.neuron": "m", "torch.neuron.is_initialized()": True})),
        "runtime at import",
        "sitecustomize",
    ),
    ("neuron", trn({"device_files": [], "kernel_modules": {}}), "device", "--device=/dev/neuron0"),
    ("neuron", trn({"device_files": [], "kernel_modules": {}}), "driver", "aws-neuronx-dkms"),
    ("neuron", trn(forbidden_devices=("/dev/neuron0",)), "device", "right to read"),
    ("neuron", trn(programs=ran("neuronx-cc", path=None)), "compiler", "Install neuronx-cc"),
    ("neuron", trn(programs=ran("neuronx-cc", on_path=False)), "compiler", 'export PATH="/s/bin:$PATH"'),
    ("neuron", trn(programs=ran("neuronx-cc", status=1)), "compiler", "again"),
    ("neuron", trn(environment={"NEURON_RT_VISIBLE_CORES": "2-5"}), "cores", "from 0 to 3"),
    ("neuron", trn(environment={"NEURON_RT_VISIBLE_CORES": "a-b"}), "variable NEURON_RT_VISIBLE_CORES", "a range (4-7)"),
    (
        "neuron",
        trn(environment={"TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "0"}),
        "variable TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
        "uncompiled",
    ),
]


@pytest.mark.parametrize(("target", "facts", "name", "advice"), PROBLEMS)
def test_what_makes_runs_fail_is_a_problem_with_a_way_out(target: str, facts: Facts, name: str, advice: str) -> None:
    check = found(target, facts, name)
    assert check.status is Status.PROBLEM
    assert advice in check.advice
    assert has_problem(judge(target, facts))


WARNINGS = [
    ("cpu", cpu(probe=PROBE | {"distributions": CPU | {"transformers": "5.25.0"}}), "transformers"),
    ("cpu", cpu(probe=PROBE | without("pillow", CPU)), "packages"),
    ("cpu", cpu(imported=imported() | {"early": ["torch"]}), "processes"),
    ("cpu", cpu(workspace_free_bytes=10 * 10**9), "disk of the workspace"),
    ("cpu", cpu(memory_available_bytes=5 * 10**9), "host memory"),
    ("cpu", cpu(environment={"WORLD_SIZE": "2"}), "variable WORLD_SIZE"),
    ("neuron", trn({"python": "3.11.7"}), "Python's version"),
    ("neuron", trn({"distributions": TRN | {"neuronx-cc": "2.27.5334.0"}}), "compiler's version"),
    ("neuron", trn({"host_memory_bytes": 16_000_000_000}), "memory for the compiler"),
    ("neuron", trn(programs=ran("dpkg-query", output="aws-neuronx-collectives 2.35\n")), "runtime libraries"),
    ("neuron", trn(programs=ran("neuron-ls", output=json.dumps([CHIP | {"logical_neuroncore_config": 1, "nc_count": 8}]))), "cores"),
    ("neuron", trn(environment={"NEURON_CC_FLAGS": "-O3"}), "variable NEURON_CC_FLAGS"),
    ("neuron", trn(environment={"NEURON_LOGICAL_NC_CONFIG": "1"}), "variable NEURON_LOGICAL_NC_CONFIG"),
]


@pytest.mark.parametrize(("target", "facts", "name"), WARNINGS)
def test_what_only_surprises_is_a_warning(target: str, facts: Facts, name: str) -> None:
    check = found(target, facts, name)
    assert check.status is Status.WARNING
    assert check.advice
    assert not has_problem(judge(target, facts))


UNKNOWNS = [
    ("cpu", cpu(import_failure="signal 11", imported={}), "processes"),
    ("cpu", cpu(import_failure="signal 11", imported={}), "Python's headers"),
    ("cpu", cpu(workspace_free_bytes=None), "disk of the workspace"),
    ("cuda", dataclasses.replace(gpu("13", True, ["H200"]), imported={}), "CUDA in torch"),
    ("neuron", trn({"distributions": TRN | {"torch": "2.15.0", "torch-neuronx": "2.15.4.0"}}), "compiler's version"),
    ("neuron", trn({"kernel_modules": {}}), "driver"),
    ("neuron", trn(programs=ran("neuron-ls", path=None, output="")), "cores"),
    ("neuron", trn(programs=ran("neuron-ls", status=1, output="no devices")), "cores"),
    ("neuron", trn(programs=ran("dpkg-query", path=None)), "runtime libraries"),
    ("neuron", trn(imported={}), "runtime at import"),
]


@pytest.mark.parametrize(("target", "facts", "name"), UNKNOWNS)
def test_what_cannot_be_found_out_is_unknown_and_says_where_to_look(target: str, facts: Facts, name: str) -> None:
    check = found(target, facts, name)
    assert check.status is Status.UNKNOWN
    assert check.advice


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_at_all_is_judged_without_an_error(target: str) -> None:
    checks = judge(target, Facts(python="/p", probe={}))
    assert has_problem(checks)
    assert all(check.advice for check in checks if check.status is not Status.OK)


def test_who_holds_the_cores_is_named_without_his_arguments() -> None:
    busy = CHIP | {"neuron_processes": [{"pid": 4242, "command": "python serve.py --token secret"}]}
    check = found("neuron", trn(programs=ran("neuron-ls", output=json.dumps([busy]))), "free cores")
    assert check.status is Status.WARNING
    assert "chip 0: process 4242, python serve.py" in check.found
    assert "secret" not in check.found
    seen = trn(programs=ran("neuron-ls", path=None, output=""), holders=(Holder(7, "python x.py", "/dev/neuron0"),))
    assert "/dev/neuron0: process 7" in found("neuron", seen, "free cores").found


def test_an_emulated_device_is_said_and_its_host_is_not_judged() -> None:
    emulated = TRN | {"torch-neuronx": "2.14.3.0+emulated"}
    facts = trn({"distributions": emulated, "device_files": [], "kernel_modules": {}}, programs={})
    check = found("neuron", facts, "device")
    assert check.status is Status.WARNING
    assert "EMULATED" in check.found
    assert not has_problem(judge("neuron", facts))


@pytest.mark.parametrize(
    ("text", "cores"),
    [("4", [4]), ("4-7", [4, 5, 6, 7]), ("0,2,5-6", [0, 2, 5, 6]), ("7-4", None), ("1,1", None), ("", None), ("0-", None), ("x", None)],
)
def test_visible_cores_are_read_as_the_runtime_reads_them(text: str, cores: list[int] | None) -> None:
    assert cores_of(text) == cores


@given(st.text(max_size=30) | st.from_regex(r"[0-9,-]{1,30}", fullmatch=True))
def test_any_text_is_read_as_cores_or_refused(text: str) -> None:
    cores = cores_of(text)
    assert cores is None or len(set(cores)) == len(cores)


@given(st.text(max_size=40))
def test_any_text_is_read_as_a_version(text: str) -> None:
    assert all(number >= 0 for number in numbers(text))


# ---------------------------------------------------------------------------------- which stacks
def test_the_stacks_to_visit_are_the_named_one_or_those_that_may_have_the_target() -> None:
    settings = Settings(stacks={"a": StackSettings("/a"), "b": StackSettings("/b", "cpu"), "c": StackSettings("/c", "neuron")})
    assert list(visit.chosen(settings, None, None)) == ["a", "b", "c"]
    assert list(visit.chosen(settings, None, "neuron")) == ["a", "c"]
    assert list(visit.chosen(settings, "b", "neuron")) == ["b"]
    with pytest.raises(UsageError, match="no stack 'd'"):
        visit.chosen(settings, "d", None)
    with pytest.raises(UsageError, match="no target 'tpu'"):
        visit.chosen(settings, None, "tpu")
    with pytest.raises(StackError, match="no stack to look at"):
        visit.chosen(Settings(stacks={"b": StackSettings("/b", "cpu")}), None, "neuron")


def test_a_stack_without_its_python_is_a_problem_that_names_the_path(tmp_path: Path) -> None:
    report = visit.visit("gone", StackSettings(str(tmp_path / "python")), None, tmp_path, lambda _: None)
    assert not report.is_healthy
    assert str(tmp_path / "python") in report.checks[0].found


# ---------------------------------------------------------------------------------- conclusions
def conclusion(name: str, *answers: dict | str, printed: str = "") -> str | None:
    (question,) = [question for question in QUESTIONS if question.id == name]
    observed = [Observed(None, each) if isinstance(each, str) else Observed(each) for each in answers]
    assert len(observed) == len(question.steps)
    return question.conclude(observed, printed)


@pytest.mark.parametrize(
    ("new", "said"),
    [((1, 0, 0), "no: "), ((1, 0, 1), "yes: "), ((1, 1, 1), "something of the process"), ((0, 0, 0), "nothing was written")],
)
def test_the_key_of_the_cache_is_told_from_new_files(new: tuple[int, ...], said: str) -> None:
    assert said in (conclusion("cache-key", *({"before": 0, "new": each} for each in new)) or "")


def test_wrong_experts_are_told_from_refused_ones() -> None:
    refused, right = {"refused": "ValueError: t"}, {"refused": "", "off_by": 0.0, "largest": 1.0}
    generated = {"tokens": [1, 2], "warm_tokens": [1, 2], "expected": [1, 3], "graphs": 2, "first_s": 9.0, "second_s": 1.0}
    text = conclusion("experts", refused, right | {"off_by": 0.5}, "took longer than 3600 s", right, generated) or ""
    for part in ("refused (ValueError: t)", "WRONG (off by 0.5", "not known (took longer", "alignment 1: right", "1 of 2 tokens"):
        assert part in text


def test_a_group_that_fails_says_which_rank_and_why() -> None:
    good = {"sum": 3.0, "expected_sum": 3.0}
    bad = {"groups": [{"exit_codes": [1, 0], "ranks": [{"error": "RuntimeError: barrier"}, good]}]}
    silent = {"groups": [{"exit_codes": [-11, 0], "ranks": [{}, good]}, {"exit_codes": [0, 0], "ranks": [good, good]}]}
    text = conclusion("groups", bad, silent, "it needs 8 free cores, and there are 4") or ""
    assert "rank 0: RuntimeError: barrier" in text
    assert "left nothing (exit codes [-11, 0]) and works" in text
    assert "8 ranks: not known (it needs 8" in text


def test_a_question_of_which_nothing_was_observed_has_no_answer() -> None:
    for question in QUESTIONS:
        assert question.conclude([Observed(None, "it crashed")] * len(question.steps), "") is None


def test_the_monitors_peak_is_the_fullest_core_of_any_line() -> None:
    def line(*cores: int) -> str:
        usage = {str(i): {"tensors": n, "constants": 1} for i, n in enumerate(cores)}
        used = {"usage_breakdown": {"neuroncore_memory_usage": usage}}
        return json.dumps({"neuron_runtime_data": [{"report": {"memory_used": {"neuron_runtime_used_bytes": used}}}]})

    assert monitor_peak("\n".join([line(5, 9), "rubbish", '{"neuron_runtime_data": []}', line(7)])) == 10
    assert monitor_peak("") is None


@given(st.text(max_size=60))
def test_a_monitor_may_print_anything(text: str) -> None:
    monitor_peak(text + '\n{"neuron_runtime_data": [1]}\n[]')


def test_ids_of_questions_are_unique_and_plain() -> None:
    for target in TARGETS.values():
        ids = [question.id for question in target.CHECKUP.questions]
        assert len(set(ids)) == len(ids)
        assert all(name.replace("-", "").isalnum() for name in ids)

"""Plan -> the text of a self-contained run.py; pure.

Whatever comes from outside (model, revision, prompt) enters the text as an ASCII Python literal and
nowhere else, so no model id, however hostile, can become code or a comment. Versions enter the
PEP 723 header only if they look like versions.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from string import Template

from doesitrun.records import Plan, Task
from doesitrun.targets import TARGETS
from doesitrun.targets.protocol import Fragments

_VERSION = re.compile(r"[0-9]+(\.[0-9a-z]+)*")
_FILES = resources.files("doesitrun")

SECOND_PROMPT = (
    "The station master had been awake since four, because the night train was late again and the telephone in the "
    "ticket office would not stop ringing. He poured himself a cup of tea, looked at the clock above the door, and told "
    "the two travellers on the wooden bench that"
)
"""The other prompt of the probes: longer than every task's own."""
LONG_TEXT = 256
"""Tokens of the probe `long_text`."""


def render(
    plan: Plan, task: Task, versions: Mapping[str, str], graphs: Iterable[str] = (), *, eager: bool = False, passages: bool | None = None
) -> str:
    """The text of run.py.

    `versions` maps distributions (torch, transformers, ...) to the versions to pin in the header;
    one that is missing there is not pinned. `graphs` are lines on where compiled graphs may be copied from; they
    stand in the header as comments, so they may hold any printable ASCII. An `eager` script compiles nothing.
    With `passages` it also reads texts that are given to it; None leaves that to mixtures of experts, whose few generated
    tokens visit few of them.
    """
    target = TARGETS[plan.target]
    part = target.fragments(plan)
    if eager:
        part = dataclasses.replace(part, generate_arguments=(*part.generate_arguments, "disable_compile=True,"))
    shared = {
        "to_device": ".to(device)" if part.inputs_on_device else "",
        "device_parameter": ", device" if part.inputs_on_device else "",
        "dtype": plan.dtype.value,
    }
    values = {
        **_header(plan, target.REQUIREMENTS, versions),
        **_imports(plan, task, part),
        **_literals(plan, task),
        **_loading(plan, task, part),
        **_running(part, task),
        **_probing(plan, part),
        "passes": "nothing is compiled" if eager else "the first pass compiles, the second is warm",
        **_passages(plan.is_moe if passages is None else passages, part, task),
        "encode": _template("picture" if task.picture else "text").substitute(shared).rstrip("\n"),
        "start_ranks": _start_ranks(plan, part),
        "graphs": _lines(f"# {_comment(line)}" for line in graphs),
    }
    return _template("common").substitute(values)


def literal(text: str) -> str:
    """An ASCII Python literal that reads back as `text`, whatever is in it; in double quotes where that is easy."""
    quoted = ascii(text)
    return f'"{quoted[1:-1]}"' if '"' not in quoted and "'" not in quoted[1:-1] else quoted


def _template(name: str) -> Template:
    return Template((_FILES / "script_parts" / f"{name}.py.txt").read_text(encoding="utf-8"))


def _comment(line: str) -> str:
    """The line, unless something in it could end a comment."""
    if not (line.isascii() and line.isprintable()):
        message = f"{line!r} cannot stand in a comment"
        raise ValueError(message)
    return line


def _lines(lines: Iterable[str], indent: int = 0) -> str:
    return "".join(" " * indent + line + "\n" for line in lines)


def _header(plan: Plan, requirements: Iterable[str], versions: Mapping[str, str]) -> dict[str, str]:
    layout = f"{plan.cores} cores (tensor parallel {plan.tp}, expert parallel {plan.ep})" if plan.cores > 1 else "1 core"
    return {
        "dependencies": "\n".join(f'#     "{_requirement(name, versions.get(name))}",' for name in requirements),
        "summary": f"{plan.task} in {plan.dtype} on {layout} of {plan.device} ({plan.target})",
    }


def _requirement(name: str, version: str | None) -> str:
    """The distribution pinned to its public version; the local part (`+cpu`) is not on an index."""
    match = _VERSION.match(version or "")
    return f"{name}=={match[0]}" if match else name


def _imports(plan: Plan, task: Task, part: Fragments) -> dict[str, str]:
    standard = {"argparse", "json", "os", "sys", "time", *part.standard_imports}
    standard |= {"base64", "io"} if task.picture else set()
    standard |= {"socket", "tempfile", "traceback"} if plan.cores > 1 else set()
    standard |= {"traceback"} if plan.is_thorough else set()
    names = {task.auto_class, task.processor_class, "CompileConfig", "GenerationConfig"}
    names |= {"DistributedConfig"} if plan.cores > 1 else set()
    distributed = ("import torch.distributed as dist", "import torch.multiprocessing as mp") if plan.cores > 1 else ()
    after = ("import transformers", *(("from PIL import Image",) if task.picture else ()))
    variables = [f"os.environ.setdefault({literal(name)}, {literal(value)})" for name, value in sorted(part.environment.items())]
    before = [*variables, *part.environment_extra]
    return {
        "standard_imports": _lines(f"import {name}" for name in sorted(standard)) + "from pathlib import Path\n",
        "environment": _lines(["# Read when torch is imported, so they are set before it.", *before]) if before else "",
        "torch_imports": _lines([*distributed, *part.torch_imports, *after]) + f"from transformers import {', '.join(sorted(names))}\n",
    }


def _literals(plan: Plan, task: Task) -> dict[str, str]:
    constants = []
    if task.picture:
        picture = base64.b64encode((_FILES / "tasks" / task.picture).read_bytes()).decode()
        constants.append(f"PICTURE = {literal(picture)}")
    if plan.tp_override:
        rules = ", ".join(f"{literal(pattern)}: {literal(style)}" for pattern, style in plan.tp_override.items())
        constants.append(f"TP_PLAN = {{{rules}}}")
    if plan.is_thorough:
        constants.append(f"SECOND_PROMPT = {literal(SECOND_PROMPT)}")
        constants.append(f"LONG_TEXT = {LONG_TEXT}")
        constants.append(f"LONGEST = {int(plan.longest)}  # tokens that the memory holds a cache for")
    return {
        "model": literal(plan.source),
        "revision": "None" if plan.is_local else literal(plan.revision),
        "prompt": literal(plan.prompt),
        "new_tokens": str(int(plan.new_tokens)),
        "cores": str(int(plan.cores)),
        "rank_weights_bytes": str(int(plan.rank_bytes.weights)),
        "constants": _lines(constants),
    }


def _loading(plan: Plan, task: Task, part: Fragments) -> dict[str, str]:
    sizes = [f"tp_size={plan.tp}", *([f"ep_size={plan.ep}"] if plan.ep > 1 else []), *(["tp_plan=TP_PLAN"] if plan.tp_override else [])]
    arguments = [
        *part.load_arguments,
        *([f'experts_implementation="{part.experts_implementation}",'] if part.experts_implementation else []),
        *([f"distributed_config=DistributedConfig({', '.join(sizes)}),"] if plan.cores > 1 else []),
        *(["trust_remote_code=True,"] if plan.trust_remote_code else []),
    ]
    return {
        "auto_class": task.auto_class,
        "processor_class": task.processor_class,
        "dtype": plan.dtype.value,
        "remote_code": ", trust_remote_code=True" if plan.trust_remote_code else "",
        "load_arguments": _lines(arguments, 8),
    }


def _running(part: Fragments, task: Task) -> dict[str, str]:
    return {
        "backend": part.backend,
        "functions": part.functions,
        "compile_extra": _lines(part.compile_extra, 4),
        "generate_arguments": _lines(part.generate_arguments, 12),
        "synchronize": _lines(part.synchronize, 4),
        "run_setup": _lines(part.run_setup, 4),
        "encode_device": ", model.device" if part.inputs_on_device or task.picture else "",
        "compiled": part.compiled,
        "reset_peak": _lines(part.reset_peak, 4),
        "peak_bytes": part.peak_bytes,
        "fallbacks": part.fallbacks,
        "cache_folder": part.cache_folder,
        "cache_pattern": part.cache_pattern,
        "cache_hits": part.cache_hits,
        "cache_misses": part.cache_misses,
    }


def _probing(plan: Plan, part: Fragments) -> dict[str, str]:
    """The probes, for a plan that asks for them; else nothing at all."""
    if not plan.is_thorough:
        return {"probe_functions": "", "probe_results": ""}
    values = {
        "backend": part.backend,
        "to_model": ".to(model.device)" if part.inputs_on_device else "",
        "compile_extra": _lines(part.compile_extra, 4),
        "generate_arguments": _lines(part.generate_arguments, 12),
        "synchronize": _lines(part.synchronize, 4),
    }
    functions = _template("probes").substitute(values).rstrip("\n")
    return {"probe_functions": functions + "\n", "probe_results": _lines(['"probes": run_probes(processor, model, report),'], 8)}


def _passages(wanted: bool, part: Fragments, task: Task) -> dict[str, str]:
    if not wanted:
        return {"read_passages": "", "passages": "", "passages_entry": "", "about_passages": ""}
    if task.picture:  # the picture's tokens stay, and the passage follows the prompt
        given = {
            "tokenizing": ", add_special_tokens=False",
            "given": '        given, ids = inputs, inputs["input_ids"][0].tolist() + ids',
        }
    else:
        device = '.to(inputs["input_ids"].device)' if part.inputs_on_device else ""
        given = {"tokenizing": "", "given": f'        given = {{**inputs, "input_ids": torch.tensor([ids[:length]]){device}}}'}
    return {
        "read_passages": _template("passages").substitute(given),
        "passages": _lines(["passages = read_passages(processor, model, inputs)"], 4),
        "passages_entry": _lines(['"passages": passages,'], 8),
        "about_passages": "\nThen it is given the tokens of some passages, as few of its experts see those few.",
    }


def _start_ranks(plan: Plan, part: Fragments) -> str:
    if plan.cores == 1:
        return _template("one_core").substitute().rstrip("\n")
    values = {"rank_setup": _lines(part.rank_setup, 4), "process_group": part.process_group}
    return _template("sharded").substitute(values).rstrip("\n")

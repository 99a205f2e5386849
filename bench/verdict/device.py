"""The device side of a case: the published script's own functions, on a model that may have been tampered with.

run.py is rendered as a test renders it and executed here, so that what it leaves has the real shape. Two things are
exchanged: the model (with a fault, or loaded in another right way), and compilation, which is left out except in the cases
whose point it is; their `compiled` and `graphs` are then filled in, as those belong to another rung. Sharded cases are
child processes with gloo ranks, whose script has the same two places edited.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.verdict import models
from doesitrun import campaign, isolate, script, stacks, verify
from doesitrun.campaign import Ask, Context
from doesitrun.instack import judge, reference
from doesitrun.records import Dtype, Plan
from doesitrun.settings import Settings
from doesitrun.stacks import INSTACK
from doesitrun.store.workspace import Workspace
from doesitrun.targets import TARGETS
from doesitrun.tasks import TASKS
from doesitrun.verify.fluency import Fluency, fluency

Json = dict[str, Any]
GRAPHS = models.CACHE / "tests" / "graphs" / "cpu"


class Bench:
    """Models, plans and answers that many cases share, each made once."""

    def __init__(self, names: list[str]) -> None:
        self.root = models.CACHE / "bench" / "workspace"
        self.root.mkdir(parents=True, exist_ok=True)
        self.context = Context(stacks.choose(Settings(), None, "cpu"), Settings(), Workspace(self.root), lambda _: None, lambda _: None)
        self.folders = {name: models.checkpoint(name) for name in names}
        self.loaded: dict[tuple[str, str], tuple[Any, Json]] = {}
        self.planned: dict[tuple[str, int, Dtype], Plan] = {}
        self.visits: dict[tuple[str, int], dict[int, int]] = {}
        smollm2 = models.checkpoint("smollm2")
        self.judge_tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
        self.judge_model = transformers.AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
        reference.load = lambda request, dtype: self._fresh(request["model"], request["auto_class"], dtype)

    def plan(self, name: str, cores: int = 1, dtype: Dtype = Dtype.BFLOAT16) -> Plan:
        key = (name, cores, dtype)
        if key not in self.planned:
            (prepared,) = campaign.prepare([Ask(str(self.folders[name]), cores=cores, dtype=dtype)], self.context)
            assert isinstance(prepared.plan, Plan), prepared.plan
            self.planned[key] = prepared.plan
        return self.planned[key]

    def model(self, name: str, dtype: str = "bfloat16") -> Any:
        """A new copy of the model, as from_pretrained gives it."""
        task = TASKS[models.MODELS[name].task]
        return self._fresh(str(self.folders[name]), task.auto_class, getattr(torch, dtype))[0]

    def _fresh(self, folder: str, auto_class: str, dtype: Any) -> tuple[Any, Json]:
        key = (folder, str(dtype))
        if key not in self.loaded:
            found, info = getattr(transformers, auto_class).from_pretrained(
                folder, dtype=dtype, use_safetensors=True, output_loading_info=True
            )
            self.loaded[key] = (found.eval(), info)
        found, info = self.loaded[key]
        return copy.deepcopy(found), info

    # ------------------------------------------------------------------------------ the reference and the judge
    def answer(self, plan: Plan, result: Json) -> Json:
        with torch.inference_mode():
            return reference.answer_to(self.request(plan, result))

    def request(self, plan: Plan, result: Json) -> Json:
        request = verify.reference_request(plan, result)
        if request["picture"]:
            request["picture"] = str(INSTACK.parent / "tasks" / request["picture"])
        return request

    def texts(self, plan: Plan, result: Json) -> list[reference.Text]:
        request = self.request(plan, result)
        return reference.texts_of(request, reference.load_processor(request), torch.bfloat16)

    def word(self, plan: Plan, result: Json) -> Fluency:
        with torch.inference_mode():
            nll, _ = judge.likelihood(self.judge_model, self.judge_tokenizer, plan.prompt, result["text"])
        return fluency(result["text"], nll)

    # ------------------------------------------------------------------------------ one process
    def run(self, plan: Plan, model: Any, *, passages: bool = False, compiled: bool = False, around: Around | None = None) -> Json:
        """What run.py reports of `model`. `around` may replace its generate()."""
        text = script.render(plan, TASKS[plan.task], {}, passages=plan.is_moe or passages)
        module = types.ModuleType("published")
        exec(compile(text, "run.py", "exec"), module.__dict__)
        processor = getattr(transformers, TASKS[plan.task].processor_class).from_pretrained(plan.source)
        model.generation_config = plain(model.generation_config)
        module.load = lambda: (processor, model)
        generate = module.generate if compiled else once(eagerly(module.generate))
        module.generate = around(generate) if around else generate
        torch._dynamo.utils.counters.clear()  # noqa: SLF001  the script reads them
        result: Json = module.run_all(None)
        return result if compiled else as_if_compiled(result)

    # ------------------------------------------------------------------------------ ranks
    def run_ranks(self, plan: Plan, fault: str = "") -> Json:
        """What run.py reports from gloo ranks; `fault` is the body of a function of `model` and `rank`, run after loading."""
        text = script.render(plan, TASKS[plan.task], {})
        text = replaced(text, "            **more,\n", "            disable_compile=True,\n            **more,\n")
        if fault:
            body = "".join(f"    {line}\n" for line in fault.strip().splitlines())
            text = replaced(text, "def weights_bytes(", f"def break_it(model, rank):\n{body}\n\ndef weights_bytes(")
            broken = 'break_it(model, int(os.environ["RANK"]))\n    return processor, model.eval()'
            text = replaced(text, "return processor, model.eval()", broken)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "run.py").write_text(text)
            environment = isolate.child_environment(os.environ, TARGETS["cpu"].environment(str(folder)), keep_token=False)
            isolate.run([sys.executable, "run.py", "--report", "."], folder, environment, isolate.Limits())
            result = isolate.read_result(folder)
            assert result is not None, isolate.read_log(folder)[-3000:]
        return as_if_compiled(dict(result))


Generate = Callable[..., tuple[list[int], torch.Tensor, float]]
Around = Callable[[Generate], Generate]


def eagerly(generate: Generate) -> Generate:
    return lambda model, inputs, **more: generate(model, inputs, disable_compile=True, **more)


def once(generate: Generate) -> Generate:
    """The second pass over the prompt, which eager code repeats bit by bit, is taken from the first."""
    kept: dict[tuple[int, ...], tuple[list[int], torch.Tensor, float]] = {}

    def call(model: Any, inputs: Json, **more: Any) -> tuple[list[int], torch.Tensor, float]:
        if "prefix_allowed_tokens_fn" in more:
            return generate(model, inputs, **more)
        key = tuple(inputs["input_ids"].flatten().tolist())
        if key not in kept:
            kept[key] = generate(model, inputs, **more)
        return kept[key]

    return call


def plain(config: Any) -> Any:
    """Greedy decoding, as run.py's load() sets it."""
    eos, pad = config.eos_token_id, config.pad_token_id
    first = eos[0] if isinstance(eos, list) else eos
    return transformers.GenerationConfig(eos_token_id=eos, pad_token_id=first if pad is None else pad)


def as_if_compiled(result: Json) -> Json:
    ranks = [{**rank, "graphs": 1} for rank in result["ranks"]]
    return {**result, "compiled": True, "graphs": 1, "ranks": ranks}


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


# ---------------------------------------------------------------------------------- how large a fault is
def change(bench: Bench, plan: Plan, result: Json, answer: Json, broken: Any, given: Callable[[Json], Json] | None) -> list[float]:
    """By position: what the fault does to the float32 logits, in units of the yardstick's noise.

    `broken` is the float32 model with the fault in it; `given` changes the inputs where the fault is in those.
    """
    found = []
    figures = [answer, *answer["passages"]]
    with torch.inference_mode():
        for text, expected in zip(bench.texts(plan, result), figures, strict=True):
            inputs = given(text.inputs) if given else text.inputs
            logits = reference.step_logits(broken, inputs, text.steps)
            fault = centred(torch.tensor(reference.picked(logits, text.top_ids)))
            wide = centred(torch.tensor(expected["fp32"]))
            runs = [centred(torch.tensor(run)) - wide for run in (expected["low"], *expected["shaken"])]
            noise = torch.stack(runs).pow(2).mean((0, 2)).sqrt()
            found += ((fault - wide).pow(2).mean(1).sqrt() / noise).tolist()
    return found


def centred(logits: torch.Tensor) -> torch.Tensor:
    return logits - logits.mean(1, keepdim=True)


def visitors(answer: Json, layer: int, expert: int) -> list[int]:
    """The positions that visit an expert in all of the CPU's runs."""
    figures = [answer, *answer["passages"]]
    return [place for place, visited in enumerate(experts for each in figures for experts in each["visits"][layer]) if expert in visited]


@contextlib.contextmanager
def kept_graphs() -> Iterator[None]:
    """Inductor's cache where the tests have theirs, so that what they have compiled is found."""
    folder = next(iter(sorted(GRAPHS.glob("*/*"))), GRAPHS / "bench")
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
        if before is not None:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before

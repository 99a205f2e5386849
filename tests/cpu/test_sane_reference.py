"""A broken checkpoint is the upstream's fault, however well the device agrees with the CPU about it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doesitrun import verify
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Dtype, Plan
from tests.cpu.test_checkpoints import edit_weights
from tests.cpu.test_reference import EOS, PROMPT, STEPS, plan_of

torch = pytest.importorskip("torch", reason="the stack is not installed")
transformers = pytest.importorskip("transformers", reason="the stack is not installed")

from doesitrun.instack import reference  # noqa: E402  torch may be absent
from tests.cpu import small_models  # noqa: E402  torch may be absent

Json = dict[str, Any]


def agreeing(plan: Plan, **more: Any) -> tuple[Json, Json]:
    """A run that says of the checkpoint exactly what the CPU does in the same dtype, and the CPU's answer."""
    ids = transformers.AutoTokenizer.from_pretrained(plan.source)(PROMPT)["input_ids"]
    tokens = [5] * STEPS
    numbers = {"prompt_ids": ids, "tokens": tokens, "warm_tokens": tokens, "top_ids": [list(range(50))] * STEPS, "eos_ids": [EOS]}
    with torch.inference_mode():
        answer = reference.answer_to(verify.reference_request(plan, numbers) | more)
    rank = {"rank": 0, "tokens": tokens, "peak_bytes": 0, "weights_bytes": 0, "graphs": 1}
    ran = {"text": "", "compiled": True, "graphs": 1, "ranks": [rank], "missing_keys": [], "fallbacks": []}
    return numbers | ran | {"top_logits": answer["low"]}, answer


def test_a_random_head_is_upstreams_fault_though_device_and_cpu_agree(damaged: Path) -> None:
    """The checkpoint unties its head, and what it holds of it is noise: gibberish on every device."""

    def random_head(tensors: Json) -> None:
        tensors["lm_head.weight"] = torch.randn_like(tensors["model.embed_tokens.weight"]) * 0.02

    small_models.edit_config(damaged, tie_word_embeddings=False)
    edit_weights(damaged, random_head)
    plan = plan_of(damaged)
    result, answer = agreeing(plan)
    seen = verify.verdict(plan, result, answer, None)
    assert (seen.outcome.reason, seen.outcome.result) == (Reason.REFERENCE_BROKEN, Result.EXCLUDED)
    assert "nats per token" in seen.outcome.detail
    assert seen.logit_ratio == pytest.approx(1), "the numbers cannot see it"
    assert len(set(answer["weights_digests"])) == 1, "both loads have the checkpoint's noise"


def test_a_missing_head_is_named_and_its_two_loads_differ(tmp_path: Path) -> None:
    folder = small_models.llama(tmp_path / "model")
    edit_weights(folder, lambda tensors: tensors.pop("lm_head.weight"))
    plan = plan_of(folder, Dtype.FLOAT32)
    result, answer = agreeing(plan)
    assert answer["missing_keys"] == ["lm_head.weight"]
    assert len(set(answer["weights_digests"])) == 2
    assert verify.verdict(plan, result, answer, None).outcome.reason is Reason.MISSING_WEIGHTS


def test_nothing_suspicious_costs_no_second_load(tmp_path: Path) -> None:
    plan = plan_of(small_models.llama(tmp_path / "model"), Dtype.FLOAT32)
    assert agreeing(plan, suspicious_loss=9.0)[1]["weights_digests"] == []


OWN = '''
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own_llama"

class OwnForCausalLM(LlamaForCausalLM):
    """Its checkpoint has other names than its modules, and nobody is told."""

    config_class = OwnConfig
    _keys_to_ignore_on_load_missing = [r".*"]
    _keys_to_ignore_on_load_unexpected = [r".*"]
'''


def silently_random(folder: Path) -> Path:
    """A checkpoint with code of its own, which loads none of its weights and says so nowhere."""
    small_models.llama(folder)
    (folder / "own.py").write_text(OWN)
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    small_models.edit_config(folder, model_type="own_llama", architectures=["OwnForCausalLM"], auto_map=names)

    def rename(tensors: Json) -> None:
        for name in list(tensors):
            tensors[f"decoder.{name}"] = tensors.pop(name)

    edit_weights(folder, rename)
    return folder


def test_weights_that_remote_code_draws_at_random_are_found_by_loading_twice(tmp_path: Path) -> None:
    folder = silently_random(tmp_path / "model")
    made_up = {"prompt_ids": [5, 6], "tokens": [5, 6], "top_ids": [[5, 6]] * 2, "eos_ids": []}
    plan = plan_of(folder, Dtype.FLOAT32)
    request = verify.reference_request(plan, made_up) | {"trust_remote_code": True, "prompt": "a", "suspicious_loss": 9.0}
    (tmp_path / "request.json").write_text(json.dumps(request))
    argv = [sys.executable, reference.__file__, str(tmp_path / "request.json"), str(tmp_path / "answer.json")]
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["missing_keys"] == []
    assert len(set(answer["weights_digests"])) == 2
    shutil.rmtree(tmp_path / "modules")

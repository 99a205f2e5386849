"""The outline of a real transformers: exact sizes, right reasons, and bytes per rank that are those of transformers itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.outcomes import Reason
from doesitrun.plan.outlines import Outline, Problem, outline_request, read_outlines
from doesitrun.plan.planner import PlanOptions, fits
from doesitrun.records import Device
from doesitrun.tasks import TASKS
from tests.cpu.toy_configs import TEXT, config

OUTLINE = Path(__file__).parents[2] / "src" / "doesitrun" / "instack" / "outline.py"
SIZES = Path(__file__).parent / "sharded_sizes.py"
Outlines = dict[str, Outline | Problem]
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32, "patch_size": 16}
SMOLVLM = {
    "model_type": "smolvlm",
    "architectures": ["SmolVLMForConditionalGeneration"],
    "vision_config": {"model_type": "smolvlm_vision", **VISION},
    "text_config": {**TEXT["llama-tied"], "pad_token_id": 0},
    "tie_word_embeddings": True,
}
ODD: dict[str, tuple[Any, Reason]] = {
    "no-model-type": ({"hidden_size": 1}, Reason.NOT_TRANSFORMERS),
    "unknown": ({"model_type": "never-heard-of"}, Reason.UNKNOWN_ARCHITECTURE),
    "own-code": ({"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}, Reason.REMOTE_CODE),
    "own-code-without-type": ({"auto_map": {"AutoModelForCausalLM": "mine.Model"}}, Reason.REMOTE_CODE),
    "own-class-of-known-type": (
        config("llama", "MineForPonies", auto_map={"AutoModel": "mine.Model"}),
        Reason.REMOTE_CODE,
    ),
    "type-is-a-list": ({"model_type": ["llama"]}, Reason.NOT_TRANSFORMERS),
    "layers-are-text": (config("llama", "LlamaForCausalLM", num_hidden_layers="many"), Reason.INVALID_CONFIG),
    "layers-are-negative": (config("llama", "LlamaForCausalLM", hidden_size=-5), Reason.INVALID_CONFIG),
    "no-heads": (config("llama", "LlamaForCausalLM", num_attention_heads=0, head_dim=None), Reason.INVALID_CONFIG),
    "activation-is-made-up": (config("llama", "LlamaForCausalLM", hidden_act="made-up"), Reason.INVALID_CONFIG),
    "layers-without-end": (config("llama", "LlamaForCausalLM", num_hidden_layers=10**9), Reason.INVALID_CONFIG),
    "architectures-is-a-word": (config("llama", "LlamaForCausalLM") | {"architectures": "LlamaForCausalLM"}, Reason.INVALID_CONFIG),
    "architectures-is-text": (config("llama", "LlamaForCausalLM") | {"architectures": 5}, Reason.INVALID_CONFIG),
    "encoder": ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, Reason.TASK),
    "embeddings": ({"model_type": "bert", "architectures": ["BertModel"]}, Reason.TASK),
    "encoder-decoder": ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, Reason.TASK),
    "speech": ({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}, Reason.TASK),
    "summaries": ({"model_type": "bart", "architectures": ["BartForConditionalGeneration"]}, Reason.TASK),
    "pictures": ({"model_type": "vit", "architectures": ["ViTForImageClassification"]}, Reason.TASK),
    "reward": (config("llama", "LlamaForSequenceClassification"), Reason.TASK),
    "headless-untied": (config("llama", "LlamaModel", tie_word_embeddings=False), Reason.TASK),
}
GOOD: dict[str, Any] = {
    **TEXT,
    "smolvlm": SMOLVLM,
    "headless-tied": config("llama", "LlamaModel", tie_word_embeddings=True),
    "nameless": {**TEXT["llama"], "architectures": None},
    "old-name": config("llama", "LLaMAForCausalLM"),
}


def run_script(script: Path, request: dict[str, Any], folder: Path) -> Any:
    asked, answered = folder / "request.json", folder / "answer.json"
    asked.write_text(json.dumps(request))
    done = subprocess.run([sys.executable, script, asked, answered], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(answered.read_text())


def checkpoint(values: Any) -> Checkpoint:
    return Checkpoint("local/toy", "abc", "/toy", values)


@pytest.fixture(scope="module")
def outlines(tmp_path_factory: pytest.TempPathFactory) -> Outlines:
    """All configs above in one process, the odd ones among the good."""
    configs = {name: values for name, (values, _) in ODD.items()} | GOOD
    request = outline_request([checkpoint(values) for values in configs.values()], TASKS.values())
    answer = run_script(OUTLINE, request, tmp_path_factory.mktemp("outlines"))
    return dict(zip(configs, read_outlines(answer), strict=True))


def good(outlines: Outlines, name: str) -> Outline:
    found = outlines[name]
    assert isinstance(found, Outline), found
    return found


@pytest.mark.parametrize("name", GOOD)
def test_a_good_model_is_outlined_among_bad_ones(outlines: Outlines, name: str) -> None:
    assert good(outlines, name).elements > 0
    assert good(outlines, name).task == ("image-text-to-text" if name == "smolvlm" else "text-generation")


@pytest.mark.parametrize("name", ODD)
def test_a_bad_model_has_its_reason_in_one_line(outlines: Outlines, name: str) -> None:
    found = outlines[name]
    assert isinstance(found, Problem), found
    assert found.reason is ODD[name][1], found
    assert "\n" not in found.detail
    assert "Traceback" not in found.detail


def test_sizes_are_those_of_the_architecture(outlines: Outlines) -> None:
    vocab, hidden, inner, kv = 101, 64, 96, 32
    layer = hidden * hidden * 2 + hidden * kv * 2 + 3 * hidden * inner + 2 * hidden
    assert good(outlines, "llama").elements == 2 * layer + 2 * vocab * hidden + hidden
    assert good(outlines, "llama-tied").elements == 2 * layer + vocab * hidden + hidden


def test_tied_heads_and_layers_for_multi_token_prediction_are_known_as_not_loaded(outlines: Outlines) -> None:
    tied, deepseek = good(outlines, "llama-tied"), good(outlines, "deepseek_v3")
    assert (tied.tied, tied.unloaded["a copy of the tied head"]) == (True, 101 * 64)
    assert good(outlines, "llama").unloaded == {"a copy of the tied head": 0, "layers for multi-token prediction": 0}
    assert deepseek.unloaded["layers for multi-token prediction"] > 8 * 3 * 24 * 64


def test_routers_kept_in_float32_are_sized_so(outlines: Outlines) -> None:
    kept = [p for p in good(outlines, "deepseek_v3").parameters if p.dtype == "float32"]
    assert {(p.name.rpartition(".")[2], p.itemsize) for p in kept} == {("weight", 4), ("e_score_correction_bias", 4)}


def test_heads_of_the_projections_that_are_cut_are_reported(outlines: Outlines) -> None:
    assert [(kind.pattern, kind.heads, kind.kv_heads, kind.count) for kind in good(outlines, "qwen2").attention] == [
        ("model.layers.*.self_attn", 8, 4, 2)
    ]
    assert good(outlines, "gpt2").attention == ()


def test_rules_of_another_module_under_the_same_pattern_are_not_the_attentions(outlines: Outlines) -> None:
    model = good(outlines, "nemotron_h")  # attention, state space, experts and MLP are all called `mixer` there
    assert any(rule.startswith("model.layers.*.mixer.experts") for rule in model.tp_plan)
    assert model.attention == ()


def test_the_cache_knows_windows_and_latent_attention(outlines: Outlines) -> None:
    assert {(c.window, c.layers) for c in good(outlines, "gemma3_text").cache} == {(16, 1), (None, 1)}
    assert [(c.kv_heads, c.k_dim, c.v_dim) for c in good(outlines, "deepseek_v3").cache] == [(8, 12, 8)]


def test_experts_are_counted_whole(outlines: Outlines) -> None:
    counts = {name: good(outlines, name).experts for name in ("llama", "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3")}
    assert counts == {"llama": 0, "mixtral": 4, "qwen3_moe": 8, "gpt_oss": 4, "deepseek_v3": 8}


def test_a_type_that_is_never_compiled_is_known(outlines: Outlines) -> None:
    assert not good(outlines, "llama4_text").compiled
    assert good(outlines, "llama").compiled


@pytest.mark.parametrize("cores", [2, 3, 4])
def test_bytes_on_a_rank_are_those_that_transformers_leaves_there(outlines: Outlines, cores: int, tmp_path: Path) -> None:
    device = Device("cpu", "cpu", (cores,), 0, 0.2)
    planned = {}
    for name in TEXT:
        fit = fits(checkpoint({}), good(outlines, name), device, TASKS["text-generation"], PlanOptions())[0]
        if fit.holds:
            planned[name] = fit
    assert "gpt2" not in planned
    assert len(planned) == len(TEXT) - 1
    models = [
        {"config": TEXT[name], "auto_class": "AutoModelForCausalLM", "ep": fit.ep, "override": fit.override}
        for name, fit in planned.items()
    ]
    real = run_script(SIZES, {"cores": cores, "models": models}, tmp_path)
    assert {name: fit.rank_bytes.weights for name, fit in planned.items()} == dict(zip(planned, real, strict=True))


def test_code_from_a_repository_is_run_only_when_asked_for(tmp_path: Path, write_remote_model: Callable[[Path], Path]) -> None:
    mark = write_remote_model(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    model = Checkpoint("local/mine", "abc", str(tmp_path), values, remote_code=True)
    refused = read_outlines(run_script(OUTLINE, outline_request([model], TASKS.values()), tmp_path))[0]
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.REMOTE_CODE
    assert not mark.exists()
    trusted = read_outlines(run_script(OUTLINE, outline_request([model], TASKS.values(), trust_remote_code=True), tmp_path))[0]
    assert isinstance(trusted, Outline), trusted
    assert trusted.class_name == "MineForCausalLM"
    assert mark.exists()


@pytest.fixture
def write_remote_model() -> Callable[[Path], Path]:
    """A checkpoint folder with code of its own, which leaves a mark when it is run."""

    def write(folder: Path) -> Path:
        mark = folder / "code-was-run"
        (folder / "mine.py").write_text(
            "from pathlib import Path\n"
            "from transformers import LlamaConfig, LlamaForCausalLM\n"
            f"Path({str(mark)!r}).touch()\n"
            "print('noise on stdout')\n"
            "class MineConfig(LlamaConfig):\n    model_type = 'mine'\n"
            "class MineForCausalLM(LlamaForCausalLM):\n    config_class = MineConfig\n"
        )
        auto_map = {"AutoConfig": "mine.MineConfig", "AutoModelForCausalLM": "mine.MineForCausalLM"}
        values = {**TEXT["llama"], "model_type": "mine", "architectures": ["MineForCausalLM"], "auto_map": auto_map}
        (folder / "config.json").write_text(json.dumps(values))
        return mark

    return write

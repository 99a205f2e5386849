"""The CPU reference and the judge on real weights: right runs are within the noise, real faults are not.

The device is stood in for by plain eager decoding; `tests/cpu/test_demo.py` runs compiled and sharded ones.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

import pytest

from doesitrun import tasks, verify
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Dtype, Plan, RankBytes
from doesitrun.tasks import TASKS
from doesitrun.verify import THRESHOLDS

torch = pytest.importorskip("torch", reason="the stack is not installed")
transformers = pytest.importorskip("transformers", reason="the stack is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

from doesitrun.instack import judge, reference  # noqa: E402  torch may be absent
from tests.cpu import small_models  # noqa: E402  torch may be absent

STEPS = 32
EOS = 2
WEIGHTS_BYTES = 269_030_016
PROMPT = "Once upon a time, in a small village by the sea, there lived an old fisherman who"

Json = dict[str, Any]
Model = Any
Fault = Callable[[Model], None]


def plan_of(checkpoint: Path, dtype: Dtype = Dtype.BFLOAT16) -> Plan:
    return Plan(
        model_id="local/smollm2",
        revision="a" * 64,
        source=str(checkpoint),
        task="text-generation",
        target="cpu",
        device="cpu",
        cores=1,
        tp=1,
        ep=1,
        dtype=dtype,
        new_tokens=STEPS,
        weights_bytes=WEIGHTS_BYTES,
        rank_bytes=RankBytes(sharded=WEIGHTS_BYTES),
        capacity_bytes=10**10,
        prompt=PROMPT,
    )


def load(checkpoint: Path, dtype: Any = None, **options: Any) -> Model:
    return transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype or torch.bfloat16, **options).eval()


def run_of(checkpoint: Path, model: Model) -> Json:
    """What a device would report, decoded greedily without a cache: that takes a third of the time here."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    prompt_ids, steps = ids[0].tolist(), []
    with torch.inference_mode():
        for _ in range(STEPS):
            logits = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1].float()
            steps.append(logits)
            allowed = logits.clone()
            allowed[EOS] = -math.inf
            ids = torch.cat([ids, allowed.argmax()[None, None]], dim=1)
    return report(tokenizer, prompt_ids, ids[0, len(prompt_ids) :].tolist(), torch.stack(steps))


def report(tokenizer: Any, prompt_ids: list[int], tokens: list[int], logits: Any) -> Json:
    top = logits.topk(50)
    return {
        "prompt_ids": prompt_ids,
        "tokens": tokens,
        "warm_tokens": tokens,
        "eos_ids": [EOS],
        "top_ids": top.indices.tolist(),
        "top_logits": top.values.tolist(),
        "text": tokenizer.decode(tokens, skip_special_tokens=True),
        "compiled": True,
        "graphs": 1,
        "ranks": [{"rank": 0, "tokens": tokens, "peak_bytes": 0, "weights_bytes": 0, "graphs": 1}],
        "missing_keys": [],
        "fallbacks": [],
    }


def answer_about(plan: Plan, result: Json) -> Json:
    with torch.inference_mode():
        return reference.answer_to(verify.reference_request(plan, result))


def verdict_on(checkpoint: Path, model: Model) -> verify.Verdict:
    result = run_of(checkpoint, model)
    return verify.verdict(plan_of(checkpoint), result, answer_about(plan_of(checkpoint), result), None)


# ---------------------------------------------------------------------------------- right runs and real faults
def zeroed_head(model: Model) -> None:
    model.model.layers[10].self_attn.o_proj.weight[:, 64:128] = 0


def wrong_activation(model: Model) -> None:
    model.model.layers[12].mlp.act_fn = torch.nn.GELU()


FAULTS = [zeroed_head, wrong_activation]
"""Those with the smallest margin; the bench of the verdict has many more."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_real_fault_is_beyond_the_limit(checkpoint: Path, fault: Fault):
    model = load(checkpoint)
    with torch.inference_mode():
        fault(model)
    seen = verdict_on(checkpoint, model)
    assert seen.outcome.reason is Reason.WRONG_NUMBERS
    assert seen.logit_ratio > THRESHOLDS.ratio
    assert seen.rungs == ("reference", "executed")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_right_run_is_within_the_limit(checkpoint: Path, attention: str):
    seen = verdict_on(checkpoint, load(checkpoint, attn_implementation=attention))
    assert seen.outcome.result is Result.PASS
    assert 0.6 < seen.logit_ratio < 1.3
    assert seen.passage_loss == pytest.approx(3.64, abs=0.05)


@pytest.fixture(scope="module")
def float32_run(checkpoint: Path) -> tuple[Plan, Json, Json]:
    """A float32 plan, the device's run of it and the reference's answer."""
    plan = plan_of(checkpoint, Dtype.FLOAT32)
    result = run_of(checkpoint, load(checkpoint, torch.float32))
    return plan, result, answer_about(plan, result)


def test_a_float32_run_is_far_within_its_own_limit(float32_run: tuple[Plan, Json, Json]):
    plan, result, answer = float32_run
    seen = verify.verdict(plan, result, answer, None)
    assert seen.outcome.result is Result.PASS
    assert seen.logit_ratio < 0.01
    assert answer["low_dtype"] == "bfloat16"
    assert answer["fp32_argmax"] == result["tokens"]


def test_a_float32_plan_that_ran_in_bfloat16_is_found_out(float32_run: tuple[Plan, Json, Json]):
    plan, result, answer = float32_run
    seen = verify.verdict(plan, {**result, "top_logits": answer["low"]}, answer, None)
    assert seen.outcome.reason is Reason.WRONG_NUMBERS
    assert seen.logit_ratio == pytest.approx(1)


def test_one_teacher_forced_forward_gives_what_decoding_step_by_step_gives(float32_run: tuple[Plan, Json, Json]):
    _, result, answer = float32_run
    assert torch.allclose(torch.tensor(result["top_logits"]), torch.tensor(answer["fp32"]), atol=1e-3)
    assert answer["prompt_ids"] == result["prompt_ids"]
    assert answer["missing_keys"] == answer["unexpected_keys"] == answer["mismatched_keys"] == []


def test_the_float32_run_has_the_very_weights_of_the_other_and_exact_rotary_frequencies(checkpoint: Path):
    model = load(checkpoint)
    frequencies = model.model.rotary_emb.inv_freq
    assert frequencies.dtype == torch.float32
    assert torch.equal(model.float().model.rotary_emb.inv_freq, load(checkpoint, torch.float32).model.rotary_emb.inv_freq)


# ---------------------------------------------------------------------------------- the scripts as processes
def ask(script: Any, request: Json, folder: Path) -> subprocess.CompletedProcess[str]:
    asked, answer = folder / "request.json", folder / "answer.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    return subprocess.run([sys.executable, script.__file__, str(asked), str(answer)], capture_output=True, text=True, check=False)


@pytest.fixture
def request_for(checkpoint: Path) -> Callable[[Path], Json]:
    """A request about a made-up run of a checkpoint: enough for what needs no right tokens."""
    ids = transformers.AutoTokenizer.from_pretrained(checkpoint)(PROMPT)["input_ids"]
    made_up = {"prompt_ids": ids, "tokens": [5] * STEPS, "top_ids": [list(range(50))] * STEPS, "eos_ids": [EOS]}
    return lambda folder: verify.reference_request(plan_of(folder), made_up)


def test_the_reference_answers_in_a_file(request_for: Callable[[Path], Json], checkpoint: Path, tmp_path: Path):
    done = ask(reference, request_for(checkpoint), tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    assert set(answer["seconds"]) == {"load", "encode", "low", "fp32"}
    assert (len(answer["fp32"]), len(answer["fp32"][0]), answer["vocab_size"]) == (STEPS, 50, 49152)
    assert not list(tmp_path.glob("*.part"))


def test_a_missing_tensor_is_named(request_for: Callable[[Path], Json], checkpoint: Path, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "holed"
    shutil.copytree(checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.3.mlp.up_proj.weight"]
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:100].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with torch.inference_mode():
        answer = reference.answer_to(request_for(folder))
    assert answer["missing_keys"] == ["model.layers.3.mlp.up_proj.weight"]
    assert answer["mismatched_keys"] == ["model.norm.weight"]


def test_pickles_are_refused(request_for: Callable[[Path], Json], checkpoint: Path, tmp_path: Path):
    folder = tmp_path / "pickled"
    shutil.copytree(checkpoint, folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    done = ask(reference, request_for(folder), tmp_path)
    assert done.returncode != 0
    assert "safetensors" in done.stderr
    assert not (tmp_path / "answer.json").exists()


def test_a_checkpoint_of_noise_fails_the_passage(request_for: Callable[[Path], Json], checkpoint: Path, tmp_path: Path):
    folder = tmp_path / "noise"
    shutil.copytree(checkpoint, folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    with torch.inference_mode():
        answer = reference.answer_to(request_for(folder))
    assert answer["missing_keys"] == []
    assert answer["passage_loss"] > THRESHOLDS.passage_loss * math.log(answer["vocab_size"])


def test_the_judge_tells_english_from_word_salad(checkpoint: Path, tmp_path: Path):
    texts = [" had a daughter. She was a kind and gentle soul.", " wisdom mind a gentle full and of had daughter soul heart", ""]
    request = {"model": str(checkpoint), "revision": None, "texts": [{"prompt": PROMPT, "text": text} for text in texts]}
    done = ask(judge, request, tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    english, salad, empty = answer["nll"]
    assert english < THRESHOLDS.nll < salad
    assert empty is None
    assert answer["tokens"][2] == 0


# ---------------------------------------------------------------------------------- pictures
def test_what_goes_with_the_ids_grows_with_them():
    ids = torch.tensor([[7, 8, 9]])
    kinds = torch.tensor([[1, 1, 0]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": kinds, "pixel_values": torch.ones(1, 3, 4, 4)}
    grown = reference.rounded(reference.with_tokens(inputs, [1, 2, 3]), torch.bfloat16)
    assert grown["input_ids"].tolist() == [[7, 8, 9, 1, 2]]
    assert grown["attention_mask"].tolist() == [[1] * 5]
    assert grown["mm_token_type_ids"].tolist() == [[1, 1, 0, 0, 0]]
    assert grown["pixel_values"].dtype == torch.bfloat16
    assert grown["pixel_values"].shape == (1, 3, 4, 4)


CHAT_TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def vision_model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA of random weights, with a processor of its own."""
    folder = tmp_path_factory.mktemp("llava")
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**small, image_size=56, patch_size=14),
        text_config=transformers.LlamaConfig(**small, vocab_size=len(tokenizer)),
        image_token_index=image_token,
    )
    torch.manual_seed(0)
    transformers.LlavaForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=CHAT_TEMPLATE,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    return folder


def test_a_picture_takes_part_in_the_teacher_forced_forward(vision_model: Path):
    task = TASKS["image-text-to-text"]
    picture = str(Path(tasks.__file__).with_name(task.picture))
    model = transformers.AutoModelForImageTextToText.from_pretrained(vision_model, dtype=torch.float32).eval()
    processor = transformers.AutoProcessor.from_pretrained(vision_model)
    given = reference.rounded(reference.rounded(reference.encode(processor, task.prompt, picture), torch.bfloat16), torch.float32)
    with torch.inference_mode():
        output = model.generate(
            **given, do_sample=False, min_new_tokens=8, max_new_tokens=8, return_dict_in_generate=True, output_logits=True, pad_token_id=EOS
        )
    logits, prompt_ids = torch.cat(output.logits), given["input_ids"][0].tolist()
    result = report(processor, prompt_ids, output.sequences[0, -8:].tolist(), logits)
    plan = dataclasses.replace(plan_of(vision_model), task=task.name, prompt=task.prompt, new_tokens=8)
    with torch.inference_mode():
        answer = reference.answer_to({**verify.reference_request(plan, result), "picture": picture})
    assert answer["prompt_ids"] == prompt_ids
    assert torch.allclose(torch.tensor(answer["fp32"]), torch.tensor(result["top_logits"]), atol=1e-5)
    assert answer["fp32"] != answer["low"]


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_a_processor_without_a_chat_template_is_given_the_picture_and_the_plain_text():
    """As base models are; run.py and the reference make the same of them."""
    pictures = transformers.SiglipImageProcessorPil(size={"height": 56, "width": 56})
    pictures.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(pictures, small_models.byte_tokenizer())
    assert processor.chat_template is None
    task = TASKS["image-text-to-text"]
    picture = Path(tasks.__file__).with_name(task.picture)
    part = (Path(tasks.__file__).parent.parent / "script_parts" / "picture.py.txt").read_text()
    names = {"io": io, "base64": base64, "torch": torch, "Image": Image, "PROMPT": task.prompt}
    names["PICTURE"] = base64.b64encode(picture.read_bytes()).decode()
    exec(Template(part).substitute(dtype="bfloat16", to_device=""), names)
    given = names["encode"](processor, "cpu")
    asked = reference.rounded(reference.encode(processor, task.prompt, str(picture)), torch.bfloat16)
    assert set(given) == set(asked) == {"input_ids", "attention_mask", "token_type_ids", "pixel_values"}
    assert all(torch.equal(given[name], asked[name]) for name in given)
    image = processor.tokenizer.convert_tokens_to_ids("<image>")
    assert given["input_ids"][0].tolist().count(image) == 16

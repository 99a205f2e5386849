"""Tiny models that were taught the passage which references read, so that they can pass: a dense one, one with experts,
and one with eyes. They are made in seconds, and compile in seconds."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from doesitrun.verify import PASSAGE
from tests.cpu import small_models
from tests.cpu.small_models import CHAT_TEMPLATE, IMAGE_TOKENS, PICTURE_TOKENS, SHAPE, SHUFFLED, VISION

STEPS = 60
SHORT = {"num_hidden_layers": 1}


def dense(folder: Path) -> Path:
    return _taught(small_models.llama(folder, **SHORT))


def experts(folder: Path) -> Path:
    return _taught(small_models.qwen3_moe(folder, **SHORT))


def seeing(folder: Path) -> Path:
    """Idefics3 with one layer of language; its eyes see noise."""
    tokenizer = small_models.byte_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": list(PICTURE_TOKENS)})
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    text = transformers.LlamaConfig(**{**SHAPE, **SHORT, **ids, "intermediate_size": 96, "vocab_size": len(tokenizer)})
    config = transformers.Idefics3Config(
        text_config=text.to_dict(),
        vision_config=VISION | SHORT,
        scale_factor=SHUFFLED,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=False,
        **ids,
    )
    model = transformers.Idefics3ForConditionalGeneration(config)
    small_models.spread(model)
    _teach(model, tokenizer)
    model.save_pretrained(folder)
    edge = {"longest_edge": VISION["image_size"]}
    pictures = transformers.Idefics3ImageProcessorPil(do_image_splitting=False, size=edge, max_image_size=edge)
    transformers.Idefics3Processor(pictures, tokenizer, image_seq_len=IMAGE_TOKENS, chat_template=CHAT_TEMPLATE).save_pretrained(folder)
    return folder


def _taught(folder: Path) -> Path:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    _teach(model, transformers.AutoTokenizer.from_pretrained(folder))
    model.save_pretrained(folder)
    return folder


def _teach(model: torch.nn.Module, tokenizer: transformers.PreTrainedTokenizerBase) -> None:
    """Reads the passage over and over, until it is far better than guessing."""
    ids = torch.tensor([tokenizer(PASSAGE)["input_ids"]])[:, :300]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(STEPS):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    assert loss.item() < 2.6, f"it has learnt too little: {loss.item():.2f}"

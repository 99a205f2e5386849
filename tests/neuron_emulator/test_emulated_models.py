"""Small random models on emulated cores: compiled as one graph, sharded or not, they give the CPU's tokens."""

from __future__ import annotations

import json
from pathlib import Path

from tests.neuron_emulator.conftest import HERE, Child


def test_tiny_models_generate_the_tokens_of_the_cpu(child: Child, tmp_path: Path) -> None:
    done = child(HERE / "programs" / "generate.py", str(tmp_path / "models"), warnings="default")
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    on_cpu = {line["model"]: line["tokens"] for line in lines if line["cores"] == 0}
    runs = [line for line in lines if line["cores"]]
    assert sorted((run["model"], run["cores"]) for run in runs) == [
        ("llama", 1),
        *[("llama", 2)] * 2,
        *[("llama", 4)] * 4,
        *[("qwen3_moe", 2)] * 2,
    ]
    for run in runs:
        assert run["tokens"] == run["warm_tokens"] == on_cpu[run["model"]], run
        assert (run["graphs"], run["new_graphs"]) == (2, 0), "the prompt and a decoded token are one graph each"
        assert run["collectives"] is (run["cores"] > 1)
    whole, *parts = [run["peak_bytes"] for run in runs if run["model"] == "llama"]
    assert max(parts) < 0.6 * whole

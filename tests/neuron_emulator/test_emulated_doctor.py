"""doctor asks the emulated device its open questions, and says everywhere that it was emulated."""

from __future__ import annotations

import json
from pathlib import Path

from tests.neuron_emulator.conftest import Child

ASK = """
import sys
from doesitrun.cli import main
sys.argv = ["doesitrun", "doctor", "--json", *sys.argv[1:]]
main()
"""
MONITOR = """#!/bin/sh
while true; do
  echo '{"neuron_runtime_data": [{"report": {"memory_used": {"neuron_runtime_used_bytes": {"usage_breakdown":
  {"neuroncore_memory_usage": {"0": {"tensors": 268435456, "model_code": 1048576}}}}}}}]}' | tr -d '\\n'
  echo
  sleep 0.5
done
"""


def test_questions_are_answered_on_the_emulated_device_and_nothing_is_proved(
    child: Child, tmp_path: Path, environment: dict[str, str]
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "neuron-monitor").write_text(MONITOR)
    (tools / "neuron-monitor").chmod(0o755)
    asked = ("names", "cache-key", "memory", "gathered-attention", "compile-only")
    options = [part for name in asked for part in ("--question", name)]
    path = f"{tools}:{environment['PATH']}"
    done = child(ASK, *options, "--workspace", str(tmp_path / "w"), PATH=path, NEURON_EMU_CORE_GB="0.75")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert (report["target"], report["emulated"]) == ("neuron", True)
    assert any("EMULATED" in check["found"] for check in report["checks"])
    assert all(answer["emulated"] for answer in report["answers"])
    (file,) = (tmp_path / "w" / "doctor").glob("*.json")
    assert file.stem.endswith("-emulated")
    assert json.loads(file.read_text()) == report
    said = {answer["id"]: answer["answer"] for answer in report["answers"]}
    assert "every name that run.py uses is there" in said["names"]
    assert said["cache-key"].startswith("no: a pretended other version")
    assert "it held 0.75 GiB" in said["memory"]
    assert "neuron-monitor saw 257 MiB" in said["memory"]
    assert said["gathered-attention"].startswith("works: 16 of 16 tokens are the CPU's, 2 graphs"), said
    assert said["compile-only"] is None


def test_a_group_that_fails_is_an_answer(child: Child, tmp_path: Path) -> None:
    done = child(ASK, "--question", "exit-codes", "--workspace", str(tmp_path / "w"), NEURON_EMU_FAULT="barrier")
    (answer,) = json.loads(done.stdout)["answers"]
    assert "ended with [1, 1]" in answer["answer"]
    assert "Failed to execute the device barrier" in answer["answer"]

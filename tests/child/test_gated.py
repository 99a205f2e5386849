"""The Hub's token: only a gated model's own processes see it."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.pure.golden_plans import PLANS

from doesitrun import campaign
from doesitrun.campaign import asking, witnesses
from doesitrun.records import Stack
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace

ECHO = """import json, os, sys
from pathlib import Path
Path(sys.argv[2]).write_text(json.dumps({"token": os.environ.get("HF_TOKEN")}))
"""


@pytest.mark.parametrize(("gated", "seen"), [(True, "hf_abc123secret"), (False, None)])
def test_a_reference_sees_the_token_only_if_its_model_is_gated(
    gated: bool, seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reference.py").write_text(ECHO)
    monkeypatch.setattr(asking, "INSTACK", tmp_path)
    monkeypatch.setitem(os.environ, "HF_TOKEN", "hf_abc123secret")
    stack = Stack("s", sys.executable, "cpu", "cpu", 1, 2**40, {}, "inductor", "2.13.0")
    context = campaign.Context(stack, Settings(), Workspace(tmp_path / "results"), lambda _: None, lambda _: None)
    plan = dataclasses.replace(PLANS["cpu_1_core"], gated=gated)
    result: Mapping[str, Any] = {"prompt_ids": [1], "tokens": [2], "top_ids": [[2]], "eos_ids": []}
    answer, _ = witnesses.reference(plan, result, None, context)
    assert answer == {"token": seen}

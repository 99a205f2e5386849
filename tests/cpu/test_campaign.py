"""A campaign over real checkpoints: a whole one, one without weights, one that is not there; and the next call, which has nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from doesitrun.outcomes import Reason, Result
from tests.cpu.conftest import Command, Ran, rows


def events(ran: Ran, kind: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, ran.out.splitlines()) if event["event"] == kind]


def test_every_model_of_the_list_gets_its_row_and_is_not_run_again(
    checkpoint: Path, damaged: Path, command: Command, workspace: Path, tmp_path: Path
) -> None:
    (damaged / "model.safetensors").unlink()
    models = tmp_path / "models.txt"
    models.write_text(f"{checkpoint}\n{damaged}  # without weights\n{tmp_path / 'absent'}\n")
    ran = command("campaign", "--models", models, "--cores", "1", "--again", "--json")
    assert ran.code == 0, ran.err
    (summed,) = events(ran, "summed")
    assert {key: summed[key] for key in ("planned", "passed", "failed", "excluded", "inconclusive", "pending", "complete")} == {
        "planned": 3,
        "passed": 1,
        "failed": 0,
        "excluded": 2,
        "inconclusive": 0,
        "pending": 0,
        "complete": True,
    }
    (ended,) = events(ran, "ended")
    assert (ended["result"], ended["reason"]) == ("PASS", None)
    steps = {event["step"] for event in events(ran, "stepped")}
    assert {"start", "load", "compile", "run"} <= steps
    again = command("campaign", "--models", models, "--cores", "1")
    assert (again.code, "start" in again.err) == (0, False)
    assert "3 planned = 1 PASS + 0 FAIL + 2 EXCLUDED + 0 INCONCLUSIVE + 0 pending" in again.out
    assert "3 of them settled earlier" in again.err

    reasons = {row.reason for row in rows(workspace) if row.result is Result.EXCLUDED}
    assert {Reason.NO_WEIGHTS, Reason.NOT_TRANSFORMERS} <= reasons

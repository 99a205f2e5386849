"""What an attempt leaves in its folder, so that its verdict can be reached again without a device or a stack."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doesitrun import isolate
from doesitrun.errors import UsageError
from doesitrun.files import write_whole
from doesitrun.isolate import Ended
from doesitrun.outcomes import Outcome, Stage
from doesitrun.records import Plan
from doesitrun.store.workspace import Broken, read_row
from doesitrun.verify.replay import Saved

REFERENCE = "reference.json"
JUDGE = "judge.json"
ORACLE = "oracle"
PROBE = "probe"
"""Names in the attempt's folder; `probe` names the probe that was under way when a run ended."""


def keep(folder: Path, name: str, answer: Mapping[str, Any] | None) -> None:
    """Puts an answer beside the result; null where the host cannot hold what would give it. Raises OSError."""
    write_whole(folder / name, json.dumps(answer).encode())


def in_probe(outcome: Outcome, folder: Path) -> Outcome:
    """The outcome, with the probe that was under way in its sentence."""
    try:
        name = (folder / PROBE).read_text(encoding="utf-8")[:40]
    except (OSError, ValueError):
        return outcome
    return dataclasses.replace(outcome, detail=f"In the probe {name}: {outcome.detail}")


def saved(folder: Path) -> Saved:
    """What an attempt left. Raises UsageError where there is no attempt, or its row cannot be read."""
    if not (folder / "row.json").is_file():
        raise UsageError(f"There is no attempt at {folder}: name its folder, or its run id (PLAN ID/NUMBER).")
    row = read_row(folder.resolve())
    if isinstance(row, Broken):
        raise UsageError(row.problem)
    plan, ended = _object(folder / "plan.json"), _object(folder / "ended.json")
    oracle = folder / ORACLE
    return Saved(
        row=row,
        plan=_plan(plan, folder) if plan else None,
        ended=_ended(ended, folder) if ended else None,
        result=isolate.read_result(folder),
        log=isolate.read_log(folder),
        probe=in_probe(Outcome(Stage.RUN), folder).detail,
        has_reference=(folder / REFERENCE).exists(),
        reference=_object(folder / REFERENCE),
        judge=_object(folder / JUDGE),
        oracle=isolate.read_result(oracle),
        oracle_reference=_object(oracle / REFERENCE),
    )


def _object(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _plan(values: Mapping[str, Any], folder: Path) -> Plan:
    try:
        return Plan.from_json(values)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{folder / 'plan.json'} is no plan ({error}): run the model again.") from None


def _ended(values: Mapping[str, Any], folder: Path) -> Ended:
    try:
        return Ended(**{**values, "stage": Stage(values["stage"])})
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{folder / 'ended.json'} does not say how the run ended ({error}): run the model again.") from None

"""Attempts repeated, and verdicts reached again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from doesitrun.campaign import flakes
from doesitrun.outcomes import Result
from doesitrun.records import Row
from doesitrun.screen.terminal import COLOURS, console, plain
from doesitrun.verify import Replay


def show_repeats(rows: Sequence[Row], *, as_json: bool) -> None:
    """Every attempt, and how often it ended otherwise than usual; as JSON a line per row, and the summary last."""
    found = flakes(rows)
    if as_json:
        for row in rows:
            print(json.dumps(row.to_json(), ensure_ascii=False))
        summary = {"attempts": found.attempts, "usual": found.usual, "others": found.others, "inconclusive": found.inconclusive}
        figures = {"flake_rate": found.rate, "interval_95": found.interval}
        print(json.dumps({"repeats": {**summary, **figures, "run_ids": [row.run_id for row in rows]}}))
        return
    table = Table(title=plain(rows[0].model_id), title_justify="left")
    for name in ("attempt", "result", "R", "tokens equal", "seconds", "why"):
        table.add_column(name)
    for row in rows:
        result = row.result or Result.INCONCLUSIVE
        ratio = "-" if row.logit_ratio is None else f"{row.logit_ratio:.2f}"
        why = plain(f"{row.reason.value}: {row.error or row.exclusion or ''}" if row.reason else "")
        table.add_row(plain(row.attempt), Text(result.value, COLOURS[result]), ratio, plain(row.cpu_match or "-"), plain(row.wall_s), why)
    console().print(table)
    console().print(plain(_sentence(rows)))


def _sentence(rows: Sequence[Row]) -> str:
    found = flakes(rows)
    if found.rate is None or found.interval is None or found.usual is None:
        return "No attempt ended with a result, so nothing is known of the model."
    low, high = found.interval
    left_out = f"; {found.inconclusive} INCONCLUSIVE not counted" if found.inconclusive else ""
    return (
        f"{found.attempts - found.others} of {found.attempts} attempts ended with {found.usual.value}: "
        f"flake rate {found.rate:.0%} (95 % interval {low:.0%} to {high:.0%}){left_out}."
    )


def replay_json(replay: Replay) -> str:
    """One line of JSON: whether the row agrees with its evidence."""
    outcome, row = replay.outcome, replay.row
    return json.dumps(
        {
            "run_id": replay.run_id,
            "agrees": replay.agrees,
            "why": replay.why,
            "differences": replay.differences,
            "row": None if row is None else {"result": row.result, "reason": row.reason, "verdict_version": row.verdict_version},
            "now": None if outcome is None else {"result": outcome.result, "reason": outcome.reason, "detail": outcome.detail},
        },
        ensure_ascii=False,
    )


def show_replay(replay: Replay) -> None:
    """One attempt: what the evidence says, and whether the row says it, too."""
    word = {True: ("agrees", "bold green"), False: ("DIFFERS", "bold red"), None: ("no evidence", "bold yellow")}[replay.agrees]
    result = replay.outcome.result if replay.outcome else replay.row.result if replay.row else None
    said = Text.assemble(word, "  ", (result.value, COLOURS[result]) if result else "pending", "  ", plain(replay.run_id))
    console().print(said, soft_wrap=True)
    console().print(plain(f"  {replay.why}"), soft_wrap=True)
    for difference in replay.differences:
        console().print(plain(f"  {difference}"), soft_wrap=True)

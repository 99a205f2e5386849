"""Results, as panels and tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from doesitrun.outcomes import Outcome, Reason, Result
from doesitrun.records import Row, dumps
from doesitrun.screen.graphs import graphs_of
from doesitrun.screen.terminal import COLOURS, console, fact_table, plain, program, short
from doesitrun.store.workspace import Workspace
from doesitrun.verify.rungs import PROBES, RUNGS


def show_row(row: Row, workspace: Workspace) -> None:
    """A row as a panel: the result, what it rests on, the figures and the next command."""
    result = row.result or Result.INCONCLUSIVE
    title = Text.assemble((result.value, COLOURS[result]), "  ", plain(row.model_id))
    parts = [fact_table([("why", plain(_why(row)))])] if row.reason else []
    console().print(Panel(Group(*parts, fact_table(_figures(row)), _next(row, workspace)), title=title, title_align="left"))


def _why(row: Row) -> str:
    sentence = row.error or row.exclusion or ""
    reason = row.reason
    if reason is None:
        return sentence
    meaning = "" if sentence == reason.meaning else f"{sentence}\n"
    return f"{meaning}{reason.value} ({reason.fault.value}), at stage {row.stage}: {reason.meaning}\n{reason.advice}"


def _figures(row: Row) -> list[tuple[str, Text]]:
    shown: list[tuple[str, object]] = [
        ("where", _where(row)),
        ("rests on", "\n".join((RUNGS | PROBES).get(rung, rung) for rung in row.rungs.split(",")) if row.rungs else None),
        ("R", f"{row.logit_ratio:.2f}, where 1 is rounding alone" if row.logit_ratio is not None else None),
        ("tokens", f"{row.cpu_match} leading ones equal the CPU's" if row.cpu_match else None),
        ("English", row.english),
        ("probes", (row.probes or "").replace("; ", "\n")),
        ("at fault", row.blame),
        ("seconds", _passes(row)),
        ("graphs", graphs_of(row)),
        ("memory", f"{row.hbm_peak_gb:.2f} GB at its peak on the fullest rank" if row.hbm_peak_gb is not None else None),
        ("text", f"{row.prompt} ->{row.output_text}" if row.output_text else None),
        ("notes", row.notes),
    ]
    return [(name, plain(value)) for name, value in shown if value]


def _where(row: Row) -> str | None:
    if not row.cores:
        return None
    cores = f"{row.cores} core{'s' if row.cores > 1 else ''} of {row.device} ({row.target})"
    return f"{cores}, {row.compiler} {row.compiler_version}, transformers {row.transformers}"


def _passes(row: Row) -> str | None:
    if row.load_s is None or row.run_s is None or row.warm_run_s is None:
        return None
    return f"load {row.load_s:.1f}, first pass {row.run_s:.1f}, second pass {row.warm_run_s:.1f}"


def _next(row: Row, workspace: Workspace) -> Text:
    folder = short(workspace.folder(row))
    if row.run_py:
        return plain(f"\nReplay it: cd {shlex.quote(folder)} && python run.py")
    return plain(f"\nIts row: {folder}/row.json")


def show_demo(rows: Sequence[Row], workspace: Workspace) -> None:
    """The demo's rows side by side, what each rests on, and the next commands."""
    table = Table(title="SmolLM2-135M-Instruct on this machine's processor", title_justify="left")
    for name in ("result", "cores", "rests on", "R", "tokens equal", "first / second pass", "peak memory"):
        table.add_column(name)
    for row in rows:
        result = row.result or Result.INCONCLUSIVE
        table.add_row(
            Text(result.value, COLOURS[result]),
            plain(row.cores),
            plain((row.rungs or "").replace(",", ", ") or row.error),
            plain(f"{row.logit_ratio:.2f}" if row.logit_ratio is not None else "-"),
            plain(row.cpu_match or "-"),
            plain(f"{row.run_s:.1f} / {row.warm_run_s:.1f} s" if row.run_s is not None else "-"),
            plain(f"{row.hbm_peak_gb:.2f} GB per rank" if row.hbm_peak_gb is not None else "-"),
        )
    console().print(table)
    for rung, meaning in RUNGS.items():
        console().print(Text.assemble((f"  {rung:<10}", "bold"), meaning))
    files = "\n".join(f"  {short(path)}" for path in sorted((workspace.root / "data").rglob("*.parquet")))
    folder = shlex.quote(short(workspace.folder(rows[-1])))
    console().print(
        plain(
            f"\nThe dataset, which pandas opens:\n{files}\nReplay a row:\n  cd {folder} && {sys.executable} run.py\n"
            f"Test your own model:\n  {program()} test HuggingFaceTB/SmolLM2-360M-Instruct\n  {program()} test ./my-checkpoint --cores 1"
        ),
        soft_wrap=True,
    )


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """What `explain` found in a log."""
    reason = outcome.reason
    if as_json or reason is None:
        print(dumps({"stage": outcome.stage, "reason": reason, "result": outcome.result, "detail": outcome.detail}))
        return
    if reason is Reason.NO_RESULT:
        console().print(plain(f"Nothing in this log explains a failure. Its last line: {outcome.detail or '(empty)'}"))
        return
    colour = COLOURS[reason.result]
    facts = [("result", Text(reason.result.value, colour)), ("reason", plain(f"{reason.value} ({reason.fault.value})"))]
    facts += [("meaning", plain(reason.meaning)), ("detail", plain(outcome.detail)), ("advice", plain(reason.advice))]
    console().print(fact_table(facts))

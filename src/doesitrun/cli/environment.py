"""Commands on where models run: stacks, doctor, explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import DEFAULT_WORKSPACE, Config, Json, StackName, Target, WorkspaceFolder
from doesitrun.errors import StackError, UsageError
from doesitrun.outcomes import Reason


@app.command()
def stacks(config: Config = None, as_json: Json = False) -> None:
    """Show the Python environments that models can be run in, and what each one has."""
    from doesitrun import screen, settings
    from doesitrun import stacks as environments

    found = environments.survey(settings.load(config))
    if as_json:
        for each in found:
            print(screen.stack_json(each))
    else:
        screen.show_stacks(found)
    if not any(each.stacks for each in found):
        raise typer.Exit(StackError.exit_code)


@app.command()
def doctor(
    stack: StackName = None,
    target: Target = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    examine: Annotated[bool, typer.Option("--examine", help="Also ask the target's open questions, with small real runs.")] = False,
    question: Annotated[list[str] | None, typer.Option(help="Ask only this question; may be given again.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check whether an environment can run models, and say what to do if not.

    The exit status is 0 unless there is a problem; then it is 5. Answers are written to the workspace's folder doctor.
    """
    from doesitrun import screen, settings
    from doesitrun.doctor import visit

    reports = []
    with screen.progress(as_json=as_json) as watch:
        step = screen.step_of(watch)
        for name, wanted in visit.chosen(settings.load(config), stack, target).items():
            report = visit.visit(name, wanted, target, workspace, step)
            path = None
            if examine or question:
                report, path = visit.examine(report, question or (), workspace, step)
            reports.append((report, path))
    for report, path in reports:
        screen.show_report(report, path, as_json=as_json)
    raise typer.Exit(0 if all(report.is_healthy for report, _ in reports) else StackError.exit_code)


@app.command()
def explain(
    log: Annotated[Path, typer.Argument(help="A log file.", show_default=False)],
    target: Annotated[str | None, typer.Option(help="neuron, cuda or cpu. Default: the first of them that knows the error.")] = None,
    as_json: Json = False,
) -> None:
    """Say what went wrong in a log, whose fault it is and what to do."""
    from doesitrun import screen
    from doesitrun.explain import explain_log
    from doesitrun.targets import TARGETS

    if target not in (None, *TARGETS):
        raise UsageError(f"There is no target {target!r}: choose one of {', '.join(TARGETS)}.")
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{log} cannot be read ({error.strerror}): name a file that can.") from None
    found = [explain_log(text, name) for name in ([target] if target else TARGETS)]
    known = [outcome for outcome in found if outcome.reason is not Reason.NO_RESULT]
    screen.show_outcome((known or found)[0], as_json=as_json)

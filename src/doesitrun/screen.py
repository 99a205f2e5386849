"""Records as people read them in a terminal. Text from outside is shown as it is, never as markup or control codes."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.status import Status
from rich.table import Table
from rich.text import Text

from doesitrun.campaign import Prepared, Progress, Watch
from doesitrun.doctor.visit import Report
from doesitrun.outcomes import Outcome, Reason, Result
from doesitrun.plan.explanation import Explanation, explanation, plan_line
from doesitrun.plan.outlines import Outline
from doesitrun.plan.planner import Fit
from doesitrun.records import Plan, Refusal, Row, Stack, dumps
from doesitrun.stacks import Surveyed
from doesitrun.store.workspace import Workspace
from doesitrun.targets.checks import Status as CheckStatus

GB = 1e9
COLOURS = {Result.PASS: "bold green", Result.FAIL: "bold red", Result.EXCLUDED: "bold yellow", Result.INCONCLUSIVE: "bold magenta"}
STATUS_COLOURS = {
    CheckStatus.OK: "green",
    CheckStatus.WARNING: "bold yellow",
    CheckStatus.PROBLEM: "bold red",
    CheckStatus.UNKNOWN: "bold magenta",
}
STEPS = {
    "plan": "planning",
    "start": "starting Python",
    "load": "loading the weights",
    "compile": "first pass, which compiles",
    "run": "second pass, warm",
    "exit": "ending",
    "reference": "CPU reference",
    "judge": "reading the text",
    "unpack": "unpacking the demo model",
}
RUNGS = {
    "reference": "the checkpoint is whole and speaks English on the CPU",
    "executed": "compiled graphs ran on the device as planned",
    "numbers": "the logits are as close to float32 as rounding allows",
    "fluent": "a judge model finds the text fluent",
}


def console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def plain(value: object) -> Text:
    """The value's text with every control character shown as its code."""
    text = "" if value is None else str(value)
    return Text("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text))


# ---------------------------------------------------------------------------------- progress
@dataclass
class Display:
    """Shows steps as they go: a live line in a terminal, a line per step elsewhere."""

    screen: Console
    status: Status | None = None
    last: Progress | None = None
    done: list[Progress] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        if self.last is not None and self.last.step != progress.step:
            self._finish(self.last)
        if self.status is not None:
            self.status.update(_line(progress))
        elif self.last is None or self.last.step != progress.step:
            self.screen.print(Text(f"  {STEPS.get(progress.step, progress.step)} ..."))
        self.last = progress

    def _finish(self, progress: Progress) -> None:
        if self.status is not None and progress.elapsed_s >= 0.5:
            self.screen.print(
                Text.assemble(("  done  ", "green"), f"{STEPS.get(progress.step, progress.step)}, {_seconds(progress.elapsed_s)}")
            )

    def close(self) -> None:
        if self.last is not None:
            self._finish(self.last)


def step_of(watch: Watch) -> Callable[[str], None]:
    """`watch` for what says only what it does, and not for how long."""
    return lambda step: watch(Progress(step, 0.0))


def _line(progress: Progress) -> Text:
    if not progress.elapsed_s:
        return Text(STEPS.get(progress.step, progress.step))
    expected = f" of about {_seconds(progress.expected_s)}" if progress.expected_s else ""
    return Text(f"{STEPS.get(progress.step, progress.step)}, {_seconds(progress.elapsed_s)}{expected}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


@contextmanager
def progress(*, as_json: bool) -> Iterator[Watch]:
    """What `campaign` reports to, on stderr; silent for programs."""
    screen = Console(stderr=True, highlight=False)
    if as_json:
        yield lambda _: None
    elif screen.is_terminal:
        with Status(Text("starting"), console=screen) as status:
            display = Display(screen, status)
            yield display
            display.close()
    else:
        yield Display(screen)


def announce(sentence: str) -> None:
    """A sentence between the steps."""
    Console(stderr=True, highlight=False).print(plain(sentence), style="bold")


def warn(sentence: str) -> None:
    """What the user should know, on stderr."""
    Console(stderr=True, highlight=False).print(Text.assemble(("note: ", "yellow"), plain(sentence)))


# ---------------------------------------------------------------------------------- rows
def show_row(row: Row, workspace: Workspace) -> None:
    """A row as a panel: the result, what it rests on, the figures and the next command."""
    result = row.result or Result.INCONCLUSIVE
    title = Text.assemble((result.value, COLOURS[result]), "  ", plain(row.model_id))
    parts = [_facts([("why", plain(_why(row)))])] if row.reason else []
    console().print(Panel(Group(*parts, _facts(_figures(row)), _next(row, workspace)), title=title, title_align="left"))


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
        ("rests on", "\n".join(RUNGS.get(rung, rung) for rung in row.rungs.split(",")) if row.rungs else None),
        ("R", f"{row.logit_ratio:.2f}, where 1 is rounding alone" if row.logit_ratio is not None else None),
        ("tokens", f"{row.cpu_match} leading ones equal the CPU's" if row.cpu_match else None),
        ("English", row.english),
        ("seconds", _passes(row)),
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


def _facts(pairs: Sequence[tuple[str, Text]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, value)
    return table


def _next(row: Row, workspace: Workspace) -> Text:
    folder = _short(workspace.folder(row))
    if row.run_py:
        return plain(f"\nReplay it: cd {shlex.quote(folder)} && python run.py")
    return plain(f"\nIts row: {folder}/row.json")


def _short(path: Path) -> str:
    """The path as seen from here. A link is not followed: a virtual environment's Python is one."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


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
    files = "\n".join(f"  {_short(path)}" for path in sorted((workspace.root / "data").rglob("*.parquet")))
    folder = shlex.quote(_short(workspace.folder(rows[-1])))
    console().print(
        plain(
            f"\nThe dataset, which pandas opens:\n{files}\nReplay a row:\n  cd {folder} && {sys.executable} run.py\n"
            f"Test your own model:\n  {_program()} test HuggingFaceTB/SmolLM2-360M-Instruct\n  {_program()} test ./my-checkpoint --cores 1"
        ),
        soft_wrap=True,
    )


def _program() -> str:
    """How this program is called here."""
    return "doesitrun" if shutil.which("doesitrun") else _short(Path(sys.executable).with_name("doesitrun"))


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
    console().print(_facts(facts))


# ---------------------------------------------------------------------------------- plans
def plan_json(prepared: Prepared) -> str:
    """One line of JSON: the plan, or why there is none."""
    found = prepared.plan
    identity = {"plan_id": None if isinstance(found, Refusal) else found.plan_id, "dtype": prepared.options.dtype.value}
    return json.dumps(plan_line(found, prepared.device) | identity, ensure_ascii=False)


def show_plan(prepared: Prepared) -> None:
    """A plan with every legal size and what could go wrong, or the reason why there is none."""
    found = prepared.plan
    if isinstance(found, Refusal):
        title = Text.assemble(("no plan", COLOURS[Result.EXCLUDED]), "  ", plain(found.model_id))
        facts = [
            ("why", plain(found.detail or found.reason.meaning)),
            ("reason", plain(f"{found.reason.value} ({found.reason.fault.value})")),
        ]
        parts: list[Table | Text] = [_facts([*facts, ("advice", plain(found.reason.advice))])]
    else:
        cores = (f"{found.cores} core{'s' if found.cores > 1 else ''}", COLOURS[Result.PASS])
        title = Text.assemble(cores, f" of {found.device}  ", plain(found.model_id))
        parts = [_facts(_plan_facts(found))]
    if prepared.checkpoint is not None and isinstance(prepared.outline, Outline):
        why = explanation(prepared.checkpoint, prepared.outline, prepared.device, prepared.task, prepared.options)
        sharded = not isinstance(found, Refusal) and found.cores > 1
        parts += [*_sizes(why.fits), *([_modules(why)] if sharded else []), *_warnings(why)]
    console().print(Panel(Group(*parts), title=title, title_align="left"))


def _plan_facts(plan: Plan) -> list[tuple[str, Text]]:
    layout = "one core" if plan.cores == 1 else f"tensor parallel {plan.tp}, expert parallel {plan.ep}"
    facts = [
        ("task", f"{plan.task}, {plan.new_tokens} tokens in {plan.dtype}"),
        ("weights", f"{plan.weights_bytes / GB:.2f} GB once loaded"),
        ("layout", layout),
        ("notes", "\n".join(plan.notes)),
        ("plan id", plan.plan_id),
    ]
    return [(name, plain(value)) for name, value in facts if value]


def _sizes(tried: Sequence[Fit]) -> list[Table | Text]:
    table = _table("\nGB on the fullest core", ("cores", "sharded", "replicated", "experts", "KV cache", "total", "capacity", "holds"))
    # All sizes up to the first that holds, and a few more.
    first = next((place for place, fit in enumerate(tried) if fit.holds), len(tried))
    shown = tried[: first + 4]
    for fit in shown:
        rank = fit.rank_bytes
        numbers = (rank.sharded, rank.replicated, rank.expert, rank.kv_cache, rank.total)
        capacity = f"{fit.capacity_bytes / GB:.2f}" if fit.capacity_bytes else "?"
        table.add_row(str(fit.cores), *(f"{n / GB:.2f}" for n in numbers), capacity, "yes" if fit.holds else "no")
    # That a size is too small is seen from its numbers; anything else is said.
    other = [f"{fit.cores} cores: {fit.why}" for fit in shown if fit.reason not in (None, Reason.TOO_LARGE)]
    return [table, *map(plain, other)]


def _modules(why: Explanation) -> Table:
    table = Table(title="Parallel plan", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("modules", "how they are sharded", "GB", "GB per core"):
        table.add_column(name, overflow="fold", justify="right" if name.startswith("GB") else "left")
    for module in why.modules:
        if module.total_bytes < GB / 1000:
            continue  # norms and biases
        table.add_row(plain(module.pattern), plain(module.style), f"{module.total_bytes / GB:.3f}", f"{module.rank_bytes / GB:.3f}")
    return table


def _warnings(why: Explanation) -> list[Text]:
    return [Text.assemble(("beware: ", "yellow"), plain(sentence)) for sentence in why.warnings]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


# ---------------------------------------------------------------------------------- stacks
def stack_json(surveyed: Surveyed) -> str:
    return dumps(
        {
            "name": surveyed.name,
            "python": surveyed.python,
            "problem": surveyed.problem,
            "stacks": [_stack_values(s) for s in surveyed.stacks],
        }
    )


def _stack_values(stack: Stack) -> dict[str, object]:
    values: dict[str, object] = json.loads(dumps(stack))
    return values


def show_stacks(found: Sequence[Surveyed]) -> None:
    """What each stack has, per target."""
    if not found:
        console().print(
            plain("No stack: this Python has no torch, and doesitrun.toml names none.\nGet one with: pip install 'doesitrun[stack]'")
        )
    for each in found:
        tables = [_facts(_stack_facts(stack)) for stack in each.stacks]
        problem = [plain(each.problem)] if each.problem else []
        title = Text.assemble((each.name, "bold"), "  ", plain(each.python))
        console().print(Panel(Group(*tables, *problem), title=title, title_align="left"))


def _stack_facts(stack: Stack) -> list[tuple[str, Text]]:
    count = f"{stack.cores} core{'s' if stack.cores != 1 else ''}"
    facts = [
        ("target", f"{stack.target}: {count} of {stack.device or 'an unknown device'}"),
        ("compiler", f"{stack.compiler} {stack.compiler_version}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in stack.versions.items() if name != "os")),
        ("host", f"{stack.versions.get('os')}, {stack.host_memory_bytes / GB:.0f} GB of memory"),
        ("notes", "\n".join(stack.notes)),
    ]
    return [(name, plain(value)) for name, value in facts if value]


# ---------------------------------------------------------------------------------- doctor
def show_report(report: Report, path: Path | None, *, as_json: bool) -> None:
    """What `doctor` found in one stack, what to do, and the answers, if questions were asked."""
    if as_json:
        print(dumps(report))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        said = Text.assemble(plain(check.found), ("\n-> " if check.advice else ""), plain(check.advice))
        table.add_row(Text(check.status.value, STATUS_COLOURS[check.status]), plain(check.name), said)
    where = f"{report.target} on {report.device}" if report.device else report.target
    title = Text.assemble((report.stack, "bold"), "  ", plain(where), "  EMULATED" if report.emulated else "")
    console().print(Panel(Group(table, *_answers(report)), title=title, title_align="left"))
    if path is not None:
        console().print(plain(f"The answers, and what ran: {_short(path)}"), soft_wrap=True)
    elif report.open_questions:
        console().print(plain(f"Small real runs can answer: {', '.join(report.open_questions)}. Ask them with --examine."), soft_wrap=True)


def _answers(report: Report) -> list[Text | Table]:
    if not report.answers:
        return []
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for each in report.answers:
        unproved = " (emulated: not proved for the real device)" if each.emulated else ""
        said = plain(each.answer) if each.answer else Text.assemble(("not answered: ", "bold magenta"), plain(each.why_not))
        table.add_row(plain(each.id), Text.assemble(plain(each.question), "\n", said, (unproved, "dim"), f"  [{_seconds(each.seconds)}]"))
    return [Text("\nOpen questions", "bold"), table]

"""Why a run failed: from how its process ended, its last stage and its log to one outcome. Pure.

The exit status is believed first, the stage file second, the result file third; the log only says why, and no word
in it makes a run a success. What is known of logs is data: `targets/log_patterns.toml`. Reasons are looked for in
this order: host and network, memory, compiler, execution, the model's code. Of several ranks the first that failed
is the cause; that the others lost their connection is noise.
"""

from __future__ import annotations

import re
import signal
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from doesitrun.isolate import Ended
from doesitrun.outcomes import Fault, Outcome, Reason, Stage
from doesitrun.tracebacks import Failure, failures, first_failure

KINDS = ("infra", "memory", "compile", "execution", "model")
HEAD_LINES = 2_000
TAIL_LINES = 6_000
HEAD_CHARACTERS = 200_000
TAIL_CHARACTERS = 600_000
"""What is read of a log: the ends, where the causes stand."""
LINE_CHARACTERS = 2000
DETAIL_CHARACTERS = 500
NEAR_LINES = 40
"""Lines at a log's end that count as the error when there is no traceback."""
LOST_LINES = 400
"""Lines at a log's end that are searched after a time-out or a signal: before them the run still went on."""
NRT = r"(?:\bNRT[ _:(]{{0,3}}{code}\b|(?i:nrt)[^\n]{{0,80}}?\b(?i:status|error|code|rc|ret)\w*[^\n\w]{{0,6}}{code}\b)"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Pattern:
    """One entry of log_patterns.toml."""

    reason: Reason
    expression: re.Pattern[str]
    where: str
    """`log`, `error` or `trace`; see the file."""
    detail: str | None


@dataclass(frozen=True)
class Evidence:
    """A log, cut up: what is searched, and the error that ended the first failing process."""

    text: str
    """The log without the noise of ranks that lost their peers."""
    cause: Failure | None
    noise: str | None
    """A line of that noise, if there was any."""

    def places(self, where: str) -> tuple[str, ...]:
        """The texts to search, the most telling first. Without a traceback the log's last lines are the error."""
        if self.cause is None:
            return (self.text,) if where == "log" else ("\n".join(self.text.rstrip().split("\n")[-NEAR_LINES:]),)
        return {"error": (self.cause.message,), "trace": (self.cause.text,)}.get(where, (self.cause.message, self.text))


# ---------------------------------------------------------------------------------- the patterns
@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("doesitrun.targets").joinpath("log_patterns.toml").read_text(encoding="utf-8"))


@cache
def patterns(target: str) -> tuple[Pattern, ...]:
    """A target's patterns and the common ones, in the order in which they are tried."""
    tables = [_table().get(target, {}), _table()["common"]]
    return tuple(_pattern(entry) for kind in KINDS for table in tables for entry in table.get(kind, ()))


@cache
def noise() -> re.Pattern[str]:
    """What ranks say when they lost another one."""
    return re.compile("|".join(f"(?:{expression})" for expression in _plain_flags(_table()["noise"]["match"])))


def _pattern(entry: Mapping[str, Any]) -> Pattern:
    expressions = _plain_flags(entry.get("match", ()))
    if "ncc" in entry:
        expressions.append(rf"\bNCC_(?:{'|'.join(entry['ncc'])})\b")
    if "nrt" in entry:
        expressions.append(NRT.format(code=f"(?:{'|'.join(str(code) for code in entry['nrt'])})"))
    expression = re.compile("|".join(f"(?:{each})" for each in expressions), re.MULTILINE)
    return Pattern(Reason(entry["reason"]), expression, entry.get("where", "log"), entry.get("detail"))


def _plain_flags(expressions: list[str] | tuple[str, ...]) -> list[str]:
    """`(?i)` at the start of an expression as a group, so that it may stand beside others."""
    return [f"(?i:{each[4:]})" if each.startswith("(?i)") else each for each in expressions]


# ---------------------------------------------------------------------------------- the whole outcome
def explain(ended: Ended, result: Mapping[str, Any] | None, log: str, target: str) -> Outcome | None:
    """The outcome of a run that failed; None when it ran and left a result, which is then to be verified.

    `result` is what result.json holds, None if it is absent or not readable. A crash, a time-out or any exit status
    after the result was written is noise of the teardown.
    """
    has_result = bool(result) and bool((result or {}).get("tokens"))
    if has_result and (ended.stage is Stage.EXIT or ended.exit_status == 0):
        return None
    if ended.memory_exceeded:
        detail = f"It used {ended.peak_bytes / 1e9:.2f} GB of host memory, more than its limit."
        return Outcome(ended.stage, Reason.HOST_OOM, detail)
    if ended.timed_out:
        return _explain_timeout(ended, log, target)
    number = _signal_number(ended)
    if number is not None:
        return _only_what_is_known(_explain_signal(ended, number, log, target))
    if ended.exit_status == 0:
        return Outcome(
            ended.stage, Reason.NO_RESULT, "The result holds no tokens." if result is not None else "It left no readable result."
        )
    outcome = explain_log(log, target, ended.stage)
    if outcome.reason is Reason.NO_RESULT:
        said = f" Its last words: {outcome.detail}" if outcome.detail else ""
        outcome = Outcome(ended.stage, Reason.NO_RESULT, f"It ended with exit status {ended.exit_status} and no error.{said}")
    if outcome.reason is Reason.KILLED and ended.oom_kills:
        outcome = Outcome(outcome.stage, Reason.HOST_OOM, f"The kernel killed a process for memory. {outcome.detail}".strip())
    return _only_what_is_known(outcome)


def explain_log(log: str, target: str, stage: Stage = Stage.RUN) -> Outcome:
    """The most telling reason in a log, whatever the text is; NO_RESULT, with the last line, if it gives none."""
    evidence = _evidence(log)
    outcome = _match(evidence, target, stage)
    if outcome is not None:
        return outcome
    if evidence.cause is not None:
        return Outcome(stage, Reason.PYTHON_ERROR, _short(evidence.cause.headline))
    if evidence.noise is not None:
        return Outcome(stage, Reason.RANK_LOST, _short(evidence.noise))
    return Outcome(stage, Reason.NO_RESULT, _short(_last_line(evidence.text)))


def _explain_timeout(ended: Ended, log: str, target: str) -> Outcome:
    """The reason that the log's end gives for a hang, unless that would be a fault of the model's code."""
    seconds = ended.stage_s.get(ended.stage.value, ended.wall_s)
    if ended.stage is Stage.START:
        default = Outcome(ended.stage, Reason.START_TIMEOUT, f"Nothing was loaded after {seconds:.0f} s.")
    elif ended.stage is Stage.EXIT:
        return Outcome(ended.stage, Reason.NO_RESULT, "It left no readable result and did not end.")
    else:
        reason = Reason.COMPILE_TIMEOUT if ended.stage is Stage.COMPILE else Reason.TIMEOUT
        default = Outcome(ended.stage, reason, f"{ended.stage.value} did not end within its limit; it was stopped after {seconds:.0f} s.")
    found = _match(_evidence(_end_of(log)), target, ended.stage)
    is_cause = found is not None and found.reason is not None and found.reason.fault is Fault.HARNESS
    return found if found is not None and is_cause else default


def _explain_signal(ended: Ended, number: int, log: str, target: str) -> Outcome:
    name = _signal_name(number)
    if number == signal.SIGKILL:
        return _explain_kill(ended, log, target)
    if number == signal.SIGINT:
        return Outcome(ended.stage, Reason.INTERRUPTED, "It was ended by SIGINT.")
    if number in {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}:
        return Outcome(ended.stage, Reason.KILLED, f"It was ended by {name}, which doesitrun did not send.")
    evidence = _evidence(_end_of(log))
    found = _match(evidence, target, ended.stage)
    if found is not None:
        return found
    said = evidence.cause.headline if evidence.cause is not None else ""
    return Outcome(ended.stage, Reason.CRASH, _short(f"It was ended by {name}. {said}".strip()))


def _explain_kill(ended: Ended, log: str, target: str) -> Outcome:
    """A SIGKILL that the harness did not send: for want of memory if the kernel or the log says so."""
    if ended.oom_kills:
        return Outcome(ended.stage, Reason.HOST_OOM, f"The kernel killed it for memory, at {ended.peak_bytes / 1e9:.2f} GB.")
    found = _match(_evidence(_end_of(log)), target, ended.stage)
    if found is not None and found.reason is Reason.HOST_OOM:
        return found
    return Outcome(ended.stage, Reason.KILLED, "It was ended by SIGKILL, which doesitrun did not send.")


def _only_what_is_known(outcome: Outcome) -> Outcome:
    """Before the model is touched nothing is known of it: what failed then is the stack."""
    if outcome.stage is Stage.START and outcome.reason is not None and outcome.reason.is_models_fault:
        return Outcome(outcome.stage, Reason.ENVIRONMENT, outcome.detail)
    return outcome


def _signal_number(ended: Ended) -> int | None:
    """The signal that ended the child, also when a shell passed it on as 128 + number."""
    if ended.signal is not None or ended.exit_status is None:
        return ended.signal
    number = ended.exit_status - 128
    return number if number in {s.value for s in signal.Signals} else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---------------------------------------------------------------------------------- reading a log
def _evidence(log: str) -> Evidence:
    text = _clean(log)
    cause = first_failure(failures(text), noise())
    quiet: list[str] = []
    lost: list[str] = []
    for line in text.split("\n"):
        (lost if noise().search(line) else quiet).append(line)
    return Evidence("\n".join(quiet), cause, lost[0].strip() if lost else None)


def _match(evidence: Evidence, target: str, stage: Stage) -> Outcome | None:
    places = {where: evidence.places(where) for where in ("log", "error", "trace")}
    for pattern in patterns(target):
        found = (pattern.expression.search(text) for text in places[pattern.where])
        match = next((match for match in found if match is not None), None)
        if match is not None:
            return Outcome(stage, pattern.reason, _short(_detail(pattern, match, evidence)))
    return None


def _detail(pattern: Pattern, match: re.Match[str], evidence: Evidence) -> str:
    """The pattern's own sentence; else the error's headline, and the line that matched where that is another."""
    if pattern.detail is not None:
        return pattern.detail.format(**{name: text or "" for name, text in match.groupdict().items()})
    line = _line_at(match.string, match.end())
    if evidence.cause is None or match.string is evidence.text:
        return line
    headline = evidence.cause.headline
    return headline if line in headline or headline in line else f"{headline} ({line})"


def _line_at(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return text[start : end if end >= 0 else None].strip()


def _clean(log: str) -> str:
    """The log's two ends without colours; progress bars become lines, endless lines are cut."""
    if len(log) > HEAD_CHARACTERS + TAIL_CHARACTERS:
        log = log[:HEAD_CHARACTERS] + "\n" + log[-TAIL_CHARACTERS:]
    lines = ESCAPES.sub("", log.replace("\0", "")).replace("\r", "\n").split("\n")
    if len(lines) > HEAD_LINES + TAIL_LINES:
        lines = lines[:HEAD_LINES] + lines[-TAIL_LINES:]
    return "\n".join(line[:LINE_CHARACTERS] for line in lines)


def _end_of(log: str) -> str:
    return "\n".join(log.split("\n")[-LOST_LINES:])


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")


def _short(text: str) -> str:
    """One line, cut to what a row shows."""
    line = " ".join(text.split())
    return line if len(line) <= DETAIL_CHARACTERS else line[: DETAIL_CHARACTERS - 1] + "…"

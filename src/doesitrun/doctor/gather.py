"""The facts of one stack and of the host under it, without any judgement."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doesitrun import isolate
from doesitrun.errors import DoesItRunError, StackError
from doesitrun.isolate import Limits
from doesitrun.stacks import INSTACK
from doesitrun.targets import TARGETS
from doesitrun.targets.checks import Facts, Holder, Program, Ran

IMPORT_LIMITS = Limits(start_s=300.0)
PROGRAM_LIMITS = Limits(start_s=60.0)
OUTPUT_CHARACTERS = 200_000
TEMPORARY = "doesitrun-doctor-"
Watch = Callable[[str], None]


def probe(python: str) -> dict[str, Any]:
    """What `instack/probe.py` finds. Raises StackError, IsolationError."""
    if not Path(python).is_file():
        raise StackError(f"There is no Python at {python}: correct its path in doesitrun.toml.")
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        return isolate.run_script(INSTACK / "probe.py", python, {}, Path(folder), limits=PROGRAM_LIMITS)


def gather(python: str, target: str, probed: Mapping[str, Any], workspace: Path, watch: Watch) -> Facts:
    """Everything that `judge` needs to know."""
    own = TARGETS[target].CHECKUP
    watch("importing the stack's libraries")
    imported, failure = _imported(python, own.modules, own.look)
    watch("asking the host")
    graphs = workspace.resolve() / "graphs" / target
    hub = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    devices = [path for path in probed["device_files"] if Path(path).exists()]
    return Facts(
        python=python,
        probe=probed,
        imported=imported,
        import_failure=failure,
        programs={program.command: run_program(program, python) for program in own.programs},
        environment=dict(os.environ),
        holders=tuple(holders(devices)),
        forbidden_devices=tuple(path for path in devices if not os.access(path, os.R_OK | os.W_OK)),
        memory_available_bytes=_memory_available(probed["host_memory_bytes"]),
        graphs_folder=str(graphs),
        graphs_failure=writing_failure(graphs),
        workspace_free_bytes=_free(graphs),
        hub_folder=str(hub),
        hub_free_bytes=_free(hub),
    )


# ---------------------------------------------------------------------------------- processes
def _imported(python: str, modules: Sequence[str], look: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The answer of `instack/imports.py`, or why there is none: an import can crash its process."""
    request = {"modules": list(modules), "look": list(look)}
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        try:
            return isolate.run_script(INSTACK / "imports.py", python, request, Path(folder), limits=IMPORT_LIMITS), ""
        except DoesItRunError as error:
            return {}, str(error).partition("; see ")[0]  # that folder is gone by now


def locate(program: Program, python: str) -> tuple[str | None, bool]:
    """Where the program is, and whether PATH leads to it: a stack's own folder counts, for it can be put there."""
    command = os.environ.get(program.variable, "") if program.variable else ""
    command = command or program.command
    found = shutil.which(command)
    if found is not None:
        return found, True
    return shutil.which(command, path=os.pathsep.join([str(Path(python).parent), *program.folders])), False


def run_program(program: Program, python: str) -> Ran:
    """What the program printed and how it ended; it gets a minute."""
    path, on_path = locate(program, python)
    if path is None:
        return Ran(None)
    environment = isolate.child_environment(os.environ, {}, keep_token=False)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as name:
        folder = Path(name)
        try:
            ended = isolate.run([path, *program.arguments], folder, environment, PROGRAM_LIMITS)
        except DoesItRunError as error:
            return Ran(path, on_path, last_words=str(error))
        output, errors = (_text(folder / file) for file in (isolate.STDOUT, isolate.STDERR))
    words = [line.strip() for line in errors.splitlines() if line.strip()]
    return Ran(path, on_path, ended.exit_status, output[:OUTPUT_CHARACTERS], words[-1][:300] if words else "")


def _text(path: Path) -> str:
    """The file's text; "" when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def holders(devices: Sequence[str]) -> Iterator[Holder]:
    """The processes that have one of the files open; those of other users are seen by root alone."""
    wanted = set(devices)
    for process in Path("/proc").glob("[0-9]*") if wanted else ():
        held = sorted(set(_open_files(process)) & wanted)
        if held:
            command = _text(process / "cmdline").replace("\0", " ").strip()
            yield from (Holder(int(process.name), command, device) for device in held)


def _open_files(process: Path) -> Iterator[str]:
    """What can be seen of a process's files; they, and the process, may be gone at any moment."""
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(link.readlink())


# ---------------------------------------------------------------------------------- folders, memory
def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def writing_failure(folder: Path) -> str:
    """Why no file can be written there, or would be if the folder were made; "" if it can. Leaves nothing behind."""
    try:
        with tempfile.TemporaryDirectory(prefix=".doesitrun-doctor-", dir=_existing(folder)) as made:
            (Path(made) / "probe").write_bytes(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(_existing(folder)).free
    except OSError:
        return None


def _memory_available(limit: int) -> int | None:
    """What can still be used of the host's memory, or of what a container may use."""
    import psutil

    return min(int(psutil.virtual_memory().available), limit)

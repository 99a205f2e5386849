"""What a campaign begins with: its stacks, its list of models and its pool, from what the user says."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from doesitrun import settings, stacks
from doesitrun.campaign.asking import HOST_SHARE
from doesitrun.campaign.context import Ask, Context
from doesitrun.campaign.listing import Listed, first_chosen, read_list
from doesitrun.campaign.many import OpenPool
from doesitrun.errors import UsageError
from doesitrun.pool import LocalPool, Pool, helpers_of
from doesitrun.records import Stack
from doesitrun.store.workspace import Workspace
from doesitrun.targets import DEVICES, TARGETS


def open_contexts(
    names: Sequence[str], target: str | None, device: str | None, workspace: Path, config: Path | None, warn: Callable[[str], None]
) -> list[Context]:
    """A context per named stack, or one for the first that has the target. Raises UsageError, StackError."""
    read = settings.load(config)
    wanted = target or (DEVICES[device].target if device in DEVICES else None)
    chosen = [stacks.choose(read, name, wanted) for name in dict.fromkeys(names)] or [stacks.choose(read, None, wanted)]
    return [Context(stack, read, Workspace(workspace), lambda _: None, warn) for stack in chosen]


def open_lists(
    models: Path | None, selected: int | None, default: Ask, contexts: Callable[[], list[Context]]
) -> tuple[list[Context], list[Listed]]:
    """The contexts, and the models of a file or the first ones of the newest selection. Raises UsageError, and as `contexts` does.

    A list of names is read before any stack is asked what it is, which takes seconds.
    """
    if (models is None) == (selected is None):
        message = "Say which models: --models FILE, or --selected N after `doesitrun select`."
        raise UsageError(message)
    if models is not None:
        listed = _read(models, default)
        return contexts(), listed
    found = contexts()
    return found, first_chosen(_read(_newest_selection(found[0]), default), selected or 0)


def _read(path: Path, default: Ask) -> list[Listed]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read ({error}): name a text file with a Hub id or folder a line."
        raise UsageError(message) from None
    return read_list(text, str(path), default)


def _newest_selection(context: Context) -> Path:
    name = f"{context.stack.target}.jsonl"
    found = sorted((context.workspace.root / "selection").glob(f"*/{name}"))
    if not found:
        message = f"There is no selection for {context.stack.target} in {context.workspace.root}: make one with `doesitrun select`."
        raise UsageError(message)
    return found[-1]


def open_pool(wanted: str, cores: int | None, workspace: Path, warn: Callable[[str], None]) -> OpenPool:
    """What opens the pool `local`, `ray` or `ray=ADDRESS` for a stack; `cores` are this machine's. Raises UsageError."""
    name, _, address = wanted.partition("=")
    if name == "local" and not address:
        return lambda stack: _local(stack, cores)
    if name != "ray":
        message = f"There is no pool {wanted!r}: choose local, ray or ray=ADDRESS."
        raise UsageError(message)

    def opened(stack: Stack) -> Pool:
        from doesitrun.pool.ray import RayPool

        return RayPool(address or None, TARGETS[stack.target].RESOURCE, cores or stack.cores, workspace.resolve() / "graphs", warn)

    return opened


def _local(stack: Stack, cores: int | None) -> LocalPool:
    return LocalPool(cores or stack.cores, int(HOST_SHARE * stack.host_memory_bytes), helpers_of(os.cpu_count() or 1))

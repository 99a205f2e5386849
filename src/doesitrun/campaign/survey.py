"""Many models planned, where one that cannot be looked at says why and hides no other."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence

from doesitrun import hub
from doesitrun.campaign.context import Ask, Context, Prepared, Progress
from doesitrun.campaign.planning import prepare_opened
from doesitrun.errors import HubError, ModelNotFoundError, StackError
from doesitrun.hub import HubThrottledError
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.outcomes import Reason
from doesitrun.records import Refusal

BATCH = 100
"""Models that are outlined by one process of the stack: about ten seconds of work."""
PAUSE_S = 30.0
PAUSES = 11
"""The Hub counts requests in windows of five minutes: whoever waits for longer than that is let in again."""


def survey(asks: Sequence[Ask], context: Context) -> Iterator[Prepared]:
    """The plans of many models, one after the other; what has none is a refusal, INCONCLUSIVE where the Hub or the stack failed.

    A Hub that asks to slow down is waited for. Raises UsageError.
    """
    for start in range(0, len(asks), BATCH):
        batch = asks[start : start + BATCH]
        yield from _planned(batch, [_opened(ask, context) for ask in batch], context)


def _planned(asks: Sequence[Ask], opened: Sequence[Checkpoint | Refusal], context: Context) -> list[Prepared]:
    """The plans; where the stack's script fails on many, on halves of them, down to the model that it fails on."""
    try:
        return prepare_opened(asks, opened, context)
    except StackError as error:
        if len(asks) == 1:
            failed = Refusal(opened[0].model_id, opened[0].revision, Reason.HARNESS_ERROR, str(error))
            return prepare_opened(asks, [failed], context)
        half = len(asks) // 2
        return _planned(asks[:half], opened[:half], context) + _planned(asks[half:], opened[half:], context)


def _opened(ask: Ask, context: Context) -> Checkpoint | Refusal:
    named, revision = _named(ask.model), ask.revision or ""
    try:
        return _patiently(ask, context)
    except HubThrottledError as error:
        return Refusal(named, revision, Reason.HUB_THROTTLED, str(error))
    except ModelNotFoundError as error:
        return Refusal(named, revision, Reason.PRIVATE if named == ask.model else Reason.NOT_TRANSFORMERS, str(error))
    except HubError as error:
        return Refusal(named, revision, Reason.HUB_ERROR, str(error))


def _patiently(ask: Ask, context: Context) -> Checkpoint | Refusal:
    for pause in range(PAUSES):
        try:
            return hub.open_checkpoint(ask.model, ask.revision)
        except HubThrottledError:
            if pause == 0:
                context.warn(f"The Hub asks to slow down: waiting, up to {PAUSE_S * PAUSES / 60:.0f} minutes.")
            context.watch(Progress("plan", pause * PAUSE_S))
            time.sleep(PAUSE_S)
    return hub.open_checkpoint(ask.model, ask.revision)


def _named(model: str) -> str:
    """A model id for what was asked: itself, or for a path that is not there one that no other path has."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)?", model):
        return model
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rpartition("/")[2])[:80]
    return f"local/{name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"

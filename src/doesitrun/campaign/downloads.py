"""Models downloaded while others run, and dropped again when the disk's limit asks for it."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from doesitrun import isolate
from doesitrun.campaign.working import Item
from doesitrun.environment import child_environment
from doesitrun.errors import DoesItRunError
from doesitrun.files import write_whole
from doesitrun.hub import cache
from doesitrun.isolate import Limits
from doesitrun.outcomes import Outcome, Reason, Stage
from doesitrun.pool import Need
from doesitrun.records import Row

NOTE = "downloads.json"
SLOWEST_BYTES_PER_S = 2e6
"""A download that is slower than this on the whole is given up."""
LEAST_S = 600.0
REASONS = {
    "gated": Reason.GATED,
    "throttled": Reason.HUB_THROTTLED,
    "network": Reason.NETWORK,
    "disk": Reason.DISK_FULL,
    "hub": Reason.HUB_ERROR,
}


@dataclass(frozen=True)
class Fetch:
    """An item's files on the Hub; `fail` writes the row of an item whose files cannot be had."""

    model: str
    revision: str
    size_bytes: int
    code: bool
    fail: Callable[[Outcome], Row]

    @property
    def name(self) -> str:
        return f"{self.model}@{self.revision}"


class Downloads:
    """Two streams: one takes the longest item next, the other the shortest, so that cores have work at once.

    Without a limit nothing is dropped. With one, what this workspace's campaigns downloaded is counted, and finished
    models go first; a model that alone is larger than the limit is downloaded when nothing else is there.
    """

    def __init__(self, items: Sequence[Item], fetches: Mapping[str, Fetch], root: Path, limit_bytes: int | None) -> None:
        self._root, self._limit = root, limit_bytes
        self._fetches = fetches
        self._lock = threading.Condition()
        self._ready = [item for item in items if item.key not in fetches]
        wanted = sorted((item for item in items if item.key in fetches), key=lambda item: item.need.expected_s)
        self._wanted = wanted
        self._open = {item.key: fetches[item.key].name for item in wanted}
        self._ours = _noted(root / NOTE)
        self._coming: dict[str, int] = {}
        self._stopped = False
        environment = child_environment(os.environ, {"PYTHONSAFEPATH": "1"}, keep_token=True)
        self._threads = [threading.Thread(target=self._stream, args=(end, environment), daemon=True) for end in (-1, 0)]
        for thread in self._threads:
            thread.start()

    def ready(self) -> list[Item]:
        with self._lock:
            found, self._ready = self._ready, []
            return found

    def finished(self, key: str, *, settled: bool) -> None:
        if settled:
            with self._lock:
                self._open.pop(key, None)
                self._lock.notify_all()

    def close(self) -> None:
        """Stops the downloads; what came whole stays in the cache."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(30.0)

    # ------------------------------------------------------------------------------ in the streams
    def _stream(self, end: int, environment: Mapping[str, str]) -> None:
        while (item := self._next(end)) is not None:
            fetch = self._fetches[item.key]
            try:
                answer = self._fetched(fetch, environment)
            except KeyboardInterrupt:
                return
            except (DoesItRunError, OSError) as error:
                answer = {"problem": "hub", "detail": str(error)}
            with self._lock:
                self._coming.pop(fetch.name, None)
                if answer["problem"] is None:
                    self._ready.append(item)
                    if not answer["was_there"]:
                        self._note({**self._ours, fetch.name: answer["bytes"]})
                else:
                    run = partial(_failed, fetch.fail, Outcome(Stage.LOAD, REASONS[answer["problem"]], answer["detail"]))
                    self._ready.append(dataclasses.replace(item, need=Need(0), run=run))
                self._lock.notify_all()

    def _next(self, end: int) -> Item | None:
        """The next item, once there is room for it; its size counts from now on."""
        with self._lock:
            while not self._stopped and self._wanted:
                item = self._wanted[end]
                fetch = self._fetches[item.key]
                if fetch.name in self._ours or self._has_room(fetch.size_bytes):
                    self._wanted.pop(end)
                    self._coming[fetch.name] = fetch.size_bytes
                    return item
                self._lock.wait(1.0)
        return None

    def _has_room(self, size_bytes: int) -> bool:
        if self._limit is None:
            return True
        for name in [name for name in self._ours if name not in self._open.values()]:
            if self._used + size_bytes <= self._limit:
                break
            with suppress(OSError):  # somebody else may be dropping it, too
                cache.drop(*name.rsplit("@", 1))
            self._note({other: size for other, size in self._ours.items() if other != name})
        return not self._used or self._used + size_bytes <= self._limit

    @property
    def _used(self) -> int:
        return sum({**self._coming, **self._ours}.values())

    def _fetched(self, fetch: Fetch, environment: Mapping[str, str]) -> dict[str, Any]:
        folder = self._root / "scripts" / f"fetch-{secrets.token_hex(6)}"
        limits = Limits(start_s=LEAST_S + fetch.size_bytes / SLOWEST_BYTES_PER_S)
        script = Path(str(resources.files("doesitrun"))) / "hub" / "fetch.py"
        request = {"model": fetch.model, "revision": fetch.revision, "code": fetch.code}
        try:
            return isolate.run_script(script, sys.executable, request, folder, limits=limits, env=environment, watch=self._check)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _check(self, *_: object) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    def _note(self, ours: Mapping[str, int]) -> None:
        self._ours = dict(ours)
        with suppress(OSError):  # without the note a later campaign keeps these files
            write_whole(self._root / NOTE, json.dumps(self._ours).encode())


def _failed(fail: Callable[[Outcome], Row], outcome: Outcome, *_: object) -> Row:
    return fail(outcome)


def _noted(path: Path) -> dict[str, int]:
    try:
        noted = json.loads(path.read_bytes())
        return {str(name): int(size) for name, size in noted.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}

"""Models run through a pool until each has its row: what is inconclusive is tried again at the end, on other cores."""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from doesitrun.campaign import expectation
from doesitrun.campaign.context import Progress, Watch
from doesitrun.campaign.events import Began, Ended, Event, Listen, Stepped, Ticked
from doesitrun.outcomes import Reason, Result
from doesitrun.pool import Dispatch, Done, Job, Lease, Need, Pool, Seat
from doesitrun.records import Row

TICK_S = 0.5
RETRIES = 2
HOPELESS = frozenset({Reason.DEVICE_MISSING, Reason.ENVIRONMENT, Reason.VERSION_MISMATCH})
"""Nothing changes about these within a campaign."""
HUNGRY = frozenset({Reason.HOST_OOM, Reason.KILLED})
"""Another try gets twice the memory set aside."""


@dataclass(frozen=True)
class Item:
    """A model to be run: its plan, what that needs, and what runs it and returns its row."""

    key: str
    model: str
    need: Need
    run: Callable[[Seat, Watch], Row]
    visible: Callable[[Sequence[int]], Mapping[str, str]] = lambda _: {}


class Supply(Protocol):
    """Where the models' files come from, while others run."""

    def ready(self) -> list[Item]:
        """Items that can be run now and have not been returned before."""
        ...

    def finished(self, key: str, *, settled: bool) -> None:
        """The item has a row; its files may go, above all when it is settled."""
        ...


class AtHand:
    """Everything is on this disk already."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)

    def ready(self) -> list[Item]:
        found, self._items = self._items, []
        return found

    def finished(self, key: str, *, settled: bool) -> None:
        """Files that were there before the campaign stay."""


@dataclass(frozen=True)
class Ran:
    """How an item ended; the row itself is in the workspace."""

    result: Result
    reason: Reason | None


def work(items: Sequence[Item], pool: Pool, listen: Listen, supply: Supply | None = None, retries: int = RETRIES) -> dict[str, Ran]:
    """Runs the items and returns how each ended. Whatever runs is stopped when it is left, in whichever way.

    What an item raises comes through, after the others were stopped; a KeyboardInterrupt too.
    """
    return _Work({item.key: item for item in items}, pool, listen, supply or AtHand(items), retries).run()


@dataclass
class _Work:
    items: Mapping[str, Item]
    pool: Pool
    listen: Listen
    supply: Supply
    retries: int
    number: int = 1
    """Of the round: 1, and one more for each time that the inconclusive ones are tried again."""
    pending: dict[str, Need] = field(default_factory=dict)
    ran: dict[str, Ran] = field(default_factory=dict)
    had: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    """From the threads of the jobs; the listener hears them from the thread that called `work`."""
    took_s: float = 0.0
    expected_s: float = 0.0
    ticked_s: float = 0.0

    def run(self) -> dict[str, Ran]:
        dispatch = Dispatch(self.pool, self._began)
        try:
            self.pending = {key: item.need for key, item in self.items.items()}
            while self.pending:
                dispatch.submit([self._job(item, item.need) for item in self.supply.ready()])
                self._hear(dispatch)
            while self.number <= self.retries:
                self.number += 1
                self.pending = {key: self._next_need(key) for key, ran in self.ran.items() if _is_worth_it(ran)}
                dispatch.submit([self._job(self.items[key], need) for key, need in self.pending.items()])
                while self.pending:
                    self._hear(dispatch)
        finally:
            dispatch.cancel()
            self._drain()
        return self.ran

    def _job(self, item: Item, need: Need) -> Job:
        step = ""

        def watch(progress: Progress) -> None:
            nonlocal step
            if progress.step != step:
                step = progress.step
                self.events.put(Stepped(item.key, step))

        def do(seat: Seat) -> Ran:
            row = item.run(seat, watch)
            return Ran(row.result or Result.INCONCLUSIVE, row.reason)

        return Job(item.key, need, do, item.visible, self.had.get(item.key, frozenset()))

    def _began(self, job: Job, lease: Lease) -> None:
        self.events.put(Began(job.key, self.items[job.key].model, lease.place, tuple(lease.cores), self.number))

    def _hear(self, dispatch: Dispatch) -> None:
        ended = dispatch.ended(TICK_S)
        self._drain()
        for done in ended:
            self._end(done)
        now = time.monotonic()
        if now - self.ticked_s >= TICK_S or not self.pending:
            self.ticked_s = now
            self.listen(self._standing(dispatch.leases, now))

    def _standing(self, leases: Sequence[Lease], now: float) -> Ticked:
        running = {lease.key: (lease.need, now - lease.since_s) for lease in leases}
        waiting = [need for key, need in self.pending.items() if key not in running]
        cores = sum(place.cores for place in self.pool.places())
        pace = self.took_s / self.expected_s if self.expected_s else 1.0
        left_s = pace * expectation.remaining_s(waiting, running.values(), cores)
        busy = sum(len(lease.cores) for lease in leases)
        return Ticked(busy, cores, len(self.items) - len(self.pending), len(self.pending), left_s if self.ran else None)

    def _drain(self) -> None:
        while True:
            try:
                self.listen(self.events.get_nowait())
            except queue.Empty:
                return

    def _end(self, done: Done) -> None:
        if done.error is not None:
            raise done.error
        item, ran = self.items[done.key], done.value
        self.pending.pop(done.key, None)
        self.ran[done.key] = ran
        self.had[done.key] = self.had.get(done.key, frozenset()) | done.had
        self.took_s += done.wall_s
        self.expected_s += item.need.expected_s
        again = self.number <= self.retries and _is_worth_it(ran)
        self.supply.finished(done.key, settled=not again)
        self.listen(Ended(done.key, item.model, ran.result, ran.reason, done.wall_s, again))

    def _next_need(self, key: str) -> Need:
        need, reason = self.items[key].need, self.ran[key].reason
        factor = 2 ** (self.number - 1) if reason in HUNGRY else 1
        return dataclasses.replace(need, host_bytes=need.host_bytes * factor)


def _is_worth_it(ran: Ran) -> bool:
    return ran.result is Result.INCONCLUSIVE and ran.reason not in HOPELESS

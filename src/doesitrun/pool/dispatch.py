"""Jobs on a pool: a thread for each that runs, and none for those that wait.

A job's thread does nothing but start children and wait for them. Whoever submits hears of ends through `ended`.
"""

from __future__ import annotations

import bisect
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doesitrun.isolate import Ended, Limits, Watch
from doesitrun.outcomes import Stage
from doesitrun.pool.protocol import PlaceLostError, Pool, Seat
from doesitrun.pool.schedule import Lease, Need, Wish, assign, could_fit, order

LOSSES = 4
"""How many machines may be lost under one child before the job is given up."""
LONELY_S = 180.0
"""Seconds that a running job waits for a machine that could take it, after its own was lost."""
CROWD = 64
"""Jobs that may wait for the host's processor beside those on the device, before no more are started."""
STOPPING_S = 30.0


@dataclass(frozen=True)
class Job:
    """What is to be done with how many cores. `visible` gives the variables that show a child those cores alone."""

    key: str
    need: Need
    do: Callable[[Seat], Any]
    visible: Callable[[Sequence[int]], Mapping[str, str]] = lambda _: {}
    avoid: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True)
class Done:
    """A job that ended: what `do` returned or raised, the seconds since it started, and the (place, core) that it had."""

    key: str
    value: Any = None
    error: BaseException | None = None
    wall_s: float = 0.0
    had: frozenset[tuple[str, int]] = frozenset()


class Dispatch:
    """Gives the pool's cores and memory to the jobs that are submitted, as `schedule` says."""

    def __init__(self, pool: Pool, began: Callable[[Job, Lease], None] = lambda _job, _lease: None) -> None:
        """`began` is told of each job that starts, from this class's own threads; it must be quick."""
        self._pool = pool
        self._began = began
        self._lock = threading.Condition()
        self._waiting: list[Wish] = []
        self._queued: dict[str, Job] = {}
        self._leases: dict[str, Lease] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._ends: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._cancelled = False

    # ------------------------------------------------------------------------------ for the composer
    def submit(self, jobs: Sequence[Job]) -> None:
        """Adds jobs; those that can start do so at once."""
        with self._lock:
            for job in jobs:
                self._queued[job.key] = job
                self._wait_for(Wish(job.key, job.need, time.monotonic(), job.avoid))
            self._assign()

    def ended(self, wait_s: float) -> list[Done]:
        """Jobs that ended since the last call; waits up to `wait_s` for the first, and meanwhile sees that machines are used."""
        self.refresh()
        found: list[Done] = []
        try:
            found.append(self._ends.get(timeout=wait_s))
            while True:
                found.append(self._ends.get_nowait())
        except queue.Empty:
            return found

    def refresh(self) -> None:
        """Looks at the pool again: machines may have come or gone."""
        with self._lock:
            self._assign()
            self._pool.expect([wish.need.cores for wish in self._waiting])

    @property
    def leases(self) -> tuple[Lease, ...]:
        """What runs now, and where."""
        with self._lock:
            return tuple(self._leases.values())

    @property
    def left(self) -> int:
        """How many jobs have not ended."""
        with self._lock:
            return len(self._queued) + len(self._threads)

    def cancel(self) -> None:
        """Ends everything: children are killed, their jobs get a KeyboardInterrupt, and nothing new starts. Returns when all is quiet."""
        with self._lock:
            self._cancelled = True
            self._queued.clear()
            self._waiting.clear()
            threads = list(self._threads.values())
            self._lock.notify_all()
        deadline = time.monotonic() + STOPPING_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        self.cancel()
        self._pool.close()

    # ------------------------------------------------------------------------------ under the lock
    def _wait_for(self, wish: Wish) -> None:
        bisect.insort(self._waiting, wish, key=order)

    def _assign(self) -> None:
        if self._cancelled or not self._waiting:
            return
        places = self._pool.places()
        crowded = len(self._threads) > sum(place.cores for place in places) + CROWD
        wishes = [wish for wish in self._waiting if wish.key not in self._queued] if crowded else self._waiting
        granted = assign(places, self._leases.values(), wishes, time.monotonic())
        keys = {lease.key for lease in granted}
        if not keys:
            return
        self._waiting = [wish for wish in self._waiting if wish.key not in keys]
        for lease in granted:
            self._leases[lease.key] = lease
            job = self._queued.pop(lease.key, None)
            if job is not None:
                self._start(job, lease)
        self._lock.notify_all()

    def _start(self, job: Job, lease: Lease) -> None:
        # A daemon: should one not end in time at the end of the program, the end of its pipe kills its children.
        thread = threading.Thread(target=self._do, args=(job, lease), name=job.key[:60], daemon=True)
        self._threads[job.key] = thread
        thread.start()

    # ------------------------------------------------------------------------------ in a job's thread
    def _do(self, job: Job, lease: Lease) -> None:
        started = time.monotonic()
        seat = _Seat(self, job, lease, job.need)
        value, problem = None, None
        try:
            self._began(job, lease)
            value = job.do(seat)
        except BaseException as error:  # noqa: BLE001  whatever it is, the composer hears of it
            problem = error
        self.release(job.key, ended=True)
        self._ends.put(Done(job.key, value, problem, time.monotonic() - started, frozenset(seat.had)))

    def release(self, key: str, *, ended: bool = False) -> None:
        with self._lock:
            self._leases.pop(key, None)
            if ended:
                self._threads.pop(key, None)
            self._assign()

    def acquire(self, wish: Wish) -> Lease:
        """Waits for a lease. Raises KeyboardInterrupt when everything is cancelled, PlaceLostError when no machine is left for it."""
        deadline = time.monotonic() + LONELY_S
        with self._lock:
            self._wait_for(wish)
            self._assign()
            while wish.key not in self._leases:
                self.check()
                self._lock.wait(1.0)
                if could_fit(self._pool.places(), wish.need) or not wish.need.cores:
                    deadline = time.monotonic() + LONELY_S
                elif time.monotonic() > deadline:
                    self._waiting = [each for each in self._waiting if each.key != wish.key]
                    message = f"No machine of the pool has {wish.need.cores} cores any more: see which of them are up."
                    raise PlaceLostError(message)
            return self._leases[wish.key]

    def check(self) -> None:
        if self._cancelled:
            raise KeyboardInterrupt

    @property
    def pool(self) -> Pool:
        return self._pool


@dataclass
class _Seat:
    """A job's place in the pool; used by its own thread alone."""

    dispatch: Dispatch
    job: Job
    lease: Lease | None
    need: Need
    had: set[tuple[str, int]] = field(default_factory=set)
    last: str | None = None

    def __post_init__(self) -> None:
        self._took(self.lease)

    def on_device(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
        return self._run(self.job.need, argv, folder, env, limits, watch)

    def on_host(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
        return self._run(self.need, argv, folder, env, limits, watch, shown=False)

    def leave_device(self, host_bytes: int) -> None:
        self._take(Need(0, host_bytes))

    def _run(
        self,
        need: Need,
        argv: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        limits: Limits,
        watch: Watch | None,
        *,
        shown: bool = True,
    ) -> Ended:
        for loss in range(LOSSES):
            lease = self.lease if self.lease is not None and self.lease.need == need else self._take(need)
            variables = self.job.visible(list(lease.cores)) if shown and lease.cores else {}
            try:
                return self.dispatch.pool.run(lease, argv, folder, {**env, **variables}, limits, self._watch(watch))
            except PlaceLostError:
                self._give()
                if loss == LOSSES - 1:
                    raise
        raise AssertionError

    def _take(self, need: Need) -> Lease:
        self._give()
        self.need = need
        wish = Wish(self.job.key, need, time.monotonic(), self.job.avoid, None if need.cores else self.last)
        lease = self.dispatch.acquire(wish)
        self._took(lease)
        return lease

    def _took(self, lease: Lease | None) -> None:
        self.lease = lease
        if lease is not None:
            self.last = lease.place
            self.had |= {(lease.place, core) for core in lease.cores}

    def _give(self) -> None:
        self.lease = None
        self.dispatch.release(self.job.key)

    def _watch(self, watch: Watch | None) -> Watch:
        """What the child's watcher calls: it also ends a child that nobody wants any more."""

        def look(stage: Stage, elapsed_s: float) -> None:
            self.dispatch.check()
            if watch is not None:
                watch(stage, elapsed_s)

        return look

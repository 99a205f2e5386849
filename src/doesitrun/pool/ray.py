"""A Ray cluster as a pool: each child is a Ray task with the device's cores as its resource, and nothing is shared but bytes.

Ray hands out any free indices, but a group of cores must lie side by side. So the campaign reserves the cores of each
node as a whole, by a placement group, and says itself which of them a task's child sees. Nodes that come are
reserved, nodes that go are noticed, and whatever ran there is reported lost.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doesitrun.errors import IsolationError, StackError
from doesitrun.isolate import WATCH_S, Ended, Limits, Watch
from doesitrun.outcomes import Stage
from doesitrun.pool.errand import Errand, Returned, pack, perform, unpack
from doesitrun.pool.protocol import PlaceLostError
from doesitrun.pool.schedule import Lease, Place, helpers_of

LOOK_S = 1.0
"""Seconds between two looks at the nodes."""
DOUBT_S = 1.0
"""Seconds that a node gets no new work after a task was lost there; twice as many after each further loss in a row."""
LONGEST_DOUBT_S = 30.0
OPENING_S = 900.0
"""Seconds to wait for the first node with cores; an autoscaler may have to start it."""
TELLING_S = 10.0
CANCELLING_S = 25.0
STORE_BYTES = 200_000_000


def _performed(errand: Errand) -> Iterator[Stage | Returned]:
    yield from perform(errand)


@dataclass
class _Node:
    place: Place
    group: Any
    is_ready: bool = False
    doubted_until_s: float = 0.0
    losses: int = 0


class RayPool:
    """The nodes of a Ray cluster that have the resource; the address None starts one on this machine with `cores` of it."""

    def __init__(
        self, address: str | None, resource: str, cores: int, kept: Path | None = None, warn: Callable[[str], None] = lambda _: None
    ) -> None:
        """`kept`: the campaign's folder of compiled graphs; each node has its own instead. `warn` is told when it has to wait.

        Raises StackError where Ray is not installed, not reached, or no node has the resource.
        """
        self._resource, self._kept = resource, kept
        self._ray = _started(address, resource, cores)
        self._task = self._ray.remote(num_cpus=0, max_retries=0, max_calls=0)(_performed)
        self._lock = threading.Lock()
        self._nodes: dict[str, _Node] = {}
        self._expected = [1]  # one node to begin with, where there is an autoscaler to start it
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        self._open(warn)

    def _open(self, warn: Callable[[str], None]) -> None:
        """Returns when there is a node."""
        started, is_told = time.monotonic(), False
        while not self.places():
            waited_s = time.monotonic() - started
            if waited_s > OPENING_S or not self._thread.is_alive():
                self.close()
                message = f"No node of the Ray cluster has free {self._resource}: see `ray status`, and start nodes with --resources."
                raise StackError(message)
            if waited_s > TELLING_S and not is_told:
                is_told = True
                warn(f"No node of the Ray cluster has {self._resource} that are free: waiting for one, up to {OPENING_S / 60:.0f} minutes.")
            time.sleep(0.1)

    # ------------------------------------------------------------------------------ nodes
    def places(self) -> tuple[Place, ...]:
        now = time.monotonic()
        with self._lock:
            return tuple(node.place for node in self._nodes.values() if node.is_ready and now >= node.doubted_until_s)

    def expect(self, cores: Sequence[int]) -> None:
        self._expected = list(cores)

    def _look(self) -> None:
        asked: list[int] = []
        while not self._stopped.wait(LOOK_S if self._nodes else 0.1):
            with suppress(self._ray.exceptions.RayError, RuntimeError, TimeoutError):  # a look that fails is followed by the next
                self._compare()
                if self._expected != asked:
                    asked = list(self._expected)
                    self._ask(asked)

    def _compare(self) -> None:
        """Reserves nodes that came, forgets nodes that went, and sees which reservations are granted."""
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get(self._resource, 0) >= 1}
        for name in self._nodes.keys() - alive.keys():
            with self._lock:
                node = self._nodes.pop(name)
            self._ray.util.remove_placement_group(node.group)
        for name in alive.keys() - self._nodes.keys():
            place = _place(name, alive[name]["Resources"], self._resource)
            group = self._ray.util.placement_group(
                [{self._resource: place.cores}], strategy="STRICT_PACK", bundle_label_selector=[{"ray.io/node-id": name}]
            )
            with self._lock:
                self._nodes[name] = _Node(place, group)
        for node in self._nodes.values():
            if not node.is_ready:
                node.is_ready = node.group.wait(timeout_seconds=0.1)

    def _ask(self, cores: Sequence[int]) -> None:
        """Tells an autoscaler what waits; a cluster without one does nothing about it."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[{self._resource: each} for each in cores if each])

    def _doubt(self, name: str) -> None:
        with self._lock:
            if name in self._nodes:
                node = self._nodes[name]
                node.doubted_until_s = time.monotonic() + min(LONGEST_DOUBT_S, DOUBT_S * 2**node.losses)
                node.losses += 1

    # ------------------------------------------------------------------------------ children
    def run(self, lease: Lease, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch) -> Ended:
        with self._lock:
            node = self._nodes.get(lease.place)
        if node is None:
            raise PlaceLostError(_lost(lease.place))
        errand = pack(argv, folder, env, limits, self._kept)
        try:
            returned = self._follow(self._start(errand, node, len(lease.cores)), node, watch)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, IsolationError) else IsolationError(f"A Ray worker failed: {cause}; see its log.") from None
        except self._ray.exceptions.OutOfMemoryError:
            return Ended(None, signal.SIGKILL, Stage.RUN, oom_kills=1)  # Ray ended the worker before the kernel would have
        except self._ray.exceptions.RayError as error:
            self._doubt(lease.place)
            raise PlaceLostError(_lost(lease.place)) from error
        with self._lock:
            node.losses = 0
        return unpack(returned, folder)

    def _start(self, errand: Errand, node: _Node, cores: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(node.group, placement_group_bundle_index=0)
        return self._task.options(scheduling_strategy=strategy, **_amount(self._resource, cores)).remote(errand)

    def _follow(self, task: Any, node: _Node, watch: Watch) -> Returned:
        """What the task returns; tells its stages meanwhile. When `watch` raises, the child is ended first."""
        stage, since_s = Stage.START, time.monotonic()
        try:
            watch(stage, 0.0)
            while True:
                if not self._ray.wait([task], timeout=WATCH_S)[0]:
                    watch(stage, time.monotonic() - since_s)
                    self._check(node)
                    continue
                told = self._ray.get(next(task))
                if isinstance(told, Returned):
                    return told
                if told is not stage:
                    stage, since_s = told, time.monotonic()
                watch(stage, time.monotonic() - since_s)
        except StopIteration:
            raise PlaceLostError(_lost("a node")) from None
        except (self._ray.exceptions.RayError, PlaceLostError):
            raise
        except BaseException:
            self._cancel(task)
            raise

    def _check(self, node: _Node) -> None:
        """Raises PlaceLostError for a node that is gone: Ray does not always end a task there that was telling its stages."""
        if self._nodes.get(node.place.name) is not node:
            raise PlaceLostError(_lost(node.place.name))

    def _cancel(self, task: Any) -> None:
        """Ends the child with its task; a worker that does not listen is killed."""
        with suppress(self._ray.exceptions.RayError, StopIteration):
            self._ray.cancel(task)
            deadline = time.monotonic() + CANCELLING_S
            while time.monotonic() < deadline:
                if self._ray.wait([task], timeout=0.5)[0]:
                    self._ray.get(next(task))
            self._ray.cancel(task, force=True)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(10.0)
        with suppress(Exception):  # the cluster may be gone already
            self._ask([])
            for node in self._nodes.values():
                self._ray.util.remove_placement_group(node.group)
        self._ray.shutdown()


def _started(address: str | None, resource: str, cores: int) -> Any:
    """The module ray, connected. Ray's handler of SIGTERM gives way to the one that was there."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody unasked
    try:
        import ray
        import ray.util
    except ImportError:
        message = "Ray is not installed: pip install 'doesitrun[ray]', or use --pool local."
        raise StackError(message) from None
    handler = signal.getsignal(signal.SIGTERM)
    own = {
        "num_cpus": max(cores, os.cpu_count() or 1),
        **_amount(resource, cores),
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
    }
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else own))
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        message = f"No Ray cluster answers at {address or 'this machine'} ({error}): start one with `ray start --head`."
        raise StackError(message) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
    return ray


def _amount(resource: str, count: int) -> dict[str, Any]:
    """So many of a resource, as Ray's options say it."""
    named = {"CPU": "num_cpus", "GPU": "num_gpus"}.get(resource)
    if named is not None:
        return {named: count}
    return {"resources": {resource: count}} if count else {}


def _place(name: str, resources: Mapping[str, float], resource: str) -> Place:
    return Place(name, int(resources[resource]), int(resources.get("memory", 0)), helpers_of(int(resources.get("CPU", 1))))


def _lost(name: str) -> str:
    return f"The Ray node {name[:12]} was lost, with what ran on it: look whether it is up."

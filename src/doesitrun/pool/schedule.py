"""Who may start now, and on which cores: longest expected first, holes filled from behind, never beyond the host's memory. Pure.

Cores are given as contiguous groups that begin at a multiple of their size (rounded up to a power of two), which is
what collectives of an accelerator want; among the free groups the one is taken that breaks up the least.

The first wish that must wait for cores is promised the group that is expected to be free the earliest. Later wishes may
start there only if they are expected to be gone by then, so a job on many cores is never starved by many small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PATIENCE_S = 300.0
"""Seconds after which a wish that waits for memory keeps others from taking what becomes free."""
PROCESSORS_PER_HELPER = 32
"""CPU references compute with many threads; more of them at a time would only wait for each other."""
OVERDUE = 0.1
"""A job that lasts longer than expected is expected to need this share more."""


def helpers_of(processors: int) -> int:
    """How many jobs without cores a machine with so many processors runs at a time."""
    return max(1, processors // PROCESSORS_PER_HELPER)


@dataclass(frozen=True)
class Place:
    """A machine: its cores, its memory, and how many jobs without cores (CPU references) may run there at a time."""

    name: str
    cores: int
    host_bytes: int
    helpers: int = 1


@dataclass(frozen=True)
class Need:
    """What a job takes while it runs. No cores: a job for the host's processor."""

    cores: int
    host_bytes: int = 0
    expected_s: float = 0.0


@dataclass(frozen=True)
class Wish:
    """A job that waits."""

    key: str
    need: Need
    since_s: float = 0.0
    avoid: frozenset[tuple[str, int]] = frozenset()
    """(place, core) that the job should not get again, as long as there are others."""
    at: str | None = None
    """The place that it wants, as long as that is there: its files are there."""


@dataclass(frozen=True)
class Lease:
    """A job that runs: where, on which cores, and since when."""

    key: str
    place: str
    cores: range
    need: Need
    since_s: float

    def end_s(self, now_s: float) -> float:
        """When it is expected to end; never in the past."""
        due = self.since_s + self.need.expected_s
        return due if due > now_s else now_s + OVERDUE * self.need.expected_s


def order(wish: Wish) -> tuple[float, int, str]:
    """Longest expected first; of equals, the one on the most cores."""
    return (-wish.need.expected_s, -wish.need.cores, wish.key)


def could_fit(places: Iterable[Place], need: Need) -> bool:
    """True when some place has enough cores, were it free."""
    return any(_starts(place.cores, need.cores) for place in places)


def assign(places: Sequence[Place], leases: Iterable[Lease], wishes: Iterable[Wish], now_s: float) -> list[Lease]:
    """The leases that begin now. `wishes` must come in the order of `order`; places that are full are passed over."""
    boards = {place.name: _Board(place) for place in places}
    for lease in leases:
        if lease.place in boards:
            boards[lease.place].add(lease)
    granted: list[Lease] = []
    full: dict[tuple[tuple[int, str | None], bool], int] = {}  # least memory that such a wish was refused with: its equals need not try
    promised_s: float | None = None
    for wish in wishes:
        if not any(board.has_room for board in boards.values()):
            break
        kind = (wish.need.cores, wish.at)
        too_long = promised_s is not None and now_s + wish.need.expected_s > promised_s
        if (kind, too_long) in full and wish.need.host_bytes >= full[kind, too_long] and not wish.avoid:
            continue
        given = _place(boards, wish, now_s)
        if given is not None:
            boards[given.place].add(given)
            granted.append(given)
            continue
        if promised_s is None:
            promised_s = _promise(boards, wish, now_s)
        elif not wish.avoid:
            full[kind, too_long] = min(wish.need.host_bytes, full.get((kind, too_long), wish.need.host_bytes))
    return granted


class _Board:
    """What is free at one place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.free = (1 << place.cores) - 1
        self.free_bytes = place.host_bytes
        self.helpers = place.helpers
        self.leases: list[Lease] = []
        self.promised_cores = 0
        self.promised_s = 0.0

    @property
    def has_room(self) -> bool:
        return self.free != 0 or self.helpers > 0

    @property
    def is_idle(self) -> bool:
        return not self.leases

    def add(self, lease: Lease) -> None:
        self.free &= ~_mask(lease.cores)
        self.free_bytes -= lease.need.host_bytes
        self.helpers -= not lease.need.cores
        self.leases.append(lease)

    def has_memory(self, need: Need) -> bool:
        """A job that is larger than the host may run when it is alone there: its estimate may be too high."""
        return need.host_bytes <= self.free_bytes or self.is_idle

    def group(self, wish: Wish, now_s: float, avoid: frozenset[tuple[str, int]]) -> range | None:
        """The free group for a wish that breaks up the least; None where there is none."""
        usable = self.free
        if self.promised_cores and now_s + wish.need.expected_s > self.promised_s:
            usable &= ~self.promised_cores
        shunned = sum(1 << core for place, core in avoid if place == self.place.name)
        groups = [range(start, start + wish.need.cores) for start in _starts(self.place.cores, wish.need.cores)]
        fitting = [group for group in groups if not _mask(group) & ~(usable & ~shunned)]
        return min(fitting, key=lambda group: (_hole(self.free, group), group.start), default=None)


def _place(boards: dict[str, _Board], wish: Wish, now_s: float) -> Lease | None:
    avoid = wish.avoid if _has_others(boards, wish) else frozenset[tuple[str, int]]()
    for board in _candidates(boards, wish):
        if not board.has_memory(wish.need):
            continue
        if not wish.need.cores:
            if board.helpers > 0:
                return Lease(wish.key, board.place.name, range(0), wish.need, now_s)
            continue
        group = board.group(wish, now_s, avoid)
        if group is not None:
            return Lease(wish.key, board.place.name, group, wish.need, now_s)
    return None


def _candidates(boards: dict[str, _Board], wish: Wish) -> list[_Board]:
    """The place that it wants, or all, the fullest first: so wide groups stay free elsewhere."""
    if wish.at in boards:
        return [boards[wish.at]]
    return sorted(boards.values(), key=lambda board: (board.free.bit_count(), board.place.name))


def _has_others(boards: dict[str, _Board], wish: Wish) -> bool:
    """True when there is a group, free or not, without a core that the job should avoid."""
    return any(
        all((board.place.name, core) not in wish.avoid for core in range(start, start + wish.need.cores))
        for board in boards.values()
        for start in _starts(board.place.cores, wish.need.cores)
    )


def _promise(boards: dict[str, _Board], wish: Wish, now_s: float) -> float | None:
    """Keeps for the wish what will be free the earliest, and returns when; None when it waits for what cannot be promised."""
    best: tuple[float, _Board, range] | None = None
    for board in _candidates(boards, wish):
        if not board.has_memory(wish.need):
            if now_s - wish.since_s < PATIENCE_S:
                continue  # cores that wait for memory would only stand idle
            board.free_bytes = min(board.free_bytes, 0)
        for start in _starts(board.place.cores, wish.need.cores):
            group = range(start, start + wish.need.cores)
            mask = _mask(group)
            free_s = max((lease.end_s(now_s) for lease in board.leases if _mask(lease.cores) & mask), default=now_s)
            if best is None or free_s < best[0]:
                best = (free_s, board, group)
    if best is None:
        return None
    free_s, board, group = best
    board.promised_s, board.promised_cores = free_s, _mask(group)
    return free_s


def _starts(cores: int, wanted: int) -> range:
    """First cores of the groups of `wanted` cores: multiples of the next power of two."""
    if wanted < 1 or wanted > cores:
        return range(0)
    return range(0, cores - wanted + 1, 1 << (wanted - 1).bit_length())


def _mask(cores: range) -> int:
    return ((1 << len(cores)) - 1) << cores.start if cores else 0


def _hole(free: int, group: range) -> int:
    """Size of the largest free aligned block around a free group: taking from a small one leaves the large ones whole."""
    size = 1 << max(0, len(group) - 1).bit_length()
    while True:
        start = group.start // (2 * size) * (2 * size)
        block = ((1 << 2 * size) - 1) << start
        if free & block != block:
            return size
        size *= 2

"""Who starts when, and where: cores side by side, memory never overcommitted, the longest first, nobody starved."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from doesitrun.pool.schedule import PATIENCE_S, Lease, Need, Place, Wish, assign, could_fit, order

GB = 10**9
SIZES = st.sampled_from([1, 2, 3, 4, 8, 16])
NEEDS = st.builds(Need, st.one_of(st.just(0), SIZES), st.integers(0, 120).map(lambda gb: gb * GB), st.floats(0, 1000))
PLACES = st.lists(
    st.builds(Place, st.just("?"), st.integers(1, 64), st.integers(1, 200).map(lambda gb: gb * GB), st.integers(1, 3)),
    min_size=1,
    max_size=3,
)


def place(cores: int, host_bytes: int = 1 << 40, name: str = "a", helpers: int = 1) -> Place:
    return Place(name, cores, host_bytes, helpers)


def wish(key: str, cores: int, seconds: float = 1.0, **more: object) -> Wish:
    return Wish(key, Need(cores, int(more.pop("host_bytes", 0)), seconds), **more)  # type: ignore[arg-type, call-overload]


def ordered(*wishes: Wish) -> list[Wish]:
    return sorted(wishes, key=order)


def simulate(places: list[Place], wishes: list[Wish], check: Callable[[list[Lease]], None] = lambda _: None, cost_s: float = 0.0) -> float:
    """Seconds until all are done, each job lasting as long as was expected plus `cost_s`; `check` sees what runs after each start."""
    waiting, running, ends, now = ordered(*wishes), {}, [], 0.0
    while waiting or ends:
        for lease in assign(places, running.values(), waiting, now):
            running[lease.key] = lease
            heapq.heappush(ends, (now + lease.need.expected_s + cost_s, lease.key))
        waiting = [each for each in waiting if each.key not in running]
        check(list(running.values()))
        assert ends, "nothing runs, and nothing may start"
        now, key = heapq.heappop(ends)
        del running[key]
        waiting = [each for each in waiting if each.key != key]
    return now


@given(PLACES, st.lists(NEEDS, max_size=30))
def test_every_job_runs_on_aligned_cores_of_its_own_within_the_hosts_memory(found: list[Place], needs: list[Need]) -> None:
    places = [Place(f"p{number}", each.cores, each.host_bytes, each.helpers) for number, each in enumerate(found)]
    wishes = [Wish(str(number), need) for number, need in enumerate(needs) if not need.cores or could_fit(places, need)]
    ran: set[str] = set()

    def check(leases: list[Lease]) -> None:
        ran.update(lease.key for lease in leases)
        for each in places:
            here = [lease for lease in leases if lease.place == each.name]
            cores = [core for lease in here for core in lease.cores]
            assert len(cores) == len(set(cores))
            assert all(0 <= core < each.cores for core in cores)
            assert sum(lease.need.host_bytes for lease in here) <= each.host_bytes or len(here) == 1
            assert sum(not lease.need.cores for lease in here) <= each.helpers
            for lease in here:
                assert len(lease.cores) == lease.need.cores
                assert not lease.cores or lease.cores.start % (1 << (len(lease.cores) - 1).bit_length()) == 0

    simulate(places, wishes, check)
    assert ran == {each.key for each in wishes}


def test_the_longest_goes_first_and_shorter_ones_fill_the_holes() -> None:
    waiting = ordered(wish("short", 1, 1), wish("long", 4, 100), wish("middle", 4, 50), wish("small", 2, 20))
    given_now = assign([place(7)], [], waiting, 0.0)
    assert [(lease.key, lease.cores) for lease in given_now] == [("long", range(4)), ("small", range(4, 6)), ("short", range(6, 7))]


def test_a_wide_job_is_not_starved_by_narrow_ones() -> None:
    running = [Lease("a", "a", range(8), Need(8, 0, 10), 0.0), Lease("b", "a", range(8, 12), Need(4, 0, 4), 0.0)]
    waiting = ordered(wish("wide", 16, 100), wish("late", 4, 20), wish("soon", 4, 5))
    assert [lease.key for lease in assign([place(16)], running, waiting, 4.5)] == ["soon"], "late would keep the wide one waiting"


def test_narrow_jobs_take_the_smallest_hole_so_that_wide_groups_stay_whole() -> None:
    running = [Lease("a", "a", range(5, 6), Need(1, 0, 10), 0.0)]
    (lease,) = assign([place(8)], running, [wish("one", 1)], 0.0)
    assert lease.cores == range(4, 5)


def test_a_job_larger_than_the_host_runs_alone() -> None:
    """H17: jobs that were started side by side used to be killed for memory."""
    host = place(16, 64 * GB)
    waiting = ordered(
        wish("huge", 1, 100, host_bytes=90 * GB), wish("big", 1, 50, host_bytes=40 * GB), wish("other", 1, 40, host_bytes=40 * GB)
    )
    assert [lease.key for lease in assign([host], [], waiting, 0.0)] == ["huge"]
    running = [Lease("x", "a", range(1), Need(1, GB, 5), 0.0)]
    assert [lease.key for lease in assign([host], running, waiting, 0.0)] == ["big"]


def test_a_job_that_waits_too_long_for_memory_gets_what_becomes_free() -> None:
    host = place(16, 64 * GB)
    running = [Lease("x", "a", range(1), Need(1, 30 * GB, 5), 0.0)]
    waiting = ordered(wish("big", 4, 100, host_bytes=60 * GB), wish("small", 1, 1, host_bytes=10 * GB))
    assert [lease.key for lease in assign([host], running, waiting, 1.0)] == ["small"]
    assert assign([host], running, waiting, PATIENCE_S + 1.0) == []


def test_references_run_beside_the_device_and_need_no_core() -> None:
    running = [Lease("x", "a", range(4), Need(4, 0, 5), 0.0)]
    waiting = ordered(wish("reference", 0, 0, host_bytes=GB), wish("next", 4, 9))
    assert [lease.key for lease in assign([place(4)], running, waiting, 0.0)] == ["reference"]


def test_another_try_gets_other_cores_as_long_as_there_are_any() -> None:
    had = frozenset({("a", 0), ("a", 1)})
    (lease,) = assign([place(4)], [], [wish("again", 2, avoid=had)], 0.0)
    assert lease.cores == range(2, 4)
    busy = [Lease("x", "a", range(2, 4), Need(2, 0, 5), 0.0)]
    assert assign([place(4)], busy, [wish("again", 2, avoid=had)], 0.0) == [], "it waits for the other cores"
    (lease,) = assign([place(2)], [], [wish("again", 2, avoid=had)], 0.0)
    assert lease.cores == range(2), "there are no others"


def test_a_reference_goes_where_its_model_ran_while_that_place_is_there() -> None:
    places = [place(4, name="a"), place(4, name="b")]
    wanted = wish("reference", 0, 0, at="b")
    assert [lease.place for lease in assign(places, [], [wanted], 0.0)] == ["b"]
    assert [lease.place for lease in assign(places[:1], [], [wanted], 0.0)] == ["a"]


def test_two_hundred_jobs_end_within_a_tenth_of_the_lower_bound() -> None:
    for cores, seed in ((16, 0), (16, 1), (64, 2), (64, 3)):
        chance = random.Random(seed)
        jobs = [wish(str(n), chance.choice((1, 2, 4, 8, 16)), chance.uniform(0.4, 2.0)) for n in range(200)]
        bound = max(sum(job.need.cores * job.need.expected_s for job in jobs) / cores, max(job.need.expected_s for job in jobs))
        assert simulate([place(cores)], jobs) <= 1.05 * bound
        assert simulate([place(cores)], jobs, cost_s=0.05) <= 1.10 * bound


def test_five_thousand_waiting_jobs_are_passed_over_quickly() -> None:
    import time

    waiting = ordered(*(wish(str(n), (1, 2, 4, 8, 16)[n % 5], float(n % 97)) for n in range(5000)))
    running = [Lease(f"r{n}", "a", range(16 * n, 16 * n + 16), Need(16, 0, 50), 0.0) for n in range(3)]
    started = time.process_time()
    for _ in range(10):
        assign([place(64)], running, waiting, 0.0)
    assert time.process_time() - started < 1.0

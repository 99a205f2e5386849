"""Campaigns on the local pool, with toys for models: what goes wrong with one says nothing of the others, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path

import pytest
from bench.toys import Toy, run
from tests.child.toy_campaigns import Campaign, check_all_there_once, some_toys, wait_until_gone
from tests.processes import processes_in

from doesitrun.campaign.events import Began, Ended, Event, Ticked
from doesitrun.errors import WorkspaceError
from doesitrun.isolate import Limits
from doesitrun.outcomes import Reason, Result
from doesitrun.pool import LocalPool, Pool
from doesitrun.store.workspace import Workspace


def pool(cores: int = 8, host_bytes: int = 1 << 40) -> Pool:
    return LocalPool(cores, host_bytes)


def ignore(_: Event) -> None:
    return


def test_a_job_that_hangs_or_crashes_takes_nothing_with_it(tmp_path: Path) -> None:
    """H4: a stuck script used to stop the campaign. H5: a crash used to lose the results of the others."""
    toys = [Toy("hangs", 2, 0.1, "hang"), Toy("crashes", 2, 0.1, "crash"), Toy("raises", 2, 0.1, "raise"), Toy("passes", 2, 0.1)]
    events: list[Event] = []
    ran = run(toys, Workspace(tmp_path), pool(), events.append, Limits(run_s=1.5))
    assert {name: (each.result, each.reason) for name, each in ran.items()} == {
        "hangs": (Result.FAIL, Reason.TIMEOUT),
        "crashes": (Result.FAIL, Reason.CRASH),
        "raises": (Result.FAIL, Reason.PYTHON_ERROR),
        "passes": (Result.PASS, None),
    }
    assert Counter(event.model for event in events if isinstance(event, Began)) == {"hangs": 1, "crashes": 1, "raises": 1, "passes": 1}
    assert processes_in(tmp_path) == []


def test_inconclusive_ones_are_tried_twice_more_at_the_end_on_other_cores(tmp_path: Path) -> None:
    toys = [Toy("stuck", 2, 0.0, "stuck"), Toy("passes", 2, 1.5)]
    events: list[Event] = []
    run(toys, Workspace(tmp_path), pool(), events.append, Limits(start_s=2.0))
    began = [event for event in events if isinstance(event, Began) and event.model == "stuck"]
    assert [event.attempt for event in began] == [1, 2, 3]
    assert len({core for event in began for core in event.cores}) == 6
    ends = [(event.model, event.again) for event in events if isinstance(event, Ended)]
    assert ends == [("passes", False), ("stuck", True), ("stuck", True), ("stuck", False)]


def test_jobs_side_by_side_keep_within_the_hosts_memory(tmp_path: Path) -> None:
    """H17: admission by host memory; here only two jobs fit at a time, although there are cores for eight."""
    run([Toy(f"toy{n}", 1, 0.4, host_bytes=40) for n in range(6)], Workspace(tmp_path), pool(host_bytes=100), ignore)
    starts = [(path.stat().st_mtime, 1) for path in tmp_path.glob("attempts/*/1/cores")]
    ends = [(path.stat().st_mtime, -1) for path in tmp_path.glob("attempts/*/1/result.json")]
    assert len(starts) == len(ends) == 6
    assert max(accumulate(change for _, change in sorted(starts + ends))) == 2


def test_each_child_sees_its_own_cores(tmp_path: Path) -> None:
    toys = [Toy(f"toy{n}", 2, 0.3) for n in range(4)]
    space = Workspace(tmp_path)
    events: list[Event] = []
    run(toys, space, pool(), events.append)
    seen = {event.model: event.cores for event in events if isinstance(event, Began)}
    assert sorted(core for cores in seen.values() for core in cores) == list(range(8))
    for name, cores in seen.items():
        assert (tmp_path / "attempts" / name / "1" / "cores").read_text().strip() == ",".join(map(str, cores))


def test_the_listener_hears_how_it_stands(tmp_path: Path) -> None:
    events: list[Event] = []
    run(some_toys(12, seed=3, longest_s=0.6), Workspace(tmp_path), pool(), events.append)
    ticks = [event for event in events if isinstance(event, Ticked)]
    assert ticks[-1].done == 12
    assert ticks[-1].left == 0
    assert all(tick.done + tick.left == 12 and tick.busy <= tick.cores == 8 for tick in ticks)
    assert any(tick.remaining_s is not None and tick.remaining_s > 0 for tick in ticks)


def test_a_second_campaign_on_the_workspace_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, [Toy("long", 1, 3.0)])
    with campaign.start() as process:
        while not processes_in(tmp_path):
            time.sleep(0.05)
        with pytest.raises(WorkspaceError, match=rf"in use by process {process.pid} on .*, which started at 20"):
            run([Toy("other", 1, 0.0)], campaign.workspace, pool(), ignore)
        process.kill()
    run([Toy("other", 1, 0.0)], campaign.workspace, pool(), ignore)  # the dead hold nothing


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_campaign_leaves_rows_and_no_process_and_goes_on_where_it_was(tmp_path: Path, stop: int) -> None:
    toys = [*(Toy(f"short{n}", 1, 0.2) for n in range(8)), *(Toy(f"long{n}", 2, 2.0) for n in range(2))]
    campaign = Campaign(tmp_path, toys)
    with campaign.start() as process:
        while sum(row.result is Result.PASS for row in campaign.rows()) < 1 and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(stop)
        process.communicate(timeout=30)
    assert process.returncode != 0
    wait_until_gone(tmp_path)
    rows = campaign.rows()
    assert {row.reason for row in rows if row.result is not Result.PASS} == {Reason.INTERRUPTED}
    assert not [row for row in rows if row.result is None]
    with campaign.start() as process:
        out, _ = process.communicate(timeout=60)
    assert "complete" in out, campaign.log()
    check_all_there_once(campaign)


def test_an_empty_list_and_a_foreign_pool_are_refused_in_a_sentence(tmp_path: Path) -> None:
    """H15: an empty run is no run."""
    (tmp_path / "models.txt").write_text("# none yet\n")
    for arguments, says in (
        (["--models", "models.txt"], "names no model"),
        ([], "Say which models"),
        (["--selected", "3"], "There is no selection"),
        (["--models", "absent.txt"], "cannot be read"),
        (["--models", "models.txt", "--pool", "slurm"], "There is no pool 'slurm'"),
    ):
        argv = [sys.executable, "-m", "doesitrun", "campaign", *arguments, "-w", "results"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
        assert done.stderr.count("\n") == 1

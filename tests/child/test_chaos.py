"""Whatever is killed, and whenever: each row is there once at the end, and no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.child.toy_campaigns import (
    Campaign,
    check_all_there_once,
    descendants,
    ray_nodes,
    some_toys,
    tell,
    wait_until_gone,
)
from tests.processes import processes_in

LOCAL_KILLS = 14
RAY_KILLS = 16
PATIENCE_S = 60.0


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_one_of(processes: list[psutil.Process], chance: random.Random) -> bool:
    return bool(processes) and kill(chance.choice(processes).pid)


def kill_harness(campaign: Campaign) -> bool:
    process = campaign.process
    if process is None or process.poll() is not None:
        return False
    process.kill()
    process.communicate()
    campaign.start()
    return True


def workers(nodes: subprocess.Popen[str]) -> list[psutil.Process]:
    """Ray workers that run an errand."""
    found = []
    for process in descendants(nodes.pid):
        with suppress(psutil.Error):
            if process.name().startswith("ray::") and process.children():
                found.append(process)
    return found


def run_to_the_end(campaign: Campaign) -> None:
    """Starts it until it says that it is complete; what was killed too often is then tried anew."""
    for _ in range(3):
        process = campaign.process
        assert process is not None
        out, _ = process.communicate(timeout=PATIENCE_S)
        if (
            process.returncode == 0
            and "complete" in out
            and len({row.plan_id for row in campaign.rows() if row.result == "PASS"}) == len(campaign.toys)
        ):
            return
        campaign.start()
    raise AssertionError(campaign.log())


def test_killed_harness_and_children_lose_nothing_and_run_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(11)
    campaign = Campaign(tmp_path, some_toys(56, seed=1))
    campaign.start()
    kills: Counter[str] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while kills.total() < LOCAL_KILLS:
        assert time.monotonic() < deadline, kills
        time.sleep(chance.uniform(0.1, 0.7))
        if chance.random() < 0.25:
            kills["harness"] += bool(processes_in(tmp_path)) and kill_harness(campaign)
        else:
            assert campaign.process is not None
            kills["child"] += kill_one_of(descendants(campaign.process.pid), chance)
    run_to_the_end(campaign)
    wait_until_gone(tmp_path)
    check_all_there_once(campaign)
    assert kills["harness"] > 1
    with capsys.disabled():
        print(f"\n  local pool: {kills.total()} kills, {dict(kills)}; {len(campaign.toys)} toys, {len(campaign.rows())} attempts")


def test_killed_ray_workers_and_a_lost_node_lose_nothing_and_run_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(12)
    with ray_nodes(tmp_path) as nodes:
        campaign = Campaign(tmp_path, some_toys(44, seed=2), nodes.address)  # type: ignore[attr-defined]
        campaign.start()
        kills: Counter[str] = Counter()
        deadline = time.monotonic() + PATIENCE_S
        while kills.total() < RAY_KILLS:
            assert time.monotonic() < deadline, (kills, campaign.log())
            time.sleep(chance.uniform(0.1, 0.5))
            if not processes_in(tmp_path):
                continue
            if kills.total() >= RAY_KILLS // 2 and not kills["node"]:
                tell(nodes, "lose")
                kills["node"] += 1
            elif chance.random() < 0.1:
                kills["harness"] += kill_harness(campaign)
            elif chance.random() < 0.5:
                kills["worker"] += kill_one_of(workers(nodes), chance)
            else:
                kills["child"] += kill_one_of(processes_in(tmp_path), chance)
        run_to_the_end(campaign)
        wait_until_gone(tmp_path)
        check_all_there_once(campaign)
        cluster = descendants(nodes.pid)
    _, alive = psutil.wait_procs(cluster, timeout=10)
    assert alive == []
    assert kills["worker"] > 1
    with capsys.disabled():
        print(f"\n  Ray, 3 nodes: {kills.total()} kills, {dict(kills)}; {len(campaign.toys)} toys, {len(campaign.rows())} attempts")

"""Models come while others run, and finished ones make room; a download that fails is a row, not the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from doesitrun.campaign import downloads
from doesitrun.campaign.downloads import Downloads, Fetch
from doesitrun.campaign.working import Item
from doesitrun.errors import StackError
from doesitrun.outcomes import Outcome, Reason, Result
from doesitrun.pool import HERE, Need
from doesitrun.records import Row

GB = 10**9


class Hub:
    """A pretended Hub: what was fetched and dropped, in order; `gate` holds fetches back."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.dropped: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.answers: dict[str, Mapping[str, Any] | Exception] = {}

    def fetch(self, fetch: Fetch, _: object) -> Mapping[str, Any]:
        assert self.gate.wait(5)
        self.fetched.append(fetch.model)
        answer = self.answers.get(fetch.model, {"bytes": fetch.size_bytes, "was_there": False, "problem": None, "detail": ""})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def drop(self, model: str, _: str) -> int:
        self.dropped.append(model)
        return 1


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub()
    monkeypatch.setattr(Downloads, "_fetched", lambda self, fetch, environment: found.fetch(fetch, environment))
    monkeypatch.setattr(downloads.cache, "drop", found.drop)
    return found


def item(name: str, seconds: float) -> Item:
    return Item(name, name, Need(1, 0, seconds), lambda seat, watch: Row(result=Result.PASS))


def failed(outcome: Outcome) -> Row:
    return Row(result=outcome.result, reason=outcome.reason, error=outcome.detail)


Supply = Callable[..., Downloads]


@pytest.fixture
def supply(hub: Hub, tmp_path: Path) -> Iterator[Supply]:
    opened: list[Downloads] = []

    def call(sizes: Mapping[str, int], limit_gb: int | None = None, local: tuple[str, ...] = ()) -> Downloads:
        items = [item(name, seconds=size) for name, size in sizes.items()] + [item(name, 1) for name in local]
        fetches = {name: Fetch(name, "abc", size * GB, code=False, fail=failed) for name, size in sizes.items()}
        opened.append(Downloads(items, fetches, tmp_path, None if limit_gb is None else limit_gb * GB))
        return opened[-1]

    yield call
    hub.gate.set()
    for each in opened:
        each.close()


def wait_for(supply: Downloads, count: int) -> list[Item]:
    found: list[Item] = []
    deadline = time.monotonic() + 5
    while len(found) < count:
        assert time.monotonic() < deadline, [each.key for each in found]
        found += supply.ready()
        time.sleep(0.01)
    return found


def test_what_is_on_the_disk_need_not_wait(hub: Hub, supply: Supply) -> None:
    hub.gate.clear()
    found = supply({"org/a": 1}, local=("local/b",))
    assert [each.key for each in found.ready()] == ["local/b"]
    hub.gate.set()
    assert [each.key for each in wait_for(found, 1)] == ["org/a"]


def test_the_longest_and_the_shortest_come_first(hub: Hub, supply: Supply) -> None:
    hub.gate.clear()
    found = supply({f"org/{size}": size for size in (3, 1, 5, 2, 4)})
    hub.gate.set()
    assert len(wait_for(found, 5)) == 5
    assert set(hub.fetched[:2]) == {"org/1", "org/5"}
    assert hub.dropped == []


def test_finished_models_make_room_under_the_limit(hub: Hub, supply: Supply, tmp_path: Path) -> None:
    found = supply({"org/6": 6, "org/4": 4, "org/3": 3}, limit_gb=9)
    first = {each.key for each in wait_for(found, 2)}
    assert first == {"org/6", "org/3"}
    time.sleep(0.1)
    assert found.ready() == []
    assert json.loads((tmp_path / downloads.NOTE).read_text()) == {"org/6@abc": 6 * GB, "org/3@abc": 3 * GB}
    found.finished("org/3", settled=False)  # it will be tried again, so it stays
    time.sleep(0.1)
    assert hub.dropped == []
    found.finished("org/6", settled=True)
    assert [each.key for each in wait_for(found, 1)] == ["org/4"]
    assert hub.dropped == ["org/6"]


def test_a_model_larger_than_the_limit_comes_alone(hub: Hub, supply: Supply) -> None:
    found = supply({"org/20": 20, "org/1": 1}, limit_gb=10)
    (one,) = wait_for(found, 1)
    time.sleep(0.1)
    assert found.ready() == []
    found.finished(one.key, settled=True)
    (other,) = wait_for(found, 1)
    assert {one.key, other.key} == {"org/20", "org/1"}
    assert hub.dropped == [one.key]


def test_what_an_earlier_campaign_downloaded_is_dropped_first_and_what_the_user_had_never(hub: Hub, supply: Supply, tmp_path: Path) -> None:
    (tmp_path / downloads.NOTE).write_text(json.dumps({"org/old@abc": 9 * GB}))
    hub.answers["org/mine"] = {"bytes": 5 * GB, "was_there": True, "problem": None, "detail": ""}
    found = supply({"org/mine": 5}, limit_gb=10)
    wait_for(found, 1)
    found.finished("org/mine", settled=True)
    assert hub.dropped == ["org/old"]
    assert json.loads((tmp_path / downloads.NOTE).read_text()) == {}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"bytes": 0, "was_there": False, "problem": "throttled", "detail": "Slow down."}, Reason.HUB_THROTTLED),
        ({"bytes": 0, "was_there": False, "problem": "gated", "detail": "Refused."}, Reason.GATED),
        (StackError("fetch took longer than 600 s"), Reason.HUB_ERROR),
    ],
)
def test_a_failed_download_becomes_the_models_row(answer: Any, reason: Reason, hub: Hub, supply: Supply) -> None:
    hub.answers["org/a"] = answer
    (found,) = wait_for(supply({"org/a": 1}, limit_gb=10), 1)
    assert found.need.cores == 0
    row = found.run(HERE, lambda _: None)
    assert (row.result, row.reason) == (reason.result, reason)

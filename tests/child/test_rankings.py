"""Rankings from the stand-in Hub through the real client: the Hub's faults are waited out, its limits kept, and nothing is made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import shared_data
from tests.hub_server import OWNER, TOKEN, Fault, Hub, Quota, html, too_many
from tests.hub_server.corpus import fill

from doesitrun.errors import HubError
from doesitrun.hub import rankings, traffic
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.hub.repository import HubThrottledError, open_checkpoint
from doesitrun.hub.traffic import Traffic
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Refusal
from doesitrun.store.snapshots import read_forecasts, read_ranking

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 256,
}
LISTING = "/api/models"


def model(hub: Hub, name: str, config: dict[str, Any] | None = None, weights: str = "model.safetensors", **info: Any) -> None:
    files = {"config.json": json.dumps(LLAMA if config is None else config).encode(), weights: None}
    hub.add("model", name, files, **{"pipeline_tag": "text-generation", **info})


def popular(hub: Hub, count: int) -> list[str]:
    """Toy models of falling popularity, in pages of three."""
    hub.page = 3
    names = [f"org/m{number}" for number in range(count)]
    for number, name in enumerate(names):
        model(hub, name, downloads=1000 - number)
    return names


class Waits(Traffic):
    """Traffic that notes its waits, and does not take the time."""

    def __init__(self, **values: Any) -> None:
        self.pauses: list[float] = []
        self.now = 0.0
        super().__init__(sleep=self.pause, clock=lambda: self.now, **values)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def listed(hub: Hub, waits: Traffic, top: int = 7) -> list[str]:
    with waits.governed():
        return [each.ranked.model_id for each in rankings.take("text-generation", "downloads", top)]


@pytest.mark.parametrize(
    ("fault", "pauses"),
    [
        (too_many(7, path=LISTING, skip=1), [7.0]),
        (Fault(LISTING, skip=1, times=2, status=500), [1.0, 2.0]),
        (Fault(LISTING, skip=1, status=503, headers={"Retry-After": "3"}), [3.0]),
        (Fault(LISTING, skip=1, cut_after=20), [1.0]),
        (Fault(LISTING, skip=1, wait_s=2.0), [1.0]),
        (Fault(LISTING, skip=1, status=307, headers={"Location": "/api/models?pipeline_tag=text-generation&sort=downloads&cursor=3"}), []),
    ],
    ids=["429", "500", "503", "cut", "slow", "redirect"],
)
def test_a_fault_between_pages_is_waited_out_and_no_page_is_read_twice(
    real_client: Hub, monkeypatch: pytest.MonkeyPatch, fault: Fault, pauses: list[float]
) -> None:
    if fault.wait_s:
        monkeypatch.setattr(traffic, "TIMEOUT_S", 1.0)
    names = popular(real_client, 9)
    real_client.fail(fault)
    waits = Waits()
    assert listed(real_client, waits) == names[:7]
    assert waits.pauses == pauses
    cursors = [asked.query.get("cursor", ["0"])[0] for asked in real_client.asked]
    assert [cursors.count(cursor) for cursor in ("0", "6")] == [1, 1]


def test_the_budget_is_kept_so_that_the_hub_never_has_to_refuse(real_client: Hub) -> None:
    names = popular(real_client, 9)
    real_client.quota = Quota(2, 0.4)
    waits = Traffic(budget=2, window_s=0.5)
    assert listed(real_client, waits, 9) == names
    assert (real_client.quota.refused, waits.asked) == (0, 3)
    assert waits.waited_s > 0.3


def test_a_quota_that_others_have_used_up_is_waited_for_as_long_as_the_hub_says(real_client: Hub) -> None:
    names = popular(real_client, 3)
    used_up = {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
    real_client.fail(Fault(LISTING, status=429, headers=used_up))
    waits = Waits()
    assert listed(real_client, waits) == names
    assert waits.pauses == [55.0]


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (too_many(1, path=LISTING, times=99), HubThrottledError, "asked us to slow down"),
        (too_many(4000, path=LISTING), HubThrottledError, "wait 4000 seconds"),
        (Fault(LISTING, times=99, status=502), HubError, "failed 6 times in a row (502)"),
        (html(path=LISTING), HubError, "is no JSON"),
        (Fault(LISTING, times=99, loop=True), HubError, "goes round in circles"),
        (Fault(LISTING, times=1, loop=True), HubError, "repeats itself"),
        (Fault(LISTING, status=401, headers={"X-Error-Message": "Invalid credentials in Authorization header"}), HubError, "HF_TOKEN"),
    ],
    ids=["429 for ever", "429 for an hour", "502 for ever", "html", "pagination loop", "a page twice", "bad token"],
)
def test_a_hub_that_stays_broken_is_one_sentence(real_client: Hub, fault: Fault, kind: type[HubError], said: str) -> None:
    popular(real_client, 4)
    real_client.fail(fault)
    with pytest.raises(HubError) as failed:
        listed(real_client, Waits(), 5000)
    assert (type(failed.value), said in str(failed.value)) == (kind, True), failed.value


def test_a_loop_of_empty_pages_ends_too(real_client: Hub) -> None:
    real_client.fail(Fault(LISTING, times=10**6, loop=True))
    with pytest.raises(HubError, match="round in circles"):
        listed(real_client, Waits(budget=10**9))


def test_what_the_listing_says_is_in_the_line(real_client: Hub) -> None:
    tags = ["base_model:org/base", "base_model:quantized:org/base"]
    counted = {"parameters": {"BF16": 12}, "total": 12}
    model(real_client, "org/m", downloads=5, likes=3, trendingScore=7, tags=tags, safetensors=counted, gated="auto", library_name="peft")
    with Waits().governed():
        (found,) = rankings.take("text-generation", "trending", 10)
    line = found.ranked
    assert (line.model_id, line.task, line.by, line.rank) == ("org/m", "text-generation", "trending", 1)
    assert (line.downloads, line.likes, line.trending_score, line.gated, line.library, line.parameters) == (5, 3, 7.0, "auto", "peft", 12)
    assert (line.architecture, line.model_type) == ("LlamaForCausalLM", "llama")
    assert (line.base_model, line.base_relation) == ("org/base", "quantized")
    assert line.sha == real_client.repos["model", "org/m"].head.sha
    (asked,) = real_client.asked
    assert asked.token == TOKEN


def answers(hub: Hub) -> dict[str, Checkpoint | Refusal]:
    with Waits().governed():
        return rankings.read_all(rankings.take("text-generation", "downloads", 50), lambda _: None)


def test_a_config_is_read_once_and_kept_for_the_next_day(real_client: Hub) -> None:
    names = popular(real_client, 5)
    first = answers(real_client)
    assert set(first) == set(names)
    assert all(isinstance(each, Checkpoint) and each.has_weights for each in first.values())
    before = len(real_client.asked)
    assert answers(real_client) == first
    assert {asked.path for asked in real_client.asked[before:]} == {LISTING}


def test_who_may_not_read_a_gated_model_is_told_before_anything_is_queued(real_client: Hub) -> None:
    model(real_client, "org/auto", gated="auto", downloads=9)
    model(real_client, "org/open", downloads=8)
    found = answers(real_client)
    shut = found["org/auto"]
    assert isinstance(shut, Refusal)
    assert (shut.reason, shut.reason.result) == (Reason.GATED, Result.EXCLUDED)
    assert "licence" in shut.detail
    assert "HF_TOKEN" in shut.detail
    real_client.grants[TOKEN] = {"org/auto"}
    granted = answers(real_client)["org/auto"]
    assert isinstance(granted, Checkpoint)
    assert granted.gated


def test_a_model_that_became_private_since_it_was_listed_is_told_so(real_client: Hub) -> None:
    model(real_client, "org/gone")
    with Waits().governed():
        (found,) = rankings.take("text-generation", "downloads", 5)
        real_client.repos["model", "org/gone"].private = True
        answer = rankings.read(found)
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.reason.result) == (Reason.PRIVATE, Result.EXCLUDED)


@pytest.mark.parametrize("status", [429, 500])
def test_a_throttled_or_failing_hub_is_never_a_model_without_a_config(
    real_client: Hub, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    model(real_client, "org/m")
    real_client.fail(Fault(r"/org/m/resolve/.*", times=99, status=status, headers={"Retry-After": "1"}))
    with pytest.raises(HubError, match=f"({status})") as failed:
        open_checkpoint("org/m")
    assert isinstance(failed.value, HubThrottledError) == (status == 429)


def test_one_model_that_the_hub_fails_for_does_not_stop_the_others(real_client: Hub) -> None:
    names = popular(real_client, 4)
    real_client.fail(Fault(r"/org/m1/resolve/.*", times=99, status=500))
    found = answers(real_client)
    assert set(found) == set(names)
    failed = found["org/m1"]
    assert isinstance(failed, Refusal)
    assert (failed.reason, failed.reason.result) == (Reason.HUB_ERROR, Result.INCONCLUSIVE)


def test_a_hub_that_fails_for_all_is_given_up(real_client: Hub) -> None:
    popular(real_client, 12)
    real_client.fail(Fault(r"/org/.*/resolve/.*", times=10**6, status=500))
    with pytest.raises(HubError, match="10 models in a row"):
        answers(real_client)


@pytest.mark.parametrize("fault", [Fault(r"/org/m/resolve/.*", cut_after=10), Fault(r"/org/m/resolve/.*", skip=1, add_to_length=-5)])
def test_a_config_that_was_cut_off_is_never_taken_for_the_whole(real_client: Hub, fault: Fault) -> None:
    model(real_client, "org/m")
    real_client.fail(fault)
    found = answers(real_client)["org/m"]
    assert isinstance(found, Refusal) or found.config == LLAMA
    assert not isinstance(found, Refusal) or found.reason is Reason.HUB_ERROR


# ---------------------------------------------------------------------------------- the command
def command(hub: Hub, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | hub.environment(tmp_path / "hf") | {"COLUMNS": "150"}
    argv = [sys.executable, "-m", "doesitrun", *arguments]
    done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return done


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "org/dense": ({}, {"downloads": 90}, None),
    "org/huge": ({"num_hidden_layers": 400, "hidden_size": 16384, "intermediate_size": 65536}, {"downloads": 80}, "too_large"),
    "org/coded": ({"model_type": "own", "auto_map": {"AutoConfig": "c.C"}}, {"downloads": 70}, "remote_code"),
    "org/unknown": ({"model_type": "of-tomorrow"}, {"downloads": 60}, "unknown_architecture"),
    "org/gated": ({}, {"downloads": 50, "gated": "manual"}, "gated"),
    "org/packed": ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, {"downloads": 40}, "quantization"),
}


def test_every_ranked_model_is_planned_or_has_its_reason_and_every_one_is_selected_or_not(hub: Hub, tmp_path: Path) -> None:
    for name, (change, info, _) in KINDS.items():
        model(hub, name, LLAMA | change, **info)
    model(hub, "org/pickled", weights="pytorch_model.bin", downloads=30)
    model(hub, f"{OWNER}/secret", private=True, downloads=99)
    reasons = {name: reason for name, (_, _, reason) in KINDS.items()} | {"org/pickled": "pickle_weights"}
    done = command(hub, tmp_path, "rank", "--task", "text-generation", "--top", "20", "--json")
    assert done.returncode == 0, done.stderr
    assert f"{OWNER}/secret is private" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 2 * len(reasons)
    assert {line["model_id"]: line["plans"]["neuron"]["reason"] for line in lines} == reasons
    day, ranked = read_ranking(tmp_path / "results")
    assert [line.model_id for line in ranked if line.by == "downloads"] == list(reasons)
    for target in ("neuron", "cuda", "cpu"):
        forecasts = {line.model_id: line for line in read_forecasts(tmp_path / "results", target, day)}
        assert forecasts.keys() == reasons.keys()
        dense = forecasts["org/dense"]
        assert (dense.outcome, dense.cores, dense.architecture) == ("plan", 1, "LlamaForCausalLM")
        assert 1 in (dense.sizes or [])
        assert all(line.detail for line in forecasts.values() if line.outcome == "excluded")
    chosen = command(hub, tmp_path, "select", "--json")
    rows = {row["model_id"]: row for row in map(json.loads, chosen.stdout.splitlines())}
    assert {name: row["reason"] for name, row in rows.items()} == reasons
    shown = command(hub, tmp_path, "select")
    assert "7 models = 1 chosen + 6 excluded" in shown.stdout


def test_the_corpus_ranks_and_selects_without_a_stack(hub: Hub, tmp_path: Path) -> None:
    count = fill(hub, shared_data())
    hub.page = 40
    done = command(hub, tmp_path, "rank", "--no-plans", "--top", "200")
    assert done.returncode == 0, done.stderr
    assert count > 500
    _, ranked = read_ranking(tmp_path / "results")
    tops = {(line.task, line.by): line.model_id for line in ranked if line.rank == 1}
    assert tops["image-text-to-text", "trending"] == "Qwen/Qwen3.8-27B"
    assert any(line.base_model == "Qwen/Qwen2.5-7B" for line in ranked)
    selected = command(hub, tmp_path, "select", "--count", "30", "--json")
    rows = [json.loads(line) for line in selected.stdout.splitlines()]
    assert len(rows) == len({line.model_id for line in ranked})
    assert sum(row["chosen"] for row in rows) == 30
    assert all(row["detail"] for row in rows)

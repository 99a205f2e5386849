"""Graphs in S3: moto's server, a process of its own on loopback, reached by s3fs and by AWS' own command line."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pure.graph_cases import MODEL, OTHER_PLAN, PAIR, PLAN_2, filled, manifest, neff

from doesitrun import graphs
from doesitrun.campaign import sharing
from doesitrun.errors import GraphStoreError
from doesitrun.graphs import LocalGraphs
from doesitrun.graphs.folder import scan
from doesitrun.graphs.stores import Upload
from doesitrun.graphs.transfer import entry_name
from doesitrun.store.workspace import Workspace

pytest.importorskip("s3fs", reason="SKIPPED: S3 needs s3fs, which pip install 'doesitrun[s3]' brings")
pytest.importorskip("moto", reason="SKIPPED: the stand-in for S3 is moto[server]")


@pytest.fixture(scope="module")
def requests_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """moto's log, a line per request, while its server runs and the environment points there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as file:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=file, stderr=file)
    own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    own |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "2"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        try:
            _wait_for(port)
            yield log
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    message = "moto's server did not start within 30 s"
    raise TimeoutError(message)


@pytest.fixture
def url(requests_log: Path, tmp_path: Path) -> str:
    """A prefix of a fresh bucket."""
    import s3fs

    name = re.sub(r"[^a-z0-9]", "-", tmp_path.name.lower())[-40:].strip("-")
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return f"s3://{name}/graphs"


def puts(log: Path) -> int:
    return len(re.findall(r'"[^"]*PUT /\S+/entries/', log.read_text()))


def test_graphs_go_through_s3_and_ten_new_entries_are_ten_requests(url: str, requests_log: Path, tmp_path: Path) -> None:
    here, there = Workspace(tmp_path / "a"), Workspace(tmp_path / "b")
    local = LocalGraphs(here.root / "graphs")
    local.keep(manifest(filled(local.cache(PAIR), range(100)), range(100)))
    before = puts(requests_log)
    (done,) = sharing.push(url, here, [], lambda _: None)
    assert done.uploaded == puts(requests_log) - before == 100
    local.keep(manifest(filled(local.cache(PAIR), range(110)), range(110), PLAN_2))
    before = puts(requests_log)
    (done,) = sharing.push(url, here, [], lambda _: None)
    assert done.uploaded == puts(requests_log) - before == 10
    found = sharing.pull(url, there, PAIR, [MODEL], lambda _: None)
    assert (found.fetched, len(found.manifests), found.problems) == (110, 2, ())
    other = LocalGraphs(there.root / "graphs").cache(PAIR)
    assert {name: (other / name).read_bytes() for name in scan(other)} == {
        name: (local.cache(PAIR) / name).read_bytes() for name in scan(local.cache(PAIR))
    }
    (line,) = sharing.status(there, url)
    assert (line.plans_there, line.entries_there, line.to_push, line.to_pull) == (2, 110, 0, 0)


def test_s3_refuses_to_overwrite_what_another_writer_stored_meanwhile(url: str, tmp_path: Path) -> None:
    store = graphs.open_store(url)
    assert store.add([Upload("x/entries/a", b"first")], lambda: None) == []
    assert store.add([Upload("x/entries/a", b"second"), Upload("x/entries/b", b"new")], lambda: None) == ["x/entries/a"]
    assert store.read(["x/entries/a", "x/entries/b", "x/entries/gone"]) == {"x/entries/a": b"first", "x/entries/b": b"new"}


def test_large_files_are_sent_in_parts_and_refused_alike(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doesitrun.graphs.stores._LARGE_BYTES", 10)
    (tmp_path / "large").write_bytes(b"x" * 1000)
    store = graphs.open_store(url)
    assert store.add([Upload("x/entries/a", tmp_path / "large")], lambda: None) == []
    assert store.add([Upload("x/entries/a", tmp_path / "large")], lambda: None) == ["x/entries/a"]
    assert store.read(["x/entries/a"]) == {"x/entries/a": b"x" * 1000}


def test_a_hash_that_does_not_match_and_a_gone_entry_are_named(url: str, tmp_path: Path) -> None:
    store, here = graphs.open_store(url), filled(tmp_path / "a", range(4))
    graphs.push(store, here, [manifest(here, range(4))])
    store.replace([Upload(entry_name(PAIR, neff(1)), b"tampered".ljust(100))])
    store.remove([entry_name(PAIR, neff(2))])
    there = graphs.shelf(store, PAIR)
    found = graphs.pull(store, there, list(there.manifests.values()), tmp_path / "b")
    assert (found.fetched, found.manifests) == (2, ())
    told = sorted(found.problems, key=lambda problem: "is gone" in problem)
    assert ("does not have the hash" in told[0], "is gone" in told[1], len(told)) == (True, True, 2)
    assert graphs.prune(store, 1, time.time() + 10**6).removed == ()


def test_a_bucket_that_is_gone_or_a_server_that_is_down_is_one_sentence(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphStoreError, match=r"is not there .*create the bucket"):
        graphs.open_store("s3://no-such-bucket/graphs").files()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(GraphStoreError, match="check the address, the network"):
        graphs.open_store(url).files()


@pytest.mark.skipif(shutil.which("aws") is None, reason="SKIPPED: AWS' command line is not installed")
def test_the_printed_line_copies_a_cache_folder_with_awss_own_command(url: str, tmp_path: Path) -> None:
    here = filled(tmp_path / "a", range(30))
    graphs.push(graphs.open_store(url), here, [manifest(here, range(30)), manifest(here, range(3), OTHER_PLAN, model="org/other")])
    for model, count in ((MODEL, 30), ("org/other", 3)):
        place = tmp_path / model.replace("/", "-")
        place.mkdir()
        line = sharing.copy_line(url, model, PAIR).copy
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(["/bin/sh", "-c", line], cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert set(scan(place / "neff_cache")) == {neff(number) for number in range(count)}

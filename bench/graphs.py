"""What published graphs save: the real 135M model, cold, then in fresh workspaces with its graphs pulled from two kinds of store.

Cold and warm run in one go, each in a workspace and a temporary folder of its own, so that nothing but the store links
them. The compile phase is the first pass less the second one, as each row has it. S3 is moto's server, a process of its
own on loopback: it speaks the protocol to s3fs and boto without an account, and refuses conditional writes as S3 does.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import CACHE
from tests.pure.graph_cases import PAIR, PLAN_2, filled, manifest

from bench import report
from doesitrun import graphs, isolate
from doesitrun.campaign import sharing
from doesitrun.graphs import LocalGraphs
from doesitrun.stacks import INSTACK
from doesitrun.store.workspace import Workspace

MANY = range(1000, 11_000)
NEW = range(11_000, 11_010)
MEANINGS = {
    "folder_ratio": "compile phase, cold over warm with graphs pulled from a folder",
    "s3_ratio": "the same, pulled from an S3-compatible server",
    "entries": "files that the model's graphs are",
    "megabytes": "of which size",
    "status_10000_s": "`graphs status` of a workspace and a store with 10,000 entries each",
    "incremental_uploads": "files uploaded by a push with 10 new entries among them",
    "incremental_push_s": "and its seconds",
}


def doesitrun(*arguments: object, tmp: Path, **variables: str) -> Any:
    """The command's JSON, in a temporary folder of its own; the compiler's own caches elsewhere are thereby cold, too."""
    tmp.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "doesitrun", *map(str, arguments), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp), **variables})
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


@contextmanager
def s3_server() -> Iterator[str]:
    """The URL of a bucket of moto's server, which the environment then points to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    os.environ.update(own, AWS_DEFAULT_REGION="us-east-1")
    try:
        import s3fs

        for _ in range(300):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("graphs")
        yield "s3://graphs/public"
    finally:
        server.terminate()
        server.wait()


def measured(checkpoint: Path, url: str, cold: dict[str, Any], root: Path) -> dict[str, Any]:
    """A push to the store, and a test in a fresh workspace that pulls from there."""
    started = time.monotonic()
    doesitrun("graphs", "push", url, "-w", root / "cold", tmp=root / "tmp-push")
    push_s = time.monotonic() - started
    fresh = root / url.partition(":")[0].replace("/", "-").strip("-")[-20:] / "at" / "another" / "path"
    fresh.mkdir(parents=True)
    shutil.copytree(root / "cold" / "references", fresh / "references")  # the CPU's answer is not what is measured
    warm = doesitrun("test", checkpoint, "--cores", 1, "--graphs", url, "-w", fresh, tmp=fresh / "tmp")
    assert warm["result"] == cold["result"] == "PASS", (cold, warm)
    assert warm["output_tokens"] == cold["output_tokens"]
    figures = {"cold_compile_s": cold["compile_s"], "warm_compile_s": warm["compile_s"], "ratio": cold["compile_s"] / warm["compile_s"]}
    return {**figures, "hits": warm["graph_hits"], "misses": warm["graph_misses"], "push_s": push_s}


def many(root: Path) -> dict[str, float]:
    """Status and an incremental push with 10,000 entries."""
    workspace, url = Workspace(root / "many"), str(root / "many-store")
    local = LocalGraphs(workspace.root / "graphs")
    local.keep(manifest(filled(local.cache(PAIR), MANY), MANY))
    sharing.push(url, workspace, [], lambda _: None)
    started = time.monotonic()
    sharing.status(workspace, url)
    status_s = time.monotonic() - started
    local.keep(manifest(filled(local.cache(PAIR), NEW), NEW, PLAN_2))
    started = time.monotonic()
    (done,) = sharing.push(url, workspace, [], lambda _: None)
    return {"status_10000_s": status_s, "incremental_uploads": done.uploaded, "incremental_push_s": time.monotonic() - started}


def main() -> None:
    checkpoint = CACHE / "checkpoints" / "SmolLM2-135M-Instruct"
    if not checkpoint.exists():
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        isolate.run_script(INSTACK / "demo_checkpoint.py", sys.executable, {"folder": str(checkpoint)}, CACHE / "scripts" / "unpack")
    with tempfile.TemporaryDirectory() as folder, s3_server() as s3:
        root = Path(folder)
        cold = doesitrun("test", checkpoint, "--cores", 1, "-w", root / "cold", tmp=root / "tmp-cold")
        assert (cold["graph_hits"], cold["graph_misses"]) == (0, cold["graphs"]), cold
        stores = {name: measured(checkpoint, url, cold, root) for name, url in (("folder", str(root / "store")), ("s3", s3))}
        local = LocalGraphs(root / "cold" / "graphs")
        (made,) = local.manifests(local.pairs()[0]).values()
        figures: dict[str, Any] = {"stores": stores, "entries": len(made.entries), "megabytes": made.size / 1e6}
        figures |= {f"{name}_ratio": each["ratio"] for name, each in stores.items()} | many(root)
    figures["pair"] = str(made.pair)
    assert all(each["misses"] == 0 for each in stores.values()), stores
    report.write("graphs", figures, MEANINGS)
    for name, each in stores.items():
        print(name, {key: round(value, 2) for key, value in each.items()})
    print(graphs.sentence(stores["folder"]["hits"], stores["folder"]["misses"]))


if __name__ == "__main__":
    main()

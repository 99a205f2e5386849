"""The other doors of the app: HTTP API, MCP tools, badges, feed, files, new data, an exported Space."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doesitrun.store.table import to_parquet
from tests.browser import published
from tests.browser.conftest import free_port, started, stopped, wait_for

PAIR_TEXTS = [f"neuron/neuronx-cc-{compiler}/transformers-{library}" for compiler, library in published.PAIRS]


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


# ---------------------------------------------------------------------------------- programs and agents
@pytest.fixture(scope="module")
def client(server: str) -> Iterator[Any]:
    made = pytest.importorskip("gradio_client").Client(server, verbose=False)
    yield made
    made.close()


def test_a_gradio_client_looks_models_up(client: Any) -> None:
    found = client.predict(text="qwen3-1", result="PASS", api_name="/lookup")
    assert {line["model_id"] for line in found["lines"]} <= {"Qwen/Qwen3-1.7B", "Qwen/Qwen3-14B"}
    assert {line["result"] for line in found["lines"]} == {"PASS"}
    assert client.predict("Qwen/Qwen3-4B", api_name="/model")["run_py"] == next(
        r.run_py for r in published.rows(2) if r.model_id == "Qwen/Qwen3-4B"
    )
    compared = client.predict(*PAIR_TEXTS[1:], api_name="/compare")
    assert sum(compared["counts"].values()) >= len(published.rows(1))
    forecast = client.predict("newcomer/Model-9B", "neuron", api_name="/forecast")
    assert forecast["is_result"] is False
    assert forecast["forecasts"][0]["cores"] == 2


def test_an_error_of_the_api_says_what_is_wrong(client: Any) -> None:
    with pytest.raises(Exception, match="no/such"):
        client.predict("no/such-model", api_name="/model")


def test_the_endpoints_are_documented(client: Any, server: str) -> None:
    endpoints = json.loads(read(f"{server}/gradio_api/info"))["named_endpoints"]
    assert set(endpoints) == {"/lookup", "/model", "/compare", "/forecast"}
    assert all(each["description"] for each in endpoints.values())
    assert "data" not in {parameter["parameter_name"] for each in endpoints.values() for parameter in each["parameters"]}


def test_an_mcp_client_finds_and_calls_the_tools(server: str) -> None:
    pytest.importorskip("mcp", reason="SKIPPED: mcp is not installed")
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def talk() -> tuple[dict[str, Any], dict[str, Any]]:
        async with (
            streamable_http_client(f"{server}/gradio_api/mcp/") as (incoming, outgoing, _),
            ClientSession(incoming, outgoing) as session,
        ):
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            called = await session.call_tool("lookup", {"text": "qwen3-4b"})
            asked = await session.call_tool("forecast", {"model_id": "newcomer/Model-9B"})
            return tools, {"lookup": called, "forecast": asked}

    tools, answers = asyncio.run(talk())
    assert set(tools) == {"lookup", "model", "compare", "forecast"}
    assert "Any part of the model's name" in tools["lookup"].inputSchema["properties"]["text"]["description"]
    assert json.loads(answers["lookup"].content[0].text)["lines"][0]["model_id"] == "Qwen/Qwen3-4B"
    assert json.loads(answers["forecast"].content[0].text)["is_result"] is False


# ---------------------------------------------------------------------------------- files
def test_a_badge_is_an_svg_and_a_line_of_markdown(server: str) -> None:
    badge = read(f"{server}/badge/Qwen/Qwen3-4B.svg?target=neuron&compiler={published.PAIRS[2][0]}")
    assert ET.fromstring(badge).tag.endswith("svg")
    assert "pass on 1 core" in badge
    assert "not tested" in read(f"{server}/badge/newcomer/Model-9B.svg")
    markdown = re.search(r'id="badge-markdown"[^>]*>(.*?)</pre>', read(f"{server}/?model=Qwen/Qwen3-4B"))
    assert markdown
    image = re.search(r"\((http[^)]+\.svg[^)]*)\)", markdown[1].replace("&amp;", "&"))
    assert image
    assert "<svg" in read(image[1])


def test_a_badge_of_a_hostile_name_is_still_one_svg(server: str) -> None:
    badge = read(f"{server}/badge/{urllib.parse.quote(published.HOSTILE)}.svg")
    assert {each.tag.rpartition("}")[2] for each in ET.fromstring(badge).iter()} <= {"svg", "title", "clipPath", "rect", "g", "text"}


def test_the_feed_is_atom_with_the_changes(server: str) -> None:
    root = ET.fromstring(read(f"{server}/changes.atom?target=neuron"))
    assert root.tag == "{http://www.w3.org/2005/Atom}feed"
    assert len(root.findall("{http://www.w3.org/2005/Atom}entry")) > 5


@pytest.mark.parametrize("address", ["/run.py?model=no/such", "/run.py", "/badge/no/such.svg", "/look/../server.py", "/look/x"])
def test_what_is_not_there_is_404(server: str, address: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        read(server + address)
    raised.value.close()
    assert raised.value.code == 404


@pytest.mark.parametrize(
    "query",
    [
        "?sort=nonsense&offset=-3&limit=x&view=y&desc=maybe",
        "?offset=2147483647",
        "?cores=99999999999999",
        "?q=%00%ff%ed%a0%80",
        "?view=compare&before=x&after=y",
        "?model=%00&cores=-1",
    ],
)
def test_no_address_breaks_the_page(server: str, query: str) -> None:
    assert "<html" in read(f"{server}/{query}")


def test_pages_forbid_scripts_that_are_not_ours(server: str) -> None:
    with urllib.request.urlopen(server) as answer:
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


# ---------------------------------------------------------------------------------- data that change, and the Space
def test_new_data_show_up_and_a_broken_file_leaves_the_old_up(server: str, data: Path) -> None:
    path = published.rows_path(data, 2)
    whole = path.read_bytes()

    def shows(text: str) -> bool:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if text in read(f"{server}/?q=fresh"):
                return True
            time.sleep(0.5)
        return False

    try:
        fresh = published.row("fresh/Model-1B", "LlamaForCausalLM", 1, 2)
        published.write(path, to_parquet([*published.rows(2), *published.hostile_rows(), fresh]))
        assert shows("fresh/</span>")
        path.write_bytes(path.read_bytes()[:3000])
        assert shows("could not be read")
        assert "fresh/</span>" in read(f"{server}/?q=fresh")
    finally:
        published.write(path, whole)
        time.sleep(0.1)


def test_an_exported_space_runs_by_itself(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("gradio")
    folder = tmp_path / "space"
    subprocess.run(
        [sys.executable, "-m", "doesitrun", "serve", "--data", str(data), "--export-space", str(folder)], check=True, capture_output=True
    )
    readme = (folder / "README.md").read_text()
    assert readme.startswith("---\n")
    assert "sdk: gradio\n" in readme
    assert re.search(r"^gradio\[mcp\]==\d", (folder / "requirements.txt").read_text(), re.MULTILINE)
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    port = free_port()
    own = {"PYTHONPATH": "", "GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": "127.0.0.1"}
    process = started([sys.executable, "app.py"], moved, **own)
    try:
        wait_for(f"http://127.0.0.1:{port}", process)
        assert "Qwen3-4B" in read(f"http://127.0.0.1:{port}/?q=qwen3")
    finally:
        stopped(process)

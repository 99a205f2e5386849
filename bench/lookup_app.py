"""The web app on 50,000 made-up rows: how quickly a browser sees what was typed, and how it bears 50 visitors at once.

`figures` is called by bench/lookup.py; `python -m bench.lookup_app` measures this part alone and prints it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.browser.chromium import ARGUMENTS, executable

ROWS = 50_000
VISITORS = 50
LOAD_S = 60
THINKING_S = (0.2, 1.8)
"""A visitor's pause between two requests: about one a second each."""
LETTER_MS = 120
"""Between two letters: a quick typist."""
WORDS = ("qwen3", "llama-3", "smollm", "instruct", "mistral", "deepseek", "gemma-3", "lab7")
MEANINGS = {
    "keystroke_p95_ms": "50,000 rows: milliseconds from a keystroke to the painted lines in Chromium, 95th percentile",
    "keystroke_median_ms": "the same, median",
    "first_table_s": "seconds from opening the page to a table with lines that can be typed over, once the server is up",
    "server_up_s": "seconds from the command to its first answer, 50,000 rows read",
    "server_rss_mb": "memory of the server after the load, in 10^6 bytes",
    "load_p95_s": f"{VISITORS} visitors for {LOAD_S} s, about a request a second each: seconds of an answer, 95th percentile",
    "load_max_s": "the slowest of these answers",
    "load_requests": "answers in that time",
    "load_errors": "of which not 200, or without lines",
}
# The time of each keystroke, and of the frame after the one in which its lines were drawn.
STOPWATCH = """
window.strokes = [];
addEventListener("keydown", () => strokes.push({typed: performance.now()}), true);
document.addEventListener("doesitrun:shown", () => requestAnimationFrame(() => {
  const painted = new MessageChannel();
  painted.port1.onmessage = () => { for (const s of strokes) s.painted ??= performance.now(); };
  painted.port2.postMessage(0);
}));
"""


def _free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int, float]]:
    """(address, process id, seconds to the first answer) of `doesitrun serve` on the folder."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "doesitrun", "serve", "--data", str(folder), "--port", str(port)]
    started = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, "DOESITRUN_DATA": ""})
        try:
            while not _answers(address):
                if process.poll() is not None or time.monotonic() - started > 120:
                    log.seek(0)
                    raise RuntimeError(log.read().decode(errors="replace"))
                time.sleep(0.05)
            yield address, process.pid, time.monotonic() - started
        finally:
            process.terminate()
            process.wait(30)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/look/mark.svg", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


# ---------------------------------------------------------------------------------- one visitor, in a browser
def in_chromium(address: str) -> dict[str, float]:
    """First table and keystrokes, as a real browser sees them."""
    from playwright.sync_api import sync_playwright

    chromium = executable()
    if chromium is None:
        raise RuntimeError("There is no chromium: apt-get install chromium.")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        page = browser.new_page()
        page.add_init_script(STOPWATCH)
        started = time.monotonic()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("a.model")
        page.wait_for_load_state("load")
        first_table_s = time.monotonic() - started
        for word in WORDS:
            page.click("#search")
            page.keyboard.press("Control+A")
            page.keyboard.type(word, delay=LETTER_MS)
            page.wait_for_timeout(400)
        strokes = page.evaluate("strokes.filter(s => s.painted).map(s => s.painted - s.typed)")
        unpainted = page.evaluate("strokes.filter(s => !s.painted).length")
        browser.close()
    # Control, and A with it, change no text: they are painted with the next letter and would count its waiting time.
    letters = _letters(strokes)
    assert unpainted == 0
    return {"first_table_s": first_table_s, "keystroke_p95_ms": _p95(letters), "keystroke_median_ms": statistics.median(letters)}


def _letters(strokes: list[float]) -> list[float]:
    kept, at = [], 0
    for word in WORDS:
        at += 2
        kept += strokes[at : at + len(word)]
        at += len(word)
    return kept


# ---------------------------------------------------------------------------------- fifty visitors
async def _visitor(client: httpx.AsyncClient, number: int, until: float, times: list[float], errors: list[str]) -> None:
    draw = random.Random(number)
    await asyncio.sleep(draw.uniform(0, 1))
    while time.monotonic() < until:
        address, needle = _next_page(draw)
        started = time.monotonic()
        try:
            answer = await client.get(address)
            if answer.status_code != 200 or needle not in answer.text:
                errors.append(f"{answer.status_code} {address}")
        except httpx.HTTPError as error:
            errors.append(f"{type(error).__name__} {address}")
        times.append(time.monotonic() - started)
        await asyncio.sleep(draw.uniform(*THINKING_S))


def _next_page(draw: random.Random) -> tuple[str, str]:
    """What a visitor asks for next, and what the answer must hold: mostly typing, and every other view."""
    word = draw.choice(WORDS)
    typed = word[: draw.randint(1, len(word))]
    kind = draw.random()
    if kind < 0.6:
        return f"page?q={typed}{draw.randint(0, 99) if draw.random() < 0.4 else ''}", 'id="results"'
    if kind < 0.75:
        return f"page?view={draw.choice(('trending', 'downloads'))}&q={typed}", 'id="results"'
    if kind < 0.85:
        return f"page?sort={draw.choice(('wall_s', 'peak_gb', 'model_id'))}&desc=1&offset={100 * draw.randint(0, 40)}", 'id="results"'
    if kind < 0.9:
        return "page?view=coverage", "of what was run passes"
    if kind < 0.93:
        return "page?view=compare", "What changed"
    return "", "<h1"


async def _load(address: str) -> dict[str, Any]:
    times: list[float] = []
    errors: list[str] = []
    until = time.monotonic() + LOAD_S
    limits = httpx.Limits(max_connections=VISITORS)
    async with httpx.AsyncClient(base_url=address, timeout=30, limits=limits) as client:
        await asyncio.gather(*(_visitor(client, number, until, times, errors) for number in range(VISITORS)))
    for error in errors[:5]:
        print(error, file=sys.stderr)
    return {"load_p95_s": _p95(times), "load_max_s": max(times), "load_requests": len(times), "load_errors": len(errors)}


def figures(folder: Path) -> dict[str, float]:
    """All figures of the app on the data of the folder."""
    with serving(folder) as (address, pid, up_s):
        seen = in_chromium(address)
        loaded = asyncio.run(_load(address))
        rss = psutil.Process(pid).memory_info().rss / 1e6
    return {**seen, "server_up_s": up_s, "server_rss_mb": rss, **loaded}


if __name__ == "__main__":
    from bench import synthetic

    if len(sys.argv) > 1:
        print(json.dumps(figures(Path(sys.argv[1])), indent=1))
    else:
        with tempfile.TemporaryDirectory() as made:
            synthetic.write(Path(made), ROWS)
            print(json.dumps(figures(Path(made)), indent=1))

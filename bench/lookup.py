"""How quickly a model is looked up among 50,000 and 1,000,000 made-up rows, with plain pandas beside it."""

from __future__ import annotations

import importlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench import report, synthetic
from doesitrun.catalog import Catalog, Each, Query, Size, Sort, View, choices, find, open_data
from doesitrun.catalog.frames import load

SEED = 11
ROUNDS = 12
SMALL, LARGE, FOR_COMMAND = 50_000, 1_000_000, 10_000
MEANINGS = {
    "query_p95_ms_50k": "50,000 rows: milliseconds of a query, 95th percentile, over typing, filters, sorts, pages and views",
    "query_median_ms_50k": "the same, median",
    "pandas_p95_ms_50k": "the same typing with plain pandas, df.model_id.str.contains, 95th percentile",
    "query_p95_ms_1m": "1,000,000 rows: milliseconds of a query, 95th percentile",
    "query_median_ms_1m": "the same, median",
    "first_query_max_ms_1m": "the slowest one: the first with new selectors or a new sort",
    "open_s_50k": "seconds to read 50,000 rows from disk",
    "open_s_1m": "seconds to read 1,000,000 rows",
    "rss_mb_50k": "peak memory of a process that holds 50,000 rows and has answered, in 10^6 bytes",
    "rss_mb_1m": "the same with 1,000,000 rows",
    "command_s_10k": "seconds of `doesitrun lookup qwen` on 10,000 rows, start-up included, median of 5",
}
COMMON = ("qwen3", "llama", "instruct", "zzzz")


def words(names: Sequence[str], draw: random.Random) -> list[str]:
    """What visitors look for: a few common words, and parts of names that nobody has looked for yet."""
    found = list(COMMON)
    for name in draw.choices(names, k=6):
        start = draw.randrange(len(name) - 4)
        found.append(name[start : start + draw.randint(4, 10)])
    return found


def session(data: Catalog, names: Sequence[str], draw: random.Random) -> Iterator[Query]:
    """What one visitor does: types a word letter by letter, then narrows, sorts, turns pages and changes the view."""
    offered = choices(data)
    for word in words(names, draw):
        text = word
        for end in range(1, len(word) + 1):
            yield Query(text=word[:end], target="neuron")
        yield Query(text=text, target="neuron", result="PASS")
        yield Query(
            text=text, target="neuron", sort=draw.choice([Sort.WALL, Sort.PEAK, Sort.MODEL, Sort.CORES]), descending=draw.random() < 0.5
        )
        yield Query(text=text, target="neuron", compiler_version=draw.choice(offered.compiler_versions))
        yield Query(text=text[:2], target="neuron", architecture=draw.choice(offered.architectures), size=draw.choice(list(Size)))
        yield Query(text=text[:2], target="neuron", cores=draw.choice(offered.cores), offset=100)
        yield Query(text=text, view=draw.choice([View.TRENDING, View.DOWNLOADS]), task="text-generation")
        yield Query(text=text, view=View.DOWNLOADS, result="untested")
        yield Query(text=text, each=Each.PAIR, sort=Sort.TESTED, descending=True)
        yield Query()


def timed(job: Callable[[], object]) -> float:
    """Milliseconds that a job takes."""
    started = time.perf_counter()
    job()
    return (time.perf_counter() - started) * 1000


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def queries(folder: Path) -> dict[str, float]:
    """Figures of one process that opens the folder and asks it."""
    started = time.perf_counter()
    data = open_data(folder).current()
    opened_s = time.perf_counter() - started
    draw = random.Random(SEED)
    names = data.names.shown.to_pylist()
    times = [timed(lambda query=query: find(data, query)) for _ in range(ROUNDS) for query in session(data, names, draw)]  # type: ignore[misc]
    rss_mb = peak_rss_mb()
    return {
        "p95": p95(times),
        "median": statistics.median(times),
        "max": max(times),
        "open_s": opened_s,
        "rss_mb": rss_mb,
        "count": len(times),
    }


def peak_rss_mb() -> float:
    """Peak memory of this process since it was started; getrusage would tell that of its parent, if it was larger."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


def in_a_process(folder: Path) -> dict[str, float]:
    """The figures of `queries` in a process of its own, so that its memory is its own."""
    code = "import json, sys; from pathlib import Path; from bench.lookup import queries; print(json.dumps(queries(Path(sys.argv[1]))))"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def pandas_times(frame: pd.DataFrame) -> list[float]:
    """Milliseconds of plain pandas for every key typed."""
    draw = random.Random(SEED)
    names = sorted(set(frame.model_id))
    typed = [word[:end] for _ in range(3) for word in words(names, draw) for end in range(1, len(word) + 1)]
    return [
        timed(lambda text=text: frame[frame.model_id.str.contains(text, case=False, regex=False)])  # type: ignore[misc]
        for text in typed
    ]


def command_s(folder: Path) -> float:
    """Seconds of the command, start-up included."""
    command = [sys.executable, "-m", "doesitrun", "lookup", "qwen", "--data", str(folder)]
    return statistics.median(timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(5)) / 1000


def app_figures(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What the web app adds to this bench, and what it means."""
    try:
        app = importlib.import_module("bench.lookup_app")
    except ModuleNotFoundError as error:
        if error.name != "bench.lookup_app":
            raise
        return {}, {}
    return app.figures(folder), app.MEANINGS


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        for count in (FOR_COMMAND, SMALL, LARGE):
            synthetic.write(Path(root, str(count)), count)
        small, large = Path(root, str(SMALL)), Path(root, str(LARGE))
        few, many = in_a_process(small), in_a_process(large)
        figures = {
            "query_p95_ms_50k": few["p95"],
            "query_median_ms_50k": few["median"],
            "pandas_p95_ms_50k": p95(pandas_times(load(small))),
            "query_p95_ms_1m": many["p95"],
            "query_median_ms_1m": many["median"],
            "first_query_max_ms_1m": many["max"],
            "open_s_50k": few["open_s"],
            "open_s_1m": many["open_s"],
            "rss_mb_50k": few["rss_mb"],
            "rss_mb_1m": many["rss_mb"],
            "command_s_10k": command_s(Path(root, str(FOR_COMMAND))),
            "queries": few["count"],
        }
        added, meanings = app_figures(small)
    report.write("lookup", figures | added, MEANINGS | meanings)


if __name__ == "__main__":
    main()

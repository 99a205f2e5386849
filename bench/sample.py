"""A small dataset to develop on, of real things only: the demo's rows, the planner's answers to real configs, a real ranking.

    python -m bench.sample FOLDER [WORKSPACE]

WORKSPACE is where `doesitrun demo` left its rows (results, if it is there).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.plan import corpus
from bench.synthetic import write_records
from doesitrun.records import Forecast, Ranked, columns
from doesitrun.targets import DEVICES

DEVICES_PLANNED = ("trn2", "cpu")
RANKING = "hub/inferenceatlas_huggingface_models_2026-02.json"


def forecasts(configs: Path, device: str) -> list[dict[str, Any]]:
    """What `doesitrun plan` says of every config for a device, under the models' own names."""
    command = [sys.executable, "-m", "doesitrun", "plan", *sorted(map(str, configs.glob("*.json"))), "--device", device, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    known = {column.name for column in columns(Forecast)}
    found = []
    for line in map(json.loads, done.stdout.splitlines()):
        name = line["model_id"].removeprefix("local/")
        config = json.loads((configs / f"{name}.json").read_text(encoding="utf-8")) if (configs / f"{name}.json").exists() else {}
        architecture = (config.get("architectures") or [None])[0]
        own = {"model_id": name.replace("__", "/", 1), "architecture": architecture, "model_type": config.get("model_type")}
        own |= {"target": DEVICES[device].target, "device": device, "planned_at": datetime.now(UTC)}
        found.append({key: value for key, value in {**line, **own}.items() if key in known})
    return found


def ranking(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The day and the lines of a listing of the Hub, by downloads within each task."""
    listing = json.loads(path.read_text(encoding="utf-8"))
    taken_at = datetime.fromisoformat(listing["generated_at_utc"])
    lines: list[dict[str, Any]] = []
    for task in ("text-generation", "image-text-to-text"):
        chosen = [each for each in listing["models"] if each["pipeline_tag"] == task]
        for place, each in enumerate(sorted(chosen, key=lambda each: -each["downloads"]), 1):
            known = {"model_id": each["model_id"], "task": task, "by": "downloads", "rank": place, "taken_at": taken_at}
            lines.append(known | {"downloads": each["downloads"], "likes": each["likes"], "pipeline_tag": task})
    return taken_at.date().isoformat(), lines


def main(arguments: Iterable[str]) -> None:
    folder, *rest = map(Path, arguments)
    workspace = rest[0] if rest else Path("results")
    if (workspace / "data").is_dir():
        shutil.copytree(workspace / "data", folder / "data", dirs_exist_ok=True)
    else:
        print(f"There are no rows in {workspace}: run `doesitrun demo` first, if you want some.", file=sys.stderr)
    source = corpus()
    day, lines = ranking(source / RANKING)
    write_records(folder / "rankings" / f"{day}.parquet", Ranked, lines)
    for device in DEVICES_PLANNED:
        write_records(folder / "plans" / day / f"{DEVICES[device].target}.parquet", Forecast, forecasts(source / "configs", device))


if __name__ == "__main__":
    main(sys.argv[1:])

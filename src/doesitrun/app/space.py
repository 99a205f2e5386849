"""The app as a folder that is a Hugging Face Space as it stands, and that runs by itself anywhere: `python app.py`."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from importlib.resources import as_file, files
from pathlib import Path

from doesitrun.errors import UsageError
from doesitrun.files import reaching, write_whole

PINNED = ("huggingface_hub", "pandas", "psutil", "pyarrow")
"""What the app needs besides Gradio, in the versions of the environment that exports it."""
PUBLISHED = ("data", "rankings", "plans")
"""Folders of Parquet files that make up the dataset."""
MARK = "Written by `doesitrun serve --export-space`"

_APP = '''\
"""{mark}. It runs by itself: python app.py

DOESITRUN_DATA names other data: a folder, or hf://datasets/ORG/NAME.
"""

import os
from pathlib import Path

from doesitrun.app.server import serve

DATA = {data}

serve(
    os.environ.get("DOESITRUN_DATA") or DATA,
    os.environ.get("GRADIO_SERVER_NAME", "0.0.0.0"),
    int(os.environ.get("GRADIO_SERVER_PORT", "7860")),
    lambda address, _: print(f"Does it run? {{address}}", flush=True),
)
'''

_README = """\
---
title: "Does it run?"
emoji: "\N{HEAVY CHECK MARK}"
colorFrom: green
colorTo: gray
sdk: gradio
sdk_version: {gradio}
python_version: "3.11"
app_file: app.py
license: apache-2.0
short_description: "Does a Hub model run on that accelerator?"
tags:
- mcp-server
{datasets}---

# Does it run?

Look a model up: does it run on that accelerator, with that software stack? Every result was obtained by running it.
{mark}; `requirements.txt` and the package `doesitrun` lie beside it.
"""


def export(folder: Path, place: str) -> list[str]:
    """Writes the Space into `folder`; data of a local folder are copied, of the Hub they are named.

    Returns what was written, relative to the folder. Raises UsageError where the folder holds something else.
    """
    app = folder / "app.py"
    with reaching(folder):
        if folder.exists() and any(folder.iterdir()) and not (app.is_file() and MARK in app.read_text(encoding="utf-8", errors="replace")):
            message = f"{folder} holds files that are not an exported Space: name an empty folder."
            raise UsageError(message)
        folder.mkdir(parents=True, exist_ok=True)
        local = Path(place)
        is_local = local.exists()
        if is_local:
            _copy_data(local, folder / "published")
        _copy_package(folder / "doesitrun")
        datasets = "" if is_local else f"datasets:\n- {json.dumps(place.removeprefix('hf://datasets/'))}\n"
        data = 'str(Path(__file__).parent / "published")' if is_local else json.dumps(place)
        write_whole(app, _APP.format(mark=MARK, data=data).encode())
        write_whole(folder / "requirements.txt", _requirements().encode())
        write_whole(folder / "README.md", _README.format(mark=MARK, gradio=version("gradio"), datasets=datasets).encode())
    return sorted(path.name + ("/" if path.is_dir() else "") for path in folder.iterdir())


def _requirements() -> str:
    lines = [f"gradio[mcp]=={version('gradio')}", *(f"{name}=={version(name)}" for name in PINNED)]
    return "".join(f"{line}\n" for line in lines)


def _copy_package(into: Path) -> None:
    """The package itself, whole: a Space must not wait for a release of it."""
    shutil.rmtree(into, ignore_errors=True)
    with as_file(files("doesitrun")) as package:
        shutil.copytree(package, into, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))


def _copy_data(place: Path, into: Path) -> None:
    """Only what is published: of a workspace not the attempts, logs and checkpoints."""
    shutil.rmtree(into, ignore_errors=True)
    if place.is_file():
        into.mkdir(parents=True)
        shutil.copy2(place, into / place.name)
        return
    folders = [name for name in PUBLISHED if (place / name).is_dir()]
    for source, target in [(place / name, into / name) for name in folders] or [(place, into)]:
        for path in sorted(source.rglob("*.parquet")):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    into.mkdir(parents=True, exist_ok=True)

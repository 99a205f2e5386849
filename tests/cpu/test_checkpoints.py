"""Checkpoints with one fault each: the right result, a sentence that names the culprit, and no traceback."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from doesitrun.outcomes import Reason, Result
from doesitrun.records import Row
from tests.cpu import small_models
from tests.cpu.conftest import Command, Ran

RowOf = Callable[..., tuple[Row, Ran]]


def edit_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def edit_weights(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_a_missing_tensor_is_named(damaged: Path, row_of: RowOf) -> None:
    edit_weights(damaged, lambda tensors: tensors.pop("model.layers.3.mlp.up_proj.weight"))
    row, _ = row_of(damaged, "--cores", 1)
    assert (row.result, row.reason) == (Result.EXCLUDED, Reason.MISSING_WEIGHTS)
    assert "model.layers.3.mlp.up_proj.weight" in (row.exclusion or "")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def truncated(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 100_000_000)


def config_no_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "llama",')


def unknown_architecture(folder: Path) -> None:
    edit_config(folder, model_type="nobody_knows_this", architectures=["NobodyForCausalLM"])


def pickle_only(folder: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (folder / "opened",))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))


def remote_code(folder: Path) -> None:
    edit_config(
        folder, model_type="own_kind", architectures=["OwnForCausalLM"], auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    )
    (folder / "own.py").write_text(f"open({str(folder / 'opened')!r}, 'w')\n")


def broken_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")


@pytest.mark.parametrize(
    ("damage", "reason", "named"),
    [
        (no_config, Reason.NOT_TRANSFORMERS, "config.json"),
        (truncated, Reason.BROKEN_CHECKPOINT, "model.safetensors"),
        (broken_header, Reason.BROKEN_CHECKPOINT, "model.safetensors"),
        (config_no_json, Reason.INVALID_CONFIG, "config.json"),
        (unknown_architecture, Reason.UNKNOWN_ARCHITECTURE, "nobody_knows_this"),
        (pickle_only, Reason.PICKLE_WEIGHTS, "pytorch_model.bin"),
        (remote_code, Reason.REMOTE_CODE, "own"),
    ],
)
def test_a_checkpoint_that_cannot_be_run_is_excluded_with_its_reason(
    damage: Callable[[Path], None], reason: Reason, named: str, damaged: Path, row_of: RowOf
) -> None:
    damage(damaged)
    row, ran = row_of(damaged)
    assert (row.result, row.reason, ran.code) == (Result.EXCLUDED, reason, 11)
    assert named in (row.exclusion or "")
    assert not (damaged / "opened").exists()


def test_a_folder_that_is_not_there_is_one_sentence(command: Command, tmp_path: Path) -> None:
    ran = command("test", tmp_path / "nothing")
    assert ran.code == 3
    assert len(ran.err.strip().splitlines()) == 1


def test_a_workspace_may_have_any_name(tmp_path: Path, row_of: RowOf) -> None:
    """Compilers are called with paths that nobody quoted, so they are given one that needs no quotes."""
    root = tmp_path / "a workspace's $name"
    root.mkdir()
    row, _ = row_of(small_models.llama(tmp_path / "model"), "--cores", 1, root=root)
    assert (row.reason, row.compiled) == (Reason.REFERENCE_BROKEN, True), "random weights speak no English, but they ran"
    assert any((root / "graphs").rglob("*.so"))


def test_a_disk_that_is_full_is_one_sentence(command: Command, checkpoint: Path) -> None:
    ran = command("plan", checkpoint, root=Path("/proc/nowhere"))
    assert (ran.code, ran.out, len(ran.err.strip().splitlines())) == (6, "", 1), ran.err


def test_a_folder_without_a_model_is_excluded(row_of: RowOf, tmp_path: Path) -> None:
    row, _ = row_of(tmp_path)
    assert (row.result, row.reason) == (Result.EXCLUDED, Reason.NOT_TRANSFORMERS)

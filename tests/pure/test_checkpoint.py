"""A folder is read without loading or unpickling anything, and what is wrong with it is said with the file's name."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.errors import ModelNotFoundError, UsageError
from doesitrun.hub.checkpoint import Checkpoint, StoredTensor, local_id, open_config, open_folder, open_path
from doesitrun.hub.repository import open_checkpoint
from doesitrun.hub.safetensors_header import BITS, BrokenFileError, read_header
from doesitrun.outcomes import Reason
from doesitrun.records import Dtype, PlanId, Refusal

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], *, tail: int = 0) -> Path:
    """A file in the format, written by hand; `tail` cuts bytes off its end or adds some."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = StoredTensor(dtype, shape).nbytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(position + max(tail, 0))
    path.write_bytes(data[: len(data) + min(tail, 0)])
    return path


def folder(root: Path, config: Any = CONFIG, **files: Any) -> Path:
    """A checkpoint folder; files whose value is bytes or text are written as they are."""
    root.mkdir(exist_ok=True)
    if config is not None:
        (root / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name, content in files.items():
        path = root / name.replace("__", ".")
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    return root


def whole(root: Path, config: Any = CONFIG) -> Path:
    safetensors(folder(root, config) / "model.safetensors", {"a.weight": ("BF16", (4, 2)), "b.bias": ("F32", (3,))})
    return root


def refused(path: Path) -> Refusal:
    result = open_folder(path) if path.is_dir() else open_config(path)
    assert isinstance(result, Refusal), result
    return result


def opened(path: Path) -> Checkpoint:
    result = open_checkpoint(str(path))
    assert isinstance(result, Checkpoint), result
    return result


def test_a_folder_is_described_by_its_headers(tmp_path: Path) -> None:
    found = opened(whole(tmp_path / "toy"))
    assert found.model_id == "local/toy"
    assert found.source == str(tmp_path / "toy")
    assert found.tensors == {"a.weight": StoredTensor("BF16", (4, 2)), "b.bias": StoredTensor("F32", (3,))}
    assert (found.stored, found.stored_bytes) == ({"BF16": 8, "F32": 3}, 28)
    assert found.has_weights
    assert not found.remote_code


def test_the_revision_is_that_of_the_content(tmp_path: Path) -> None:
    first, second = opened(whole(tmp_path / "one")), opened(whole(tmp_path / "two"))
    assert first.revision == second.revision
    assert len(first.revision) == 64
    (tmp_path / "one" / "notes.txt").write_text("of no matter")
    assert opened(tmp_path / "one").revision == first.revision
    weights = bytearray((tmp_path / "one" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "one" / "model.safetensors").write_bytes(weights)
    changed = opened(tmp_path / "one").revision
    assert changed != first.revision
    (tmp_path / "one" / "tokenizer.json").write_text("{}")
    assert opened(tmp_path / "one").revision != changed


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    root = folder(tmp_path / "toy")
    safetensors(root / "model-1.safetensors", {"a": ("BF16", (2,))})
    safetensors(root / "model-2.safetensors", {"b": ("BF16", (3,))})
    index = {"metadata": {"total_size": 0}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (root / "model.safetensors.index.json").write_text(json.dumps(index))
    assert opened(root).stored_bytes == 10  # whatever the index claims


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        ({"a": "gone.safetensors"}, "names gone.safetensors, which is not there (1 of 1 shards are missing)"),
        ({"a": "../model-1.safetensors"}, "which lies outside the folder"),
        ({"a": "/etc/passwd"}, "which lies outside the folder"),
        ({"c": "model-1.safetensors"}, "says that c is in model-1.safetensors, which does not hold it"),
        ({}, "has no weight_map"),
        ([], "has no weight_map"),
        ({"a": 3}, "has no weight_map"),
    ],
)
def test_an_index_that_leads_nowhere_is_a_broken_checkpoint(tmp_path: Path, weight_map: Any, said: str) -> None:
    root = folder(tmp_path / "toy", model__safetensors__index__json=json.dumps({"weight_map": weight_map}))
    safetensors(root / "model-1.safetensors", {"a": ("BF16", (2,))})
    assert refused(root).reason is Reason.BROKEN_CHECKPOINT
    assert said in refused(root).detail


@pytest.mark.parametrize("tail", [-1, -30, 5])
def test_a_file_of_the_wrong_length_is_named_with_both_lengths(tmp_path: Path, tail: int) -> None:
    root = folder(tmp_path / "toy")
    path = safetensors(root / "model.safetensors", {"a": ("F32", (20,))}, tail=tail)
    real = path.stat().st_size
    found = refused(root)
    assert found.reason is Reason.BROKEN_CHECKPOINT
    assert f"model.safetensors is {'truncated' if tail < 0 else 'damaged'}: its header promises {real - tail} bytes" in found.detail
    assert f"the file has {real}" in found.detail


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no safetensors file"),
        (b"\x00" * 7, "is no safetensors file"),
        (struct.pack("<Q", 2**40) + b"{}", "is no safetensors file"),
        (struct.pack("<Q", 3) + b"{}x", "its header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "its header is no JSON object"),
        (struct.pack("<Q", 7) + b'{"a":1}', "does not describe a"),
    ],
)
def test_a_damaged_header_is_told(tmp_path: Path, content: bytes, said: str) -> None:
    root = folder(tmp_path / "toy", model__safetensors=content)
    assert refused(root).reason is Reason.BROKEN_CHECKPOINT
    assert said in refused(root).detail


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]},
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
    ],
)
def test_a_tensor_whose_bytes_do_not_fit_is_told(tmp_path: Path, entry: dict[str, Any]) -> None:
    text = json.dumps({"a": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(BrokenFileError, match=r"model\.safetensors is damaged"):
        read_header(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(BrokenFileError):
        read_header(path)


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 8).map(lambda n: 4 * n), max_size=3).map(tuple)),
        max_size=4,
    )
)
def test_what_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    even = {name: (dtype, (*shape, 4)) for name, (dtype, shape) in tensors.items()}  # sub-byte dtypes fill whole bytes
    assert read_header(safetensors(path, even)) == {name: StoredTensor(dtype, shape) for name, (dtype, shape) in even.items()}


@pytest.mark.parametrize(
    ("config", "files", "reason", "said"),
    [
        (None, {}, Reason.NOT_TRANSFORMERS, "has no config.json"),
        (None, {"model_index__json": "{}"}, Reason.NOT_TRANSFORMERS, "a diffusers pipeline"),
        (None, {"adapter_config__json": "{}"}, Reason.NOT_TRANSFORMERS, "a PEFT adapter"),
        ("{not json", {}, Reason.INVALID_CONFIG, "config.json is not JSON"),
        ("[1]", {}, Reason.INVALID_CONFIG, "config.json holds a JSON list, not an object"),
        ("[" * 100_000, {}, Reason.INVALID_CONFIG, "config.json is not JSON"),
        ("\udcff", {}, Reason.INVALID_CONFIG, "config.json is not JSON"),
        (CONFIG, {"pytorch_model__bin": b"\x80\x02never opened"}, Reason.PICKLE_WEIGHTS, "only as pickles (pytorch_model.bin)"),
        (CONFIG, {"consolidated__00__pth": b"x"}, Reason.PICKLE_WEIGHTS, "consolidated.00.pth"),
        (CONFIG, {"toy__gguf": b"x"}, Reason.NO_WEIGHTS, "only as GGUF"),
        (CONFIG, {"tf_model__h5": b"x", "flax_model__msgpack": b"x"}, Reason.NO_WEIGHTS, "only as Flax and TensorFlow"),
        (CONFIG, {"consolidated__safetensors": b"x"}, Reason.NO_WEIGHTS, "neither model.safetensors nor"),
        (CONFIG, {"training_args__bin": b"x"}, Reason.NO_WEIGHTS, "has a config.json but no weight files"),
        (CONFIG, {}, Reason.NO_WEIGHTS, "has a config.json but no weight files"),
    ],
)
def test_a_folder_that_cannot_be_run_says_why(tmp_path: Path, config: Any, files: dict[str, Any], reason: Reason, said: str) -> None:
    root = tmp_path / "toy"
    root.mkdir()
    if config == "\udcff":
        (root / "config.json").write_bytes(b"\xff\xfe{}")
        config = None
    found = refused(folder(root, config, **files))
    assert (found.model_id, found.reason) == ("local/toy", reason)
    assert said in found.detail


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"_class_name": "FluxPipeline"}, "a diffusers FluxPipeline"),
        ({"_diffusers_version": "0.1"}, "a diffusers component"),
        ({"peft_type": "LORA", "base_model_name_or_path": "a/b"}, "a PEFT adapter for a/b"),
        ({"__version__": {"pytorch": "1"}}, "a sentence-transformers settings file"),
        ({"bits": 4, "group_size": 128}, "a quantisation settings file"),
    ],
)
def test_a_config_of_another_library_is_told_by_its_name(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    path = folder(tmp_path / "toy", config) / "config.json"
    assert refused(path).reason is Reason.NOT_TRANSFORMERS
    assert said in refused(path).detail


def test_a_bare_config_is_a_checkpoint_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "Org__Toy (1).json"
    path.write_text(json.dumps(CONFIG))
    found = opened(path)
    assert (found.model_id, found.has_weights, found.tensors) == ("local/Org__Toy--1--bc9cb6f2", False, None)


def test_names_that_lose_something_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_id(Path("/x/ünï")) != local_id(Path("/x/ana"))
    assert local_id(Path("/x/a b")) != local_id(Path("/x/a-b")) == "local/a-b"
    assert len(local_id(Path("/x") / ("n" * 250))) < 80
    monkeypatch.chdir(folder(tmp_path / "toy", CONFIG))
    assert open_path(Path()).model_id == "local/toy"


@pytest.mark.parametrize("name", ["hf_quant_config.json", "quantize_config.json"])
def test_quantisation_told_beside_the_config_is_found(tmp_path: Path, name: str) -> None:
    root = whole(tmp_path / "toy")
    (root / name).write_text(json.dumps({"bits": 4, "group_size": 128, "sym": True}))
    assert opened(root).quantization == {"bits": 4, "group_size": 128, "sym": True}
    bare = tmp_path / "toy.json"
    bare.write_text(json.dumps(CONFIG))
    (tmp_path / f"toy.{name}").write_text(json.dumps({"producer": {}, "quantization": {"quant_algo": "FP8"}}))
    assert opened(bare).quantization == {"quant_algo": "FP8", "quant_method": "modelopt"}


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": {"quant_method": "awq"}},
        {"text_config": {"quantization_config": {"quant_method": "awq"}}},
        {"quantization": {"quant_method": "awq"}},
        {"compression_config": {"quant_method": "awq"}},
    ],
)
def test_quantisation_is_found_wherever_the_config_has_it(tmp_path: Path, config: dict[str, Any]) -> None:
    assert opened(whole(tmp_path / "toy", CONFIG | config)).quantization == {"quant_method": "awq"}


@given(st.text(min_size=1).filter(lambda name: "/" not in name and "\0" not in name and name not in (".", "..")))
def test_a_local_name_fits_into_a_plan_id(name: str) -> None:
    model_id = local_id(Path("/x") / name)
    ident = PlanId(model_id, "abc", "text-generation", "cpu", "cpu", 1, 1, 1, Dtype.BFLOAT16, 32)
    assert PlanId.parse(str(ident)) == ident


@pytest.mark.parametrize("model", ["./gone", "/gone/too", "a/b/c", "gone.json", "~/gone", "~nobody-here/x", "a\\b"])
def test_a_path_that_does_not_exist_is_said_in_one_sentence(model: str) -> None:
    with pytest.raises(ModelNotFoundError, match="There is no folder or file"):
        open_checkpoint(model)


@pytest.mark.parametrize("model", ["", "a b", "-x/y", "a/b..c", "ä/b", "a--b", "x" * 200, "x" * 5000, "a\0b", "a/b\n", '"; import os'])
def test_what_is_no_hub_id_is_a_usage_error(model: str) -> None:
    with pytest.raises(UsageError, match="neither a path that exists nor a valid Hub id"):
        open_checkpoint(model)


def test_a_folder_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave --revision away"):
        open_checkpoint(str(whole(tmp_path / "toy")), "main")


def test_a_file_that_is_no_config_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelNotFoundError, match="neither a folder with a checkpoint nor a config"):
        open_checkpoint(str(tmp_path / "model.bin"))

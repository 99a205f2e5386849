"""What a checkpoint is, and how one in a folder is read: config, weight headers, identity. No weight is loaded."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doesitrun.errors import ModelNotFoundError
from doesitrun.hub.safetensors_header import BrokenFileError, StoredTensor, read_header
from doesitrun.outcomes import Reason
from doesitrun.records import Refusal

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SIDE_CONFIGS = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files in which some tools keep what config.json should say of quantisation."""
# The files that decide what a model computes; anything else in the folder may change without changing it.
_RELEVANT = re.compile(
    r"(generation_config|(hf_)?quanti?z?e?_config|.*processor_config|special_tokens_map|added_tokens|chat_template|vocab"
    r"|tokenizer.*|config)\.json|.*\.safetensors|.*\.safetensors\.index\.json|merges\.txt|vocab\.txt|.*\.model|.*\.jinja|.*\.py"
)
_PICKLES = re.compile(r".*\.(bin|pt|pth|ckpt|pkl)")
_OTHER_FORMATS = {".gguf": "GGUF", ".h5": "TensorFlow", ".msgpack": "Flax", ".onnx": "ONNX", ".mlmodel": "Core ML", ".nemo": "NeMo"}
_OTHER_LIBRARIES = {
    "model_index.json": "a diffusers pipeline",
    "adapter_config.json": "a PEFT adapter",
    "config_sentence_transformers.json": "a sentence-transformers model",
}


@dataclass(frozen=True)
class Checkpoint:
    """A model as it is stored."""

    model_id: str
    """A Hub id, or `local/NAME` for a folder or a bare config."""
    revision: str
    """A commit of the Hub, or the sha256 of the folder's content."""
    source: str
    """The Hub id, or the absolute path."""
    config: Mapping[str, Any]
    pipeline_tag: str | None = None
    tensors: Mapping[str, StoredTensor] | None = None
    """From the safetensors headers; None where they were not read."""
    stored: Mapping[str, int] = field(default_factory=dict)
    """Number of stored elements by safetensors dtype; empty where it is not known."""
    stored_bytes: int = 0
    """Bytes of all stored tensors; 0 where it is not known."""
    quantization: Mapping[str, Any] | None = None
    """What config.json, or a file beside it, says of quantisation."""
    remote_code: bool = False
    """True when the repository brings code of its own (config.json has an auto_map)."""
    gated: bool = False
    has_weights: bool = False

    @property
    def architecture(self) -> str:
        """The config's first architecture; "" where it names none."""
        return first_architecture(self.config)

    @property
    def model_type(self) -> str:
        """The config's model_type; "" where it names none."""
        return named_type(self.config)


def first_architecture(config: Mapping[str, Any]) -> str:
    """The first of the architectures that a config names; "" for none, or for a list of other things."""
    named = config.get("architectures")
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""


def named_type(config: Mapping[str, Any]) -> str:
    """The model_type that a config names; "" for none, or for another thing."""
    named = config.get("model_type")
    return named if isinstance(named, str) else ""


def local_id(path: Path) -> str:
    """`local/NAME`, with every character that a plan id cannot hold turned into a dash.

    A name that loses something that way, or is too long for a folder of attempts, ends with a piece of its sha256.
    """
    name = path.parent.name if path.name == CONFIG else path.stem if path.suffix == ".json" else path.name
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:60]
    return f"local/{safe if safe == name else f'{safe}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}'}"


def open_folder(folder: Path) -> Checkpoint | Refusal:
    """The checkpoint in a folder, or why it is none that can be run."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    config = read_config(folder / CONFIG) if CONFIG in names else None
    if config is None:
        return refusal(folder, Reason.NOT_TRANSFORMERS, _without_config(folder, names))
    if isinstance(config, str):
        return refusal(folder, Reason.INVALID_CONFIG, config)
    try:
        tensors = _stored_tensors(folder, names)
    except BrokenFileError as error:
        return refusal(folder, Reason.BROKEN_CHECKPOINT, str(error))
    if tensors is None:
        return refusal(folder, *_without_weights(folder, names))
    return describe(
        model_id=local_id(folder),
        revision=content_revision(folder, names),
        source=str(folder.resolve()),
        config=config,
        side_configs=[read_config(folder / name) for name in SIDE_CONFIGS if name in names],
        tensors=tensors,
        has_weights=True,
    )


def open_config(path: Path) -> Checkpoint | Refusal:
    """A bare config file as a checkpoint without weights; quantisation side files are looked for beside it."""
    config = read_config(path)
    if isinstance(config, str):
        return refusal(path, Reason.INVALID_CONFIG, config)
    prefix = "" if path.name == CONFIG else f"{path.stem}."
    sides = [path.with_name(prefix + name) for name in SIDE_CONFIGS]
    return describe(
        model_id=local_id(path),
        revision=hashlib.sha256(path.read_bytes()).hexdigest(),
        source=str(path.resolve()),
        config=config,
        side_configs=[read_config(side) for side in sides if side.is_file()],
    )


def describe(*, config: Mapping[str, Any], side_configs: Iterable[Any] = (), **known: Any) -> Checkpoint | Refusal:
    """A checkpoint with what its config says of it, or a refusal if the config is another library's."""
    other = _other_library(config)
    if other:
        return Refusal(known["model_id"], known["revision"], Reason.NOT_TRANSFORMERS, f"It is {other}, not a transformers model.")
    tensors: Mapping[str, StoredTensor] | None = known.get("tensors")
    if tensors is not None:
        known["stored"] = count_by_dtype(tensors.values())
        known["stored_bytes"] = sum(tensor.nbytes for tensor in tensors.values())
    side = next((value for value in side_configs if isinstance(value, dict)), None)
    return Checkpoint(config=config, quantization=quantization_of(config, side), remote_code=bool(config.get("auto_map")), **known)


def count_by_dtype(tensors: Iterable[StoredTensor]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tensor in tensors:
        counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.elements
    return counts


def quantization_of(config: Mapping[str, Any], side: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What is said of quantisation: by config.json, at its top or in its text part, or by a file beside it."""
    parts = [config, *(value for key, value in config.items() if key.endswith("_config") and isinstance(value, dict))]
    for part in parts:
        for key in ("quantization_config", "quantization", "compression_config"):
            if isinstance(part.get(key), dict) and part[key]:
                return dict(part[key])
    if side is None:
        return None
    return dict(side["quantization"]) | {"quant_method": "modelopt"} if isinstance(side.get("quantization"), dict) else dict(side)


def read_config(path: Path) -> dict[str, Any] | str:
    """The JSON object in a file, or the sentence that says why there is none."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}."
    except (ValueError, RecursionError) as error:
        return f"{path.name} is not JSON: {' '.join(str(error).split())}."
    return value if isinstance(value, dict) else f"{path.name} holds a JSON {type(value).__name__}, not an object."


def content_revision(folder: Path, names: Iterable[str]) -> str:
    """sha256 over the sorted (name, sha256 of content) of the files that matter, in hex."""
    relevant = sorted(name for name in names if _RELEVANT.fullmatch(name))
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(lambda name: _file_digest(folder / name), relevant))
    listing = "".join(f"{name}\0{digest}\n" for name, digest in zip(relevant, digests, strict=True))
    return hashlib.sha256(listing.encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refusal(path: Path, reason: Reason, detail: str) -> Refusal:
    """A refusal of what lies at a path. Its revision says which: nothing but the name is known of it."""
    return Refusal(local_id(path), "unknown", reason, detail)


def _stored_tensors(folder: Path, names: Iterable[str]) -> dict[str, StoredTensor] | None:
    """All tensors that from_pretrained would read, by their headers; None without safetensors. Raises BrokenFileError."""
    if WEIGHTS in names:  # transformers, too, looks for this name first
        return read_header(folder / WEIGHTS)
    if INDEX not in names:
        return None
    weight_map = _weight_map(folder / INDEX)
    shards = sorted(set(weight_map.values()))
    if missing := [shard for shard in shards if not (folder / shard).is_file()]:
        message = f"{INDEX} names {missing[0]}, which is not there ({len(missing)} of {len(shards)} shards are missing)."
        raise BrokenFileError(message)
    with ThreadPoolExecutor(max_workers=8) as pool:
        headers = dict(zip(shards, pool.map(lambda shard: read_header(folder / shard), shards), strict=True))
    for tensor, shard in weight_map.items():
        if tensor not in headers[shard]:
            message = f"{INDEX} says that {tensor} is in {shard}, which does not hold it."
            raise BrokenFileError(message)
    return {name: tensor for header in headers.values() for name, tensor in header.items()}


def _weight_map(path: Path) -> dict[str, str]:
    index = read_config(path)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(name, str) for name in weight_map.values()):
        message = index if isinstance(index, str) else f"{path.name} has no weight_map from tensors to files."
        raise BrokenFileError(message)
    # A shard's name comes from outside: it must not lead out of the folder.
    if outside := [name for name in weight_map.values() if name != Path(name).name]:
        message = f"{path.name} names {outside[0]!r}, which lies outside the folder."
        raise BrokenFileError(message)
    return dict(weight_map)


def _without_config(folder: Path, names: Iterable[str]) -> str:
    for name, what in _OTHER_LIBRARIES.items():
        if name in names:
            return f"{folder.name} is {what} ({name}), not a transformers model."
    return f"{folder.name} has no {CONFIG}, so it is not a transformers checkpoint."


def _without_weights(folder: Path, names: Iterable[str]) -> tuple[Reason, str]:
    return missing_weights(folder.name, names)


def missing_weights(where: str, names: Iterable[str]) -> tuple[Reason, str]:
    """Why a repository or folder without model.safetensors cannot be run, from the names of its files."""
    files = list(names)
    pickles = [name for name in files if _PICKLES.fullmatch(name) and not name.startswith("training_args")]
    others = [name for name in files if name.endswith(".safetensors")]
    if pickles:
        return Reason.PICKLE_WEIGHTS, f"{where} has its weights only as pickles ({pickles[0]}), which are never opened."
    if others:
        return Reason.NO_WEIGHTS, f"{where} has {others[0]}, but neither {WEIGHTS} nor {INDEX}, which transformers loads."
    formats = sorted({what for name in files for suffix, what in _OTHER_FORMATS.items() if name.endswith(suffix)})
    if formats:
        return Reason.NO_WEIGHTS, f"{where} has its weights only as {' and '.join(formats)}, not as safetensors."
    return Reason.NO_WEIGHTS, f"{where} has a {CONFIG} but no weight files."


def _other_library(config: Mapping[str, Any]) -> str:
    """The library whose config this is, where it is plainly not transformers'; else an empty string."""
    if "_class_name" in config or "_diffusers_version" in config:
        return f"a diffusers {config.get('_class_name', 'component')}"
    if "peft_type" in config:
        return f"a PEFT adapter for {config.get('base_model_name_or_path') or 'another model'}"
    if "__version__" in config and "model_type" not in config:
        return "a sentence-transformers settings file"
    if "model_type" in config or "architectures" in config or "auto_map" in config:
        return ""
    if any(key in config for key in ("quantization", "bits", "quant_method", "producer")):
        return "a quantisation settings file"
    return ""


def open_path(path: Path) -> Checkpoint | Refusal:
    """The checkpoint at a path that exists: a folder, or a bare config file. Raises ModelNotFoundError."""
    whole = path.absolute() if path.name else path.resolve()  # `.` and `..` have no name of their own
    if whole.is_dir():
        return open_folder(whole)
    if whole.suffix == ".json":
        return open_config(whole)
    message = f"{path} is neither a folder with a checkpoint nor a config.json: pass one of the two, or a Hub id."
    raise ModelNotFoundError(message)

"""The header of a safetensors file, read with the standard library: what is stored, without loading it.

The format: 8 bytes little-endian length, that many bytes of JSON (name -> dtype, shape, data_offsets), then the data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library itself."""
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits of one element, by the format's dtype names."""


class BrokenFileError(Exception):
    """A weight file is damaged; its text is the sentence that says how."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it lies in a file."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * BITS[self.dtype] // 8


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name. Raises BrokenFileError when header and file size do not fit together."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            message = f"{path.name} is no safetensors file: it promises a header of {length} bytes and has {size} bytes in all."
            raise BrokenFileError(message)
        text = file.read(length)
    header = _parsed(path.name, text)
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path.name, name, entry) for name, entry in header.items()}
    _check_extent(path.name, header, 8 + length, size)
    return tensors


def _parsed(file_name: str, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{file_name} is damaged: its header is not JSON."
        raise BrokenFileError(message) from error
    if not isinstance(header, dict):
        message = f"{file_name} is damaged: its header is no JSON object."
        raise BrokenFileError(message)
    return header


def _tensor(file_name: str, name: str, entry: Any) -> StoredTensor:
    try:
        tensor = StoredTensor(entry["dtype"], tuple(entry["shape"]))
        begin, end = entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*tensor.shape, begin, end))
        fits = whole and end - begin == tensor.nbytes
    except (KeyError, TypeError, ValueError) as error:
        message = f"{file_name} is damaged: its header does not describe {name} as the format asks."
        raise BrokenFileError(message) from error
    if not fits:
        message = f"{file_name} is damaged: {name} is {tensor.dtype} {list(tensor.shape)}, which its bytes do not fit."
        raise BrokenFileError(message)
    return tensor


def _check_extent(file_name: str, header: Mapping[str, Any], data_start: int, size: int) -> None:
    """The tensors must fill the file from the header to its end, without a gap or an overlap."""
    position = 0
    for begin, end in sorted(tuple(entry["data_offsets"]) for entry in header.values()):
        if begin != position:
            message = f"{file_name} is damaged: its tensors overlap or leave a gap at byte {data_start + min(begin, position)}."
            raise BrokenFileError(message)
        position = end
    promised = data_start + position
    if promised > size:
        message = f"{file_name} is truncated: its header promises {promised} bytes, the file has {size}."
        raise BrokenFileError(message)
    if promised < size:
        message = f"{file_name} is damaged: its header promises {promised} bytes, the file has {size}."
        raise BrokenFileError(message)

"""Columns as arrays that can be compared, sorted and counted quickly; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from doesitrun.store.table import clean_text

Codes: TypeAlias = npt.NDArray[np.int32]
Numbers: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_PART = re.compile(r"\d+|[a-z]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEFORE_RELEASE = ("dev", "a", "alpha", "b", "beta", "rc", "pre")


@dataclass(frozen=True)
class Coded:
    """A column of few different texts: the texts in their order, and of each row the number of its text."""

    values: tuple[str, ...]
    codes: Codes

    def code(self, value: str) -> int:
        """The value's number; -1 if it is nowhere."""
        return self.values.index(value) if value in self.values else -1

    def taken(self, rows: npt.NDArray[Any]) -> list[str]:
        """The texts of some rows."""
        return [self.values[code] for code in self.codes[rows].tolist()]


def coded(column: pa.ChunkedArray | pa.Array, key: Callable[[str], Any] = str.lower, first: Sequence[str] = ()) -> Coded:
    """The column with its texts in the order of `key`, those of `first` before all; null is "" and always there."""
    encoded = _one_array(column).dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    place = {text: number for number, text in enumerate(first)}
    ordered = sorted({*texts, ""}, key=lambda text: (place.get(text, len(place)), key(text), text))
    number_of = {text: number for number, text in enumerate(ordered)}
    to_code = np.array([*(number_of[text] for text in texts), number_of[""]], dtype=np.int32)
    indices = _raw(encoded.indices, np.int32).copy()
    indices[truths(pc.is_null(encoded.indices))] = len(texts)
    return Coded(tuple(ordered), to_code[indices])


# pyarrow's own ways to and from Python objects import pandas, which takes longer than a whole look-up: so buffers are read here.
def numbers(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """The column as floating-point numbers; null is NaN."""
    whole = _one_array(column)
    found: Numbers = _raw(whole.cast(pa.float64(), safe=False), np.float64).copy()
    found[truths(pc.is_null(whole))] = np.nan
    return found


def truths(column: pa.Array) -> Mask:
    """The column of booleans, of which none may be null."""
    return _raw(column.cast(pa.uint8()), np.uint8).astype(np.bool_)


def at(rows: npt.NDArray[Any]) -> pa.Array:
    """Numbers of rows, as Arrow takes them."""
    return pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows, np.int32))])


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _raw(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values as they lie in memory, whatever there is where one is null."""
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The column as Python objects: times in UTC, lists as lists."""
    if pa.types.is_timestamp(column.type):
        return [moment(milliseconds) for milliseconds in moments(column).tolist()]
    if pa.types.is_list(column.type):
        items = iter(pc.list_flatten(column).to_pylist())
        return [None if length is None else list(islice(items, length)) for length in pc.list_value_length(column).to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def moment(milliseconds: float) -> datetime | None:
    """A time in UTC; None for NaN and for what no calendar holds."""
    if math.isnan(milliseconds):
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def moments(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """Times as milliseconds since 1970; null is NaN."""
    return numbers(column.cast(pa.timestamp("ms")).cast(pa.int64()))


def version_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts versions as people do: 2.9 before 2.10, 5.0rc1 before 5.0, no version before all."""
    release, _, local = text.lower().partition("+")
    parts = [_part_key(part) for part in _PART.findall(release)]
    # What ends here counts as a release: later than its candidates, earlier than its patches.
    return (*parts, (1, 0, ""), *((0, 0, part) for part in [local] if part)) if text else ()


def _part_key(part: str) -> tuple[int, int, str]:
    if part.isdecimal():
        return (2, int(part[:18]), "")
    return (0, 0, part) if part in _BEFORE_RELEASE else (2, 0, part)


def order_of(key: Numbers, base: Codes, *, descending: bool) -> Codes:
    """The rows of `base` sorted by their key; equal ones stay in order, and NaN comes last either way."""
    picked = key[base]
    return base[np.argsort(-picked if descending else picked, kind="stable")].astype(np.int32, copy=False)


def firsts(group: npt.NDArray[np.int64]) -> Mask:
    """True where a group begins; the members of a group must lie together."""
    if not len(group):
        return np.zeros(0, dtype=np.bool_)
    return np.concatenate([[True], group[1:] != group[:-1]])


@dataclass(frozen=True)
class Names:
    """Every model's name once, sorted without regard to case, and the same in lower case for searching."""

    shown: pa.StringArray
    lower: pa.StringArray

    def __len__(self) -> int:
        return len(self.shown)

    def number(self, name: str) -> int:
        """The number of the model of exactly this name; -1 if there is none."""
        near = _raw(pc.indices_nonzero(pc.match_substring(self.shown, clean_text(name))), np.uint64)
        return next((int(number) for number in near.tolist() if self.shown.take(at(np.array([number]))).to_pylist() == [name]), -1)

    def matching(self, text: str) -> Mask:
        """Of each name whether it has the text in it, upper and lower case being the same."""
        return truths(pc.match_substring(self.lower, "".join(lower(character) for character in clean_text(text))))


def lower(character: str) -> str:
    """One character in lower case, as Arrow lowers the names: never two for one."""
    return character.lower()[:1]


def names_of(columns: Iterable[pa.ChunkedArray | pa.Array]) -> tuple[Names, list[Codes]]:
    """All names in these columns, and each column as numbers of them."""
    parts = [_one_array(column) for column in columns]
    whole = pa.concat_arrays([part.cast(pa.large_string()) for part in parts])
    encoded = whole.dictionary_encode()
    lowered = pc.utf8_lower(encoded.dictionary)
    order = pc.sort_indices(pa.table({"lower": lowered, "shown": encoded.dictionary}), [("lower", "ascending"), ("shown", "ascending")])
    rank = np.empty(len(order), np.int32)
    rank[_raw(order, np.uint64)] = np.arange(len(order), dtype=np.int32)
    codes = rank[_raw(encoded.indices, np.int32)]
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return Names(encoded.dictionary.take(order), lowered.take(order)), list(np.split(codes, ends))

"""A GGUF file: its metadata, and its tensors dequantised one by one. Every length is checked against the file's size.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import struct
from collections.abc import Iterator
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
"""Numpy's names of the metadata types that have a fixed size."""
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4
_CHUNK = 2**22
"""Elements that are dequantised at once; dequantising takes several times their memory."""
_REDOWNLOAD = "Fetch the file again, and compare its checksum."


class Unreadable(Exception):
    """What a GGUF file holds that no checkpoint can be made of: what is expected, and the remedy."""

    def __init__(self, expected: str, remedy: str) -> None:
        super().__init__(expected, remedy)
        self.expected, self.remedy = expected, remedy


class TensorPlace(NamedTuple):
    """Where a tensor lies in its file."""

    shape: tuple[int, ...]
    """In torch's order, the last dimension contiguous."""
    kind: Any
    """`gguf.GGMLQuantizationType`."""
    begin: int
    """Offset in the file."""
    num_bytes: int


class GGUFFile:
    """Metadata and tensors of one file, which stays mapped and is read on request.

    Args:
        path: The file.

    Raises:
        Unreadable: For a file that is truncated, damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ) if path.stat().st_size else b"")
        if self._data[:4] != b"GGUF":
            raise Unreadable("a file that begins with the letters GGUF", _REDOWNLOAD)
        self._at = 4
        version = self._number("<u4")
        if version not in (2, 3):
            raise Unreadable(f"GGUF of version 2 or 3 in little-endian, not {version}", "Convert it again.")
        num_tensors, num_values = self._number("<u8"), self._number("<u8")
        self.values: dict[str, Any] = {}
        """The metadata; arrays of numbers are numpy arrays."""
        for _ in range(num_values):
            key = self._string()
            self.values[key] = self._value(self._number("<u4"))
        self.tensors = dict(self._places(num_tensors))
        """By name."""
        if (taken := sum(place.num_bytes for place in self.tensors.values())) > len(self._data):
            expected = f"tensors that share no bytes; they take {taken:,} of the file's {len(self._data):,}"
            raise Unreadable(expected, _REDOWNLOAD)

    def value(self, key: str) -> Any:
        """The metadata under a key that has to be there."""
        if key not in self.values:
            raise Unreadable(f"the key {key} in its metadata, which it lacks", "Convert the model again.")
        return self.values[key]

    def tensor(self, name: str) -> np.ndarray:
        """The tensor's values in float32."""
        from gguf import dequantize

        place = self.tensors[name]
        stored = np.frombuffer(self._data, np.uint8, place.num_bytes, place.begin)
        rows = stored.reshape(prod(place.shape[:-1]), -1)
        found = np.empty((len(rows), place.shape[-1]), np.float32)
        each = max(1, _CHUNK // place.shape[-1])
        with np.errstate(all="ignore"):  # damaged scales overflow; what they make is found below
            for begin in range(0, len(rows), each):
                found[begin : begin + each] = dequantize(rows[begin : begin + each], place.kind)
        if not np.isfinite(found).all():
            raise Unreadable(f"finite weights, and {name} holds others", _REDOWNLOAD)
        return found.reshape(place.shape)

    def _take(self, num_bytes: int) -> bytes:
        end = self._at + num_bytes
        if end > len(self._data):
            expected = f"a whole file; its header runs past its end, at {len(self._data):,} bytes"
            raise Unreadable(expected, _REDOWNLOAD)
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def _number(self, kind: str) -> Any:
        return np.frombuffer(self._take(np.dtype(kind).itemsize), kind)[0].item()

    def _string(self) -> str:
        try:
            return self._take(struct.unpack("<Q", self._take(8))[0]).decode()
        except UnicodeDecodeError:
            raise Unreadable(f"text in UTF-8 in its header before byte {self._at:,}", _REDOWNLOAD) from None

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, length = self._number("<u4"), self._number("<u8")
            if element in _SCALARS:
                dtype = np.dtype(_SCALARS[element])
                return np.frombuffer(self._take(length * dtype.itemsize), dtype)
            if element == _STRING:
                return [self._string() for _ in range(length)]
        raise Unreadable(f"metadata of known types before byte {self._at:,}, not of type {kind}", _REDOWNLOAD)

    def _places(self, num_tensors: int) -> Iterator[tuple[str, TensorPlace]]:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        listed = [(self._string(), self._shape(), self._number("<u4"), self._number("<u8")) for _ in range(num_tensors)]
        alignment = self.values.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment % 8:
            raise Unreadable(f"a multiple of 8 as general.alignment, not {alignment}", _REDOWNLOAD)
        start = -(-self._at // alignment) * alignment
        for name, shape, number, offset in listed:
            try:
                kind = GGMLQuantizationType(number)
            except ValueError:
                expected = f"quantisations that the installed gguf knows, and {name} is of type {number}"
                raise Unreadable(expected, "Do pip install -U gguf, or take another quantisation.") from None
            per_block, block_bytes = GGML_QUANT_SIZES[kind]
            if shape[-1] % per_block:
                raise Unreadable(f"rows of whole blocks, and {name} has rows of {shape[-1]:,}", _REDOWNLOAD)
            place = TensorPlace(shape, kind, start + offset, prod(shape) // per_block * block_bytes)
            if place.begin + place.num_bytes > len(self._data):
                expected = (
                    f"a whole file; its tensor {name} ends at byte {place.begin + place.num_bytes:,}, "
                    f"the file at {len(self._data):,}"
                )
                raise Unreadable(expected, _REDOWNLOAD)
            yield name, place

    def _shape(self) -> tuple[int, ...]:
        num_dimensions = self._number("<u4")
        if not 1 <= num_dimensions <= _MOST_DIMENSIONS:
            expected = f"tensors of 1 to {_MOST_DIMENSIONS} dimensions before byte {self._at:,}, not {num_dimensions}"
            raise Unreadable(expected, _REDOWNLOAD)
        shape = tuple(self._number("<u8") for _ in range(num_dimensions))[::-1]
        if 0 in shape:
            raise Unreadable(f"no empty tensors before byte {self._at:,}", _REDOWNLOAD)
        return shape

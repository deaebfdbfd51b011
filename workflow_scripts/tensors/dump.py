"""Dumps: safetensors files of one tensor, and the store that keeps equal ones once.

A file is 8 bytes (little-endian length of the header), the header (JSON, padded with blanks to a multiple of
8) and the raw bytes, row-major: https://huggingface.co/docs/safetensors#format
"""

import errno
import json
import math
import mmap
import os
import shutil
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workflow_scripts.errors import AuditError, CorruptDumpError
from workflow_scripts.tensors.atomic import clear_errors, replacing, sync_folder, temporary_beside, write_all
from workflow_scripts.tensors.dtypes import DTYPES, lookup

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Buffer = bytes | memoryview | np.ndarray[Any, Any]

NAME = "tensor"
"""The name that a stored tensor has in its file: equal tensors of other names are one object."""
_LONGEST_HEADER = 1 << 20  # ours take less than 200 bytes; a damaged length must not make us read gigabytes
_PIECE = 1 << 22  # bytes compared at a time, so that memory stays small
_NO_HARD_LINK = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}

_TRIES = 10  # to link an object that others may be writing


@dataclass(frozen=True)
class Dump:
    """A tensor's raw bytes: `data` is 1-D uint8, row-major, of numel(shape) elements of `dtype`.

    AuditError where the bytes don't fit the shape.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Bytes
    mapping: mmap.mmap | None = None
    offset: int = 0  # of data in mapping
    name: str | None = None  # in the file's header; first_rows has none

    def __post_init__(self) -> None:
        """Check the size: the comparison reads the memory behind `data` as far as the shape says."""
        expected = self.numel * lookup(self.dtype).raw.itemsize
        if self.data.size != expected:
            kind = f"{self.dtype} {list(self.shape)}"
            raise AuditError(f"{kind} takes {expected} bytes, {self.data.size} were given")

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def first_rows(self, rows: int) -> "Dump":
        """The first rows along the leading axis, without a copy."""
        shape = (rows, *self.shape[1:])
        size = math.prod(shape) * lookup(self.dtype).raw.itemsize
        return Dump(self.dtype, shape, self.data[:size], self.mapping, self.offset)

    def release(self, start: int, stop: int) -> None:
        """Give the memory of bytes [start, stop) back; they are read from the file again when needed."""
        if self.mapping is not None:
            page = mmap.PAGESIZE
            first, last = (self.offset + start) // page * page, (self.offset + stop) // page * page
            if last > first:
                self.mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def raw_bytes(data: Buffer) -> Bytes:
    """The logical contiguous bytes of a buffer, 1-D uint8; a copy only where the buffer is strided."""
    array = data if isinstance(data, np.ndarray) else np.asarray(memoryview(data))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def write(path: Path, name: str, data: Buffer, dtype: str, shape: Sequence[int]) -> None:
    """Write one tensor atomically; AuditError when it can't be written or the bytes don't fit the shape."""
    tensor = Dump(dtype, tuple(shape), raw_bytes(data))
    entry = {"dtype": dtype, "shape": list(shape), "data_offsets": [0, tensor.data.size]}
    with replacing(path) as descriptor:
        write_all(descriptor, _header({name: entry}))
        write_all(descriptor, tensor.data.data)


def write_empty(path: Path) -> None:
    """Write a safetensors file without tensors: the dump of a cell that is not ok."""
    with replacing(path) as descriptor:
        write_all(descriptor, _header({}))


def open_dump(path: Path) -> Dump:
    """Map a dump into memory, read-only; CorruptDumpError says what is wrong with the file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            name, dtype, shape, offset = _read_header(path, file.read(_LONGEST_HEADER), size)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise CorruptDumpError(f"{path}: {error.strerror}") from error
    return Dump(dtype, shape, np.frombuffer(mapping, np.uint8, size - offset, offset), mapping, offset, name)


def store(  # noqa: PLR0917 (the manifest's facts, in its order)
    objects: Path, link: Path, data: Buffer, dtype: str, shape: Sequence[int], sha256: str
) -> None:
    """Keep a tensor by its content and give it the name `link`.

    The object `objects/<sha256>-<dtype>-<shape>.safetensors` is written once; one that is there is compared
    byte for byte before it is trusted, and replaced when damaged. `link` is a hard link to it, or a copy
    where the file system has none. The object's time is set to now, so that the link is not older than what
    it was made from. Any number of processes may store the same tensor at once. AuditError as by `write`.
    """
    array = raw_bytes(data)
    path = objects / object_name(sha256, dtype, shape)
    if not _holds(path, array, dtype, tuple(shape)):
        write(path, NAME, array, dtype, shape)
    with clear_errors(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        os.utime(path)
        _link(path, link)


def object_name(sha256: str, dtype: str, shape: Sequence[int]) -> str:
    """The file name of a tensor in the store; a scalar's shape is written as `scalar`."""
    return f"{sha256}-{dtype}-{'x'.join(map(str, shape)) or 'scalar'}.safetensors"


def _hard_link(source: Path, link: Path) -> None:
    """As os.link, and again where another process replaces `source`: Linux may then find no file."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            os.link(source, link)
            return
    os.link(source, link)


def _link(source: Path, link: Path) -> None:
    temporary = temporary_beside(link)
    try:
        try:
            _hard_link(source, temporary)
        except OSError as error:
            if error.errno not in _NO_HARD_LINK:
                raise
            shutil.copyfile(source, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(link)
    finally:
        # rename(2) does nothing when both names are links to one file: then the temporary one is still there.
        temporary.unlink(missing_ok=True)
    sync_folder(link.parent)


def _holds(path: Path, data: Bytes, dtype: str, shape: tuple[int, ...]) -> bool:
    try:
        dump = open_dump(path)
    except CorruptDumpError:
        return False
    pieces = (slice(start, start + _PIECE) for start in range(0, data.size, _PIECE))
    return (dump.dtype, dump.shape) == (dtype, shape) and all(
        np.array_equal(dump.data[piece], data[piece]) for piece in pieces
    )


def _header(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _read_header(path: Path, start: bytes, size: int) -> tuple[str, str, tuple[int, ...], int]:
    """Name, dtype, shape and the offset of the data, of a file of `size` bytes that begins with `start`."""
    if len(start) < 8:
        raise CorruptDumpError(f"{path}: truncated: {size} bytes")
    (length,) = struct.unpack_from("<Q", start)
    try:
        entries = json.loads(start[8 : 8 + length])
        if not entries:
            raise CorruptDumpError(f"{path}: holds no tensor")
        ((name, entry),) = entries.items()
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        expected = math.prod(shape) * DTYPES[dtype].raw.itemsize
        wrong = any(type(n) is not int or n < 0 for n in shape) or (begin, end) != (0, expected)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptDumpError(f"{path}: bad header: {start[8 : 8 + min(length, 200)]!r}") from error
    if wrong:
        raise CorruptDumpError(f"{path}: bad header: offsets {begin}, {end} for {dtype} {list(shape)}")
    expected = 8 + length + end
    if size != expected:
        fault = "truncated" if size < expected else "trailing bytes"
        raise CorruptDumpError(f"{path}: {fault}: {size} bytes, its header says {expected}")
    return name, dtype, shape, 8 + length

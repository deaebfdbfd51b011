"""SHA-256 of tensors, and the check of a dump against its manifest."""

import hashlib
from pathlib import Path
from typing import Any

from workflow_scripts.errors import CorruptDumpError
from workflow_scripts.tensors.dump import Buffer, Dump, open_dump, raw_bytes

_PIECE = 1 << 22  # bytes hashed between two releases of a mapped dump's memory


def sha256_of(data: Buffer) -> str:
    """Hex digest of a tensor's logical contiguous bytes."""
    return hashlib.sha256(raw_bytes(data).data).hexdigest()


def sha256_of_dump(dump: Dump) -> str:
    """Hex digest of an open dump's bytes, in bounded memory; lets other threads run."""
    digest = hashlib.sha256()
    for start in range(0, dump.data.size, _PIECE):
        piece = dump.data[start : start + _PIECE]
        digest.update(piece.data)
        dump.release(start, start + piece.size)
    return digest.hexdigest()


def verify(path: Path, entry: dict[str, Any], sha256: str | None = None, name: str | None = None) -> Dump:
    """Open the dump at `path` once it is known to be the tensor of a manifest's entry.

    Size, header, dtype, shape and SHA-256 are checked, and the name in the header where one is given;
    `sha256` is that of the content where it is known already. CorruptDumpError names the file and the fault.
    """
    dump = open_dump(path)
    if name is not None and dump.name != name:
        raise CorruptDumpError(f"{path}: corrupt: its tensor is named {dump.name!r} in place of {name!r}")
    found, told = f"{dump.dtype} {list(dump.shape)}", f"{entry['dtype']} {entry['shape']}"
    if found != told:
        raise CorruptDumpError(f"{path}: corrupt: it holds {found} in place of {told}")
    sha256 = sha256 or sha256_of_dump(dump)
    if sha256 != entry["sha256"]:
        raise CorruptDumpError(f"{path}: corrupt: SHA-256 {sha256} in place of {entry['sha256']}")
    return dump

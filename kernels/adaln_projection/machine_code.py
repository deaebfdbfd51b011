"""The digest of a library's machine code: it changes when the kernel does, and not when a comment does."""

import hashlib
import re
import struct
from pathlib import Path
from typing import NamedTuple

from workflow_scripts.errors import AuditError

CODE_SECTIONS = {
    "cpu": (".text", ".rodata"),
    # .nv_fatbin holds the cubins and the PTX; the host's code chooses which kernel is launched.
    "cuda": (".text", ".rodata", ".nv_fatbin"),
}

# nvcc names what has internal linkage by a digest of the source's absolute path.
# The build's --no-compress keeps those names in sight.
_PATH_DIGEST = re.compile(rb"(_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}_")


class _Section(NamedTuple):
    """Fields of Elf64_Shdr that are needed, in their order (ELF-64 object file format, version 1.5)."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int


def _sections(image: bytes) -> dict[str, bytes]:
    if image[:6] != b"\x7fELF\x02\x01":
        raise AuditError("not a 64-bit little-endian ELF file: the library was built for another system.")
    table_offset, entry_size, count, names_index = struct.unpack_from("<40xQ10xHHH", image)
    headers = [
        _Section(*struct.unpack_from("<IIQQQQ", image, table_offset + entry_size * i)) for i in range(count)
    ]
    names = headers[names_index].offset
    return {
        image[names + section.name : image.index(b"\0", names + section.name)].decode(): image[
            section.offset : section.offset + section.size
        ]
        for section in headers
    }


def code_digest(library: Path, target: str) -> str:
    """The sha256 (hex) of the machine code in a shared library; `target` is "cpu" or "cuda".

    It depends on the code, the compiler and the flags, not on comments or on where the sources are.

    Raises:
        AuditError: the file is not an ELF library, or holds no such code.
    """
    sections = _sections(library.read_bytes())
    digest = hashlib.sha256()
    for name in CODE_SECTIONS[target]:
        if name not in sections:
            raise AuditError(f"{library} has no section {name}: it is not a {target} kernel library.")
        code = _PATH_DIGEST.sub(rb"\1", sections[name])
        digest.update(f"{name} {len(code)}\n".encode())
        digest.update(code)
    return digest.hexdigest()

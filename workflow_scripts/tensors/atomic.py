"""Files appear under their final name whole, or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workflow_scripts.errors import AuditError


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_beside(path: Path) -> Path:
    """A name in the folder of `path` that no other process uses and that no rule declares."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn an OSError (disk full, no permission) into an AuditError that names `path`."""
    try:
        yield
    except OSError as error:
        raise AuditError(
            f"can't write {path}: {error.strerror}; no part of it was left there. "
            "Make room or mend the folder's permissions, then run again."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Yield a file descriptor to write to; on success the file replaces `path`, else nothing is left.

    The data is flushed to the disk before the rename and the folder after it, so that a crash or a kill at
    any moment leaves the old file or the new one. Raises AuditError when the system refuses (disk full, ...).
    """
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_beside(path)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                yield descriptor
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: one `os.write` may take only a part, 2 GB at the most."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_text(path: Path, text: str) -> None:
    """Write a small text file, UTF-8, atomically."""
    with replacing(path) as descriptor:
        write_all(descriptor, text.encode())

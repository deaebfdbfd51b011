"""Manifests: read and written in one way only, so that a damaged one is never believed.

A manifest's last key is `digest`, the SHA-256 of all that stands before it, written as canonical JSON. The
text itself is a function of the content, so any changed byte is found.
"""

import hashlib
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow_scripts.errors import AuditError, CorruptDumpError
from workflow_scripts.tensors.atomic import write_text
from workflow_scripts.tensors.digest import verify
from workflow_scripts.tensors.dump import NAME, Dump

SCHEMA = "bitwise-reuse-audit/manifest/1"

Manifest = dict[str, Any]


class CorruptManifestError(AuditError):
    """A manifest is missing, or is not what was written."""


@dataclass(frozen=True)
class Stored:
    """A tensor on the disk: its dump, what it should be (dtype, shape, sha256), what to do when it is not."""

    path: Path
    entry: dict[str, Any]
    cure: str

    def open(self, sha256: str | None = None) -> Dump:
        """The dump, verified as by `digest.verify`; CorruptDumpError also says what to do."""
        try:
            return verify(self.path, self.entry, sha256, NAME)
        except CorruptDumpError as error:
            raise CorruptDumpError(f"{error}; {self.cure}") from error


def stored(path: Path, content: Manifest, name: str, configfile: str = "CONFIG") -> Stored:
    """The tensor of that name of the cell whose manifest lies at `path`."""
    entry = content["tensors"][name]
    return Stored(path.parent / entry["file"], entry, remake_cell(path, configfile))


def remake_cell(path: Path, configfile: str) -> str:
    """How to run the cell of the manifest at `path` again."""
    command = ["snakemake", "--configfile", configfile, "--forcerun", str(path)]
    return f"remake the cell: {shlex.join(command)}"


def write(path: Path, content: Manifest) -> None:
    """Write a manifest atomically, with its digest; AuditError unless it is strict JSON and gets written."""
    body = {key: value for key, value in content.items() if key != "digest"}
    try:
        write_text(path, _text(body | {"digest": _digest(body)}))
    except (ValueError, TypeError) as error:
        raise AuditError(f"can't write {path}: not strict JSON: {error}") from error


def read(path: Path, configfile: str = "CONFIG") -> Manifest:
    """A manifest with its digest; CorruptManifestError says what is wrong and how to remake the cell."""
    try:
        text = path.read_bytes()
        content: Manifest = json.loads(text)
        body = {key: value for key, value in content.items() if key != "digest"}
        sound = content.get("digest") == _digest(body) and text == _text(content).encode()
    except OSError as error:
        fault = str(error.strerror)
    except (ValueError, TypeError, AttributeError, RecursionError):
        fault = "not a manifest's JSON"
    else:
        if sound:
            return content
        fault = "its content does not match its digest"
    raise CorruptManifestError(f"{path}: {fault}; {remake_cell(path, configfile)}")


def _text(content: Manifest) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _digest(body: Manifest) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()

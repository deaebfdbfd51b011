"""Real weights from a safetensors file, in place of made ones."""

import hashlib
import json
import struct
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from workflow_scripts.config_schema import suggest
from workflow_scripts.errors import AuditError

if TYPE_CHECKING:
    from torch import Tensor

    from workflow_scripts.operators import Layout

ROLES = {"weight": "w", "bias": "b"}


def check_weights(weights: dict[str, str], shapes: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """Check that the named tensors are there and are what the operator wants; reads the file's header only.

    Args:
        weights: the configuration's `weights`: file, weight, bias.
        shapes: dtype and shape of the operator's inputs `w` and `b`.

    Raises:
        AuditError: no such file or tensor, or a wrong dtype or shape.
    """
    path = Path(weights["file"])
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
            for role, name in ((r, weights[r]) for r in ROLES):
                if name not in names:
                    raise AuditError(f"weights.{role}: {path} has no tensor {name!r}{suggest(name, names)}")
                entry = file.get_slice(name)
                found = entry.get_dtype(), tuple(entry.get_shape())
                wanted = shapes[ROLES[role]]
                if found != wanted:
                    kinds = [f"{dtype} {list(shape)}" for dtype, shape in (found, wanted)]
                    raise AuditError(f"weights.{role}: {name!r} in {path} is {kinds[0]}; expected {kinds[1]}")
    except (OSError, SafetensorError) as error:
        raise AuditError(f"weights.file: {path} cannot be read as safetensors: {error}") from error


def digest_of_weights(weights: dict[str, str]) -> str:
    """SHA-256 of the named tensors, header entries included: what made inputs depend on. Reads all of them.

    Args:
        weights: the configuration's `weights`, checked.
    """
    digest = hashlib.sha256()
    with Path(weights["file"]).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + length])
        for role in ROLES:
            entry = header[weights[role]]
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            digest.update(json.dumps([entry["dtype"], entry["shape"]]).encode())
            with memoryview(content) as view, view[begin:end] as tensor:
                digest.update(tensor)
    return digest.hexdigest()


def load_weights(weights: dict[str, str], layout: "Layout") -> dict[str, "Tensor"]:
    """W and b from the file, checked.

    Raises:
        AuditError: as check_weights.
    """
    check_weights(weights, layout.shapes(1))
    loaded: dict[str, Any] = {}
    with safe_open(weights["file"], framework="pt") as file:
        for role, name in ROLES.items():
            loaded[name] = file.get_tensor(weights[role])
    return loaded

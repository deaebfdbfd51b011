"""Real weights from a safetensors file, in place of made ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

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
                    some = ", ".join(sorted(names)[:5])
                    raise AuditError(f"weights.{role}: {path} has no tensor {name!r}; it has {some}, ...")
                entry = file.get_slice(name)
                found = (entry.get_dtype(), tuple(entry.get_shape()))
                if found != shapes[ROLES[role]]:
                    raise AuditError(
                        f"weights.{role}: {name!r} in {path} is {found[0]} {list(found[1])}; the operator wants "
                        f"{shapes[ROLES[role]][0]} {list(shapes[ROLES[role]][1])}"
                    )
    except (OSError, SafetensorError) as error:
        raise AuditError(f"weights.file: {path} cannot be read as safetensors: {error}") from error


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

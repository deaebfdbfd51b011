"""The inputs of a cell: verified when loaded, and put back where a candidate changes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from workflow_scripts.cell.host import NAMES, buffer_of, load_rows, same_bits
from workflow_scripts.errors import AuditError, CorruptDumpError
from workflow_scripts.operators import Operator
from workflow_scripts.tensors.digest import sha256_of

CURE = "make the inputs again: add `--forcerun inputs` to the snakemake command"


class Inputs:
    """The dumped inputs of one case."""

    def __init__(self, operator: Operator, document: Path, case: int, device: str) -> None:
        """`document` is inputs.json; the dumps lie beside it.

        Raises:
            AuditError: the document is unreadable or lacks the case.
        """
        self._operator, self._folder, self._case, self._device = operator, document.parent, case, device
        try:
            self.entries: dict[str, dict[str, Any]] = json.loads(document.read_text())["cases"][str(case)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AuditError(f"{document} does not describe the inputs of case {case}; {CURE}") from error

    def load(self) -> dict[str, Tensor]:
        """Every input, and `grad`, on the device.

        Raises:
            AuditError: inputs.json describes other tensors than the operator takes, a dump is damaged
                (CorruptDumpError), or its bytes are not those that inputs.json describes.
        """
        return {name: self._verified(name).to(self._device) for name in self._operator.shapes(self._case)}

    def restore(self, used: Mapping[str, Tensor]) -> list[str]:
        """Names of those tensors whose bits are no longer the inputs'; each gets its bits back."""
        changed = []
        for name, tensor in used.items():
            original = self._read(name).to(self._device)
            if not same_bits(tensor.detach(), original):
                tensor.data = original
                changed.append(name)
        return sorted(changed)

    def _read(self, name: str) -> Tensor:
        rows = self._case if name in self._operator.row_inputs else None
        return load_rows(self._path(name), rows)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"

    def _verified(self, name: str) -> Tensor:
        dtype, shape = self._operator.shapes(self._case)[name]
        entry = self.entries.get(name)
        wanted = {"dtype": dtype, "shape": list(shape)}
        if entry is None or wanted != {key: entry[key] for key in wanted}:
            raise AuditError(f"inputs.json describes {name} as {entry}; the operator wants {wanted}; {CURE}")
        try:
            tensor = self._read(name)
        except CorruptDumpError as error:
            raise CorruptDumpError(f"{error}; {CURE}") from error
        if (NAMES[tensor.dtype], tuple(tensor.shape)) != (dtype, shape):
            raise CorruptDumpError(f"{self._path(name)}: is {tensor.dtype} {list(tensor.shape)}; {CURE}")
        if sha256_of(buffer_of(tensor)) != entry["sha256"]:
            raise CorruptDumpError(f"{self._path(name)}: not the bytes that inputs.json describes; {CURE}")
        return tensor

"""Which aten operators have other kernels than before: PyTorch's dispatch table, read twice."""

import sys

import torch

# A library may also put its own function in the place of one of these.
_FUNCTIONS = ("mm", "bmm", "addmm", "matmul", "nn.functional.linear", "nn.functional.silu")


def table(device: str) -> dict[str, str]:
    """For every aten operator, a text that names the kernels a tensor on `device` would get.

    Covers the device's own dispatch key and its autograd key, and a few Python functions by identity. A
    registration over an earlier one changes the text even when both come from the same source line, since the
    earlier one stays listed as inactive.
    """
    key = torch._C._dispatch_key_for_device(device)  # noqa: SLF001 - there is no public way to read the table
    starts = tuple(f"{name}{end}" for name in (key, f"Autograd{key}") for end in (":", " (inactive):"))
    rows = {}
    for name in torch._C._dispatch_get_all_op_names():  # noqa: SLF001
        if name.startswith("aten::"):
            lines = torch._C._dispatch_dump(name) + torch._C._dispatch_dump_table(name)  # noqa: SLF001
            rows[name] = "\n".join(line for line in lines.splitlines() if line.startswith(starts))
    return rows | {f"torch.{name}": _identity(name) for name in _FUNCTIONS}


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The names, sorted, whose entry differs between two tables, or that only one of them has."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _identity(name: str) -> str:
    parent, _, attribute = f"torch.{name}".rpartition(".")
    return str(id(getattr(sys.modules[parent], attribute)))

"""Equality classes: which implementations gave one tensor the same bits in one case."""

from workflow_scripts.report.evidence import Evidence
from workflow_scripts.report.machine import difference
from workflow_scripts.report.words import Json, listing, tensor_name


def same_bits(a: Json, b: Json) -> bool:
    """Whether two tensors of manifests have the same dtype, shape and digest, hence the same bits."""
    return all(a[key] == b[key] for key in ("dtype", "shape", "sha256"))


def apart(a: Json, b: Json) -> list[str]:
    """Why the bits of two cells of one case can't be held against each other; empty when they can.

    Other machines or stacks, other inputs, a tensor that only one cell has.
    """
    reasons = difference(a["environment"], b["environment"])
    inputs = {*a["inputs"], *b["inputs"]}
    if other := sorted(name for name in inputs if a["inputs"].get(name) != b["inputs"].get(name)):
        reasons.append(f"other inputs: {listing(other)}")
    if alone := sorted(a["tensors"].keys() ^ b["tensors"].keys()):
        reasons.append(f"only one has {listing(map(tensor_name, alone))}")
    return reasons


def tensor_classes(cells: dict[str, Json], tensor: str) -> list[Json]:
    """Classes of one tensor among the cells of one case.

    Cells that can't be held against each other (`apart`) are never put into one class, whatever their bits:
    equality there is not evidence that the implementations agree.

    Args:
        cells: manifests of cells that ran, by label.
        tensor: id of the tensor.

    Returns:
        Classes {"sha256", "dtype", "shape", "members"}, the largest first, members sorted.
    """
    classes: list[Json] = []
    for label in sorted(cells):
        entry = cells[label]["tensors"].get(tensor)
        if entry is None:
            continue
        for group in classes:
            if same_bits(group, entry) and not apart(cells[group["members"][0]], cells[label]):
                group["members"].append(label)
                break
        else:
            classes.append({key: entry[key] for key in ("sha256", "dtype", "shape")} | {"members": [label]})
    return sorted(classes, key=lambda group: (-len(group["members"]), group["members"]))


def equality_classes(evidence: Evidence) -> Json:
    """Classes by case (as a string) and tensor, of all cells that ran."""
    classes: Json = {}
    for case in evidence.cases:
        cells = {label: cell for label in evidence.labels if (cell := evidence.ok(label, case))}
        tensors = list(dict.fromkeys(name for cell in cells.values() for name in cell["tensors"]))
        classes[str(case)] = {tensor: tensor_classes(cells, tensor) for tensor in tensors}
    return classes

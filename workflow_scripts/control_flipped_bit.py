"""Control: flip a bit in a copy of a baseline's tensor; the comparison must find it, there and only there."""

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

from workflow_scripts.compare import compare_tensors, not_ok
from workflow_scripts.errors import run_main
from workflow_scripts.tensors import bits, manifest
from workflow_scripts.tensors.atomic import clear_errors, temporary_beside, write_text
from workflow_scripts.tensors.digest import sha256_of_dump
from workflow_scripts.tensors.dtypes import lookup
from workflow_scripts.tensors.dump import open_dump
from workflow_scripts.tensors.manifest import Stored

SCHEMA = "bitwise-reuse-audit/control/1"
Json = dict[str, Any]


def place(entry: Json) -> tuple[int, int]:
    """Flat index of an element and one of its bits (0 is the lowest), drawn from the tensor's digest."""
    number = int(entry["sha256"], 16)
    return (number >> 8) % math.prod(entry["shape"]), number % lookup(entry["dtype"]).width


def flip(path: Path, flat: int, bit: int) -> tuple[str, str]:
    """Flip one bit of one element of the dump at `path`, in place; the element's bits before and after."""
    dump = open_dump(path)
    size = lookup(dump.dtype).raw.itemsize
    with clear_errors(path), path.open("r+b") as file:
        file.seek(dump.offset + flat * size)
        old = int.from_bytes(file.read(size), "little")
        file.seek(dump.offset + flat * size)
        file.write((old ^ (1 << bit)).to_bytes(size, "little"))
    before, after = (f"0x{value:0{2 * size}x}" for value in (old, old ^ (1 << bit)))
    return before, after


def _index(flat: int, shape: list[int]) -> list[int]:
    index: list[int] = []
    for extent in reversed(shape):
        flat, position = divmod(flat, extent)
        index.insert(0, position)
    return index


def run_control(original: Stored, copy: Path) -> tuple[list[str], Json]:
    """Plant the bit in a copy of the dump, made at `copy`; the claims that failed, and what was found."""
    flat, bit = place(original.entry)
    with clear_errors(copy):
        shutil.copyfile(original.path, copy)
    by_digest = compare_tensors(original, Stored(copy, original.entry, original.cure))
    by_bits = bits.compare(original.open(), open_dump(copy))
    before, after = flip(copy, flat, bit)
    entry = original.entry | {"sha256": sha256_of_dump(open_dump(copy))}
    found = compare_tensors(original, Stored(copy, entry, original.cure))
    first = (found["detail"] or {}).get("first", {})
    claims = {
        "an untouched copy is equal": by_digest["equal"] and by_bits.equal and by_bits.differ == 0,
        "a flipped bit is a difference": found["equal"] is False,
        "one element differs": found["differ"] == 1,
        "it is found at its place": (first.get("flat"), first.get("index"))
        == (flat, _index(flat, original.entry["shape"])),
        "with its bits": (first.get("a_bits"), first.get("b_bits")) == (before, after),
    }
    return [claim for claim, holds in claims.items() if not holds], found


def control(path: Path, name: str, copy: Path, configfile: str) -> Json:
    """The control's document. A baseline without that tensor leaves it "not run", with the reason."""
    cell = manifest.read(path, configfile)
    result: Json = {"schema": SCHEMA, "control": "flipped_bit", "status": "not run", "reason": None}
    result |= {"tensor": name}
    result |= {"implementation": cell["implementation"], "case": cell["case"]}
    nothing: Json = {"flat_index": None, "bit": None, "found": None}
    if faults := not_ok(cell):
        return result | {"reason": faults[0]} | nothing
    if name not in cell["tensors"] or not math.prod(cell["tensors"][name]["shape"]):
        return result | {"reason": f"{cell['implementation']} has no element of {name}"} | nothing
    original = manifest.stored(path, cell, name, configfile)
    try:
        failed, found = run_control(original, copy)
    finally:
        copy.unlink(missing_ok=True)
    flat, bit = place(original.entry)
    status, reason = ("failed", "not so: " + "; ".join(failed)) if failed else ("passed", None)
    return result | {"status": status, "reason": reason, "flat_index": flat, "bit": bit, "found": found}


def main() -> int:
    """Run the control; its status is data, so a failed one exits with 0 as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of a baseline's cell")
    parser.add_argument("--tensor", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--configfile", default="CONFIG", help="named in the command that remakes a cell")
    arguments = parser.parse_args()
    output: Path = arguments.output
    output.parent.mkdir(parents=True, exist_ok=True)
    result = control(arguments.manifest, arguments.tensor, temporary_beside(output), arguments.configfile)
    write_text(output, json.dumps(result, indent=2, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)

"""Verify all that an audit keeps: manifests, dumps, and the objects of the store."""

import argparse
import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema

from workflow_scripts.errors import AuditError, CorruptDumpError, run_main
from workflow_scripts.tensors import manifest
from workflow_scripts.tensors.digest import sha256_of_dump
from workflow_scripts.tensors.dump import open_dump
from workflow_scripts.tensors.manifest import CorruptManifestError, Stored

SCHEMA = Path(__file__).resolve().parents[1] / "config" / "schemas" / "manifest.schema.json"
OBJECT = re.compile(r"([0-9a-f]{64})-([A-Z0-9]+)-(scalar|\d+(?:x\d+)*)\.safetensors")
Inode = tuple[int, int]


def tensors_of(path: Path, configfile: str) -> tuple[list[Stored], list[str]]:
    """The tensors that a manifest tells of, or the faults of the manifest."""
    try:
        content = manifest.read(path, configfile)
    except CorruptManifestError as error:
        return [], [str(error)]
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    cure = manifest.remake_cell(path, configfile)
    faults = [
        f"{path}: {error.json_path}: {error.message}; {cure}" for error in validator.iter_errors(content)
    ]
    if faults:
        return [], faults
    return [manifest.stored(path, content, name, configfile) for name in content["tensors"]], []


def objects_in(folder: Path) -> tuple[list[Stored], list[str]]:
    """The objects of a store as their names describe them, and the files that are none."""
    tensors: list[Stored] = []
    faults: list[str] = []
    for path in sorted(folder.iterdir()):
        cure = f"remove it: rm {shlex.quote(str(path))}"
        if match := OBJECT.fullmatch(path.name):
            sha256, dtype, extents = match.groups()
            shape = [] if extents == "scalar" else [int(extent) for extent in extents.split("x")]
            tensors.append(Stored(path, {"dtype": dtype, "shape": shape, "sha256": sha256}, cure))
        else:
            faults.append(f"{path}: not an object of the store, perhaps of a job that was killed; {cure}")
    return tensors, faults


def inode(path: Path) -> Inode | None:
    """What hard links of one file have in common; None for a missing file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def hash_once(tensors: list[Stored], threads: int) -> tuple[dict[Inode | None, str], int]:
    """SHA-256 by inode, each content read once, and the bytes read. Files that aren't dumps are left out."""
    paths = {inode(tensor.path): tensor.path for tensor in tensors}

    def hash_one(path: Path) -> tuple[str, int] | None:
        try:
            dump = open_dump(path)
        except CorruptDumpError:
            return None
        return sha256_of_dump(dump), dump.data.size

    with ThreadPoolExecutor(threads) as pool:
        hashed = dict(zip(paths, pool.map(hash_one, paths.values()), strict=True))
    known = {key: value for key, value in hashed.items() if value is not None}
    return {key: sha256 for key, (sha256, _) in known.items()}, sum(size for _, size in known.values())


def verify(
    manifests: list[Path], objects: Path | None, configfile: str, threads: int = 2
) -> tuple[list[str], str]:
    """Faults, each with the command that mends it, and a summary of what was verified."""
    found = [tensors_of(path, configfile) for path in manifests]
    dumps = [tensor for tensors, _ in found for tensor in tensors]
    kept, strays = objects_in(objects) if objects is not None and objects.is_dir() else ([], [])
    faults = [fault for _, more in found for fault in more]
    digests, size = hash_once(dumps + kept, threads)
    for tensor in dumps + kept:
        try:
            tensor.open(digests.get(inode(tensor.path)))
        except CorruptDumpError as error:
            faults.append(str(error))
    return faults + strays, f"{len(dumps)} dumps of {len(manifests)} cells verified, {size / 1e9:.2f} GB"


def mend_together(faults: list[str]) -> list[str]:
    """One command for all damaged cells, where there are several: what is made of one may read another."""
    commands = {
        fault.rpartition("; remake the cell: ")[2] for fault in faults if "; remake the cell: " in fault
    }
    parted = sorted(command.partition(" --forcerun ") for command in commands)
    if len(parted) < 2:
        return []
    cells = " ".join(cell for _, _, cell in parted)
    return [f"remake all of them: {parted[0][0]} --forcerun {cells}"]


def main() -> int:
    """Print a line for each fault; 1 when there is one, else 0 and the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifests", type=Path, nargs="*", default=[])
    parser.add_argument("--objects", type=Path, help="folder of the content store")
    parser.add_argument("--configfile", required=True, help="named in the command that remakes a cell")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if not arguments.manifests:
        raise AuditError("there is no cell to verify; run the audit first")
    faults, summary = verify(arguments.manifests, arguments.objects, arguments.configfile, arguments.threads)
    print("\n".join(faults + mend_together(faults) or [summary]))
    return 1 if faults else 0


if __name__ == "__main__":
    run_main(main)

"""A thousand flipped bits in dumps and manifests: each is found, named, and mended by the printed command."""

import os
import random
import re
import shlex

import pytest

from tests.workflow.conftest import audit_copy, finished_audit  # noqa: F401 (fixtures)
from tests.workflow.support.running import snakemake
from workflow_scripts.verify import verify

pytestmark = pytest.mark.slow
FLIPS = int(os.environ.get("SOAK_FLIPS", "1000"))
MEND_EVERY = 100  # a mending is a run of the workflow


def flip(path, chance):
    """Flip one bit of a file, in place, so that hard links of it are damaged too; the bit's place."""
    place = chance.randrange(8 * path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(place // 8)
        (byte,) = file.read(1)
        file.seek(place // 8)
        file.write(bytes([byte ^ (1 << place % 8)]))
    return place


def test_every_flipped_bit_is_found_and_named(audit_copy):  # noqa: F811
    chance = random.Random(int(os.environ.get("SOAK_SEED", "0")))
    cells = audit_copy / "results/small/cells"
    manifests = sorted(cells.glob("*/*/manifest.json"))
    files = manifests + sorted(cells.glob("*/*/*.safetensors"))
    objects = cells.parent / "objects"
    for number in range(FLIPS):
        path = chance.choice(files)
        sound, times = path.read_bytes(), path.stat()
        place = flip(path, chance)
        faults, _ = verify(manifests, objects, "small.yaml")
        assert any(fault.startswith(f"{path}: ") for fault in faults), f"bit {place} of {path}: {faults}"
        if number % MEND_EVERY == 0:
            mend(audit_copy, path)
            assert snakemake(audit_copy, "verify").returncode == 0
            manifests = sorted(cells.glob("*/*/manifest.json"))
        else:
            with path.open("r+b") as file:
                file.write(sound)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def mend(folder, path):
    """Do what `verify` prints, as often as it prints something."""
    found = snakemake(folder, "verify")
    assert found.returncode == 1
    name = str(path.relative_to(folder))
    assert name in found.output
    together = re.findall(r"remake all of them: (snakemake .*--forcerun .*)", found.output)
    one = re.findall(r"remake the cell: (snakemake .*--forcerun \S+)", found.output)
    for line in together or one[:1]:
        words = shlex.split(line)
        run = snakemake(folder, *words[words.index("--forcerun") :])
        assert run.returncode == 0, run.output
    for stray in re.findall(r"remove it: rm (\S+)", found.output):
        (folder / stray).unlink(missing_ok=True)

# REQUIRED INPUTS:  config
# DEFINES:          AUDIT, RESULTS, wildcard constraints, the environment of every job, small input functions
import json
import os
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

SOURCE = Path(str(workflow.current_basedir)).parent
if not (SOURCE / "workflow_scripts").is_dir():
    raise WorkflowError(
        f"there is no folder workflow_scripts in {SOURCE}: jobs import whole packages, so Snakemake cannot fetch the"
        " audit file by file, as github(...) does. Clone its repository and name its Snakefile by a local path."
    )
sys.path.insert(0, str(SOURCE))

from kernels.adaln_projection import library
from kernels.adaln_projection.build import compilers_lacking
from workflow_scripts import operators
from workflow_scripts.config import Audit
from workflow_scripts.errors import AuditError
from workflow_scripts.fingerprint import library_versions
from workflow_scripts.lacking import lacking_here
from workflow_scripts.source_closure import closure_digest
from workflow_scripts.tidy import tidy
from workflow_scripts.weights import check_weights, digest_of_weights

try:
    AUDIT = Audit(config)
    LAYOUT = operators.layout(**AUDIT.config["operator"])
    if AUDIT.config["weights"]:
        check_weights(AUDIT.config["weights"], LAYOUT.shapes(1))
except AuditError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"{AUDIT.config['results']}/{AUDIT.config['audit']}"
LOGS = f"{RESULTS}/logs"
# Paths, where rules.x.output would do: of inputs named by their rule Snakemake hashes the whole list for each file.
INPUT_DIGESTS = f"{RESULTS}/inputs/inputs.json"
INPUT_DUMPS = [f"{RESULTS}/inputs/{name}.safetensors" for name in LAYOUT.shapes(1)]
# Where RESULTS really is: Snakemake puts a module's prefix before inputs and outputs, but not before parameters.
PLACE = str(workflow.modifier.path_modifier.modify(RESULTS))
# Jobs go to a cluster, or to the machine that this is.
CLUSTER = workflow.global_resources["_nodes"].value is not None
CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
ON_ERROR = AUDIT.config["on_error"]
GPUS = AUDIT.config["gpus"] if AUDIT.config["device"] == "cuda" else 0
CELLS_PER_GPU = AUDIT.config["cells_per_gpu"]
# Options of launch.
GPU_SLOTS = f"--gpus {GPUS} --cells-per-gpu {CELLS_PER_GPU}"
CONFIGFILE = os.path.relpath(workflow.configfiles[-1]) if workflow.configfiles else "config/config.yaml"

# A job finds `python` (Snakemake's, unless its conda environment comes first) and our packages, wherever the
# workflow is run from. script: is not used: it would let a job see the host's packages.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))
shell.prefix(f"set -euo pipefail; export PYTHONPATH={shlex.quote(str(SOURCE))}; ")

# Snakemake takes GPUs to be endless unless it is told how many there are. A user's `--resources gpu=N` wins, and on
# a cluster it is the scheduler that deals them out.
if not CLUSTER and "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", AUDIT.config["gpus"] * AUDIT.config["cells_per_gpu"])


def grows(limit):
    """A limit of memory (MB) or time (minutes) that grows with each attempt; how many there are, a profile says."""
    return lambda wildcards, attempt: limit * attempt


def unrecorded(value):
    """A parameter on which no result depends: Snakemake does not record those that are functions of outputs."""
    return lambda wildcards, output: value


wildcard_constraints:
    # Not a list of their names: for each file Snakemake would search all of it. Audit.implementation knows them.
    implementation="[^/]+",
    baseline="|".join(AUDIT.baselines),
    case="|".join(map(str, AUDIT.cases)),


def source_files(paths):
    """Files of ours as inputs. Below the working directory they are relative to it, so that a folder which was moved
    or copied with its results is up to date; `local`, so that no module's prefix is put before them."""
    here = Path.cwd()
    paths = map(Path, paths)
    return [local(str(path.relative_to(here) if path.is_relative_to(here) else path)) for path in paths]


@cache
def modules(*names, package="workflow_scripts"):
    """Digest of the source of all our modules that a job imports: an edit of one reruns the job.

    It is a parameter. As inputs, thirty files a job, they would make Snakemake slow on a thousand cells.
    """
    return closure_digest(SOURCE, [f"{package}.{name}" for name in names])


def callable_files(candidate):
    """The source of a candidate's callable, where it is a file on the candidate's own path."""
    name = (candidate["callable"] or "").partition(":")[0].replace(".", "/")
    files = [
        Path(folder, tail) for folder in candidate["path"] for tail in (f"{name}.py", f"{name}/__init__.py")
    ]
    return [local(str(file)) for file in files if name and file.exists()]


def cell_file(name, key="{implementation}", case="{case}"):
    """A file of a cell, or of the cell of a job's wildcards. A path is cheaper than a function, on thousands of jobs."""
    return f"{RESULTS}/cells/{key}/{case}/{name}"


def manifest(key="{implementation}", case="{case}"):
    return cell_file("manifest.json", key, case)


def dumps(key="{implementation}", case="{case}", tensors=LAYOUT.tensor_ids):
    return [cell_file(f"{name}.safetensors", key, case) for name in tensors]


def pairs():
    """Every implementation with every other baseline, in every case."""
    return [
        (case, key, baseline)
        for case in AUDIT.cases
        for key in AUDIT.implementations
        for baseline in AUDIT.baselines
        if key != baseline
    ]


def own_conda(wildcards):
    """The environment of jobs that have none of their own; without it Snakemake's own interpreter runs them."""
    file = AUDIT.config["conda"]
    return str(SOURCE / file) if file else None


def warn_of_full_disk():
    """Say what the logs can't: they lie on the disk that is full."""
    place = Path(PLACE)
    if workflow.is_main_process and place.exists() and shutil.disk_usage(place).free < 2**20:
        print(
            f"error: No space left on device: {place}; make room, then run the same command", file=sys.stderr
        )


def show_summary():
    """The answer, at the end of a run that got as far as a report."""
    summary = Path(PLACE, "report", "summary.txt")
    if workflow.is_main_process and summary.exists():
        print(summary.read_text(), file=sys.stderr)

"""Start a module in a process whose numerics variables are the ones asked for and no others.

Libraries read their variables when they are loaded, so these must be right before Python starts: this module
only rewrites the environment and then replaces itself by the new process. Standard library only, so that any
interpreter can run it.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.gpu_slot import take_gpu
from workflow_scripts.modes.scrub import scrub

RECORD = "BITWISE_REUSE_AUDIT_VARIABLES"
"""Names the variable that tells the new process what was set and what was scrubbed, as JSON."""
SCRATCH = "BITWISE_REUSE_AUDIT_SCRATCH"
"""Names the variable that holds the folder of the process's own compiler caches."""
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "DG_JIT_CACHE_DIR")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variables", default="{}", help="JSON object of variables to set")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the new process")
    parser.add_argument("--path", action="append", default=[], help="folder to put on PYTHONPATH")
    parser.add_argument("--scratch", help="names a local folder for the process's own JIT caches")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of this machine to deal out; 0: needs none")
    parser.add_argument("--cells-per-gpu", type=int, default=1)
    parser.add_argument("--whole-gpu", action="store_true", help="share the GPU with no other job")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def _own_caches(name: str) -> dict[str, str]:
    """Empty compiler caches on local disk, so that no process runs what another one compiled."""
    digest = hashlib.sha256(str(Path(name).absolute()).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"bitwise-reuse-audit-caches-{os.getuid()}" / digest
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    return {SCRATCH: str(folder)} | {variable: str(folder / variable.lower()) for variable in CACHES}


def remove_own_caches() -> None:
    """Remove this process's own compiler caches, when it is done with them."""
    if folder := os.environ.get(SCRATCH):
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Replace this process; returns only by raising AuditError."""
    arguments = _arguments()
    variables = json.loads(arguments.variables)
    environment, scrubbed = scrub(os.environ, variables)
    environment[RECORD] = json.dumps({"set": variables, "scrubbed": scrubbed})
    root = str(Path(__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(
        [root, *(str(Path(folder).absolute()) for folder in arguments.path)]
    )
    environment["PYTHONNOUSERSITE"] = "1"
    if arguments.scratch:
        environment.update(_own_caches(arguments.scratch))
    if arguments.gpus:
        environment.update(
            take_gpu(os.environ, arguments.gpus, arguments.cells_per_gpu, whole=arguments.whole_gpu)
        )
    command = [arguments.python, "-P", "-m", arguments.module, *arguments.arguments]
    try:
        os.execvpe(arguments.python, command, environment)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        raise AuditError(
            f"the interpreter {arguments.python!r} cannot be started: {error.strerror}; "
            "correct the mode's `python` in the configuration"
        ) from error


if __name__ == "__main__":
    run_main(main)

"""Run one implementation on one case in this process, dump its tensors and write its manifest."""

import argparse
import json
import os
import sys
from pathlib import Path

from workflow_scripts.cell.cell import Cell
from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.launch import remove_own_caches


def main() -> int:
    """Entry point of rule cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="JSON: what decides the cell's bits")
    parser.add_argument("--inputs", type=Path, required=True, help="inputs.json")
    parser.add_argument("--objects", type=Path, required=True, help="folder of the content store")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--on-error", choices=("fail", "record"), default="fail")
    arguments = parser.parse_args()
    cell = Cell(
        spec=json.loads(arguments.spec),
        inputs=arguments.inputs,
        objects=arguments.objects,
        folder=arguments.output_dir,
    )
    try:
        outcome = cell.run()
    finally:
        remove_own_caches()
    if outcome.status == "error" and arguments.on_error == "fail":
        raise AuditError(f"{cell.spec['implementation']} on {cell.spec['case']} rows: {outcome.reason}")
    sys.stdout.flush()
    if outcome.end_process:
        os._exit(0)  # the library is half switched on: not even its exit handlers may run
    return 0


if __name__ == "__main__":
    run_main(main)

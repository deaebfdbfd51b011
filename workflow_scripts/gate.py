"""Entry point of rule gate: exit 1, with the reasons, when the audit must not count as passed."""

import argparse
import json
from pathlib import Path

from workflow_scripts.errors import run_main
from workflow_scripts.report.evidence import read_full_report
from workflow_scripts.report.gate import reasons
from workflow_scripts.tensors.atomic import write_text


def main() -> int:
    """Judge a full report; 0 passed, 1 failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True, help="report.full.json")
    parser.add_argument("--output", type=Path, required=True, help='{"passed", "reasons"}')
    options = parser.parse_args()
    found = reasons(read_full_report(options.report))
    document = {"passed": not found, "reasons": found}
    write_text(options.output, json.dumps(document, indent=2) + "\n")
    print("Gate passed." if not found else "Gate failed:\n" + "\n".join(f"  - {reason}" for reason in found))
    return 1 if found else 0


if __name__ == "__main__":
    run_main(main)

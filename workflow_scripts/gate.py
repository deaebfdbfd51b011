"""Entry point of rule gate: exit 1, with the reasons, when the audit must not count as passed."""

import argparse
import json
from pathlib import Path

from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.report.evidence import read_json
from workflow_scripts.report.full import SCHEMA
from workflow_scripts.report.gate import reasons
from workflow_scripts.tensors.atomic import write_text


def main() -> int:
    """Judge a full report; 0 passed, 1 failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True, help="report.full.json")
    parser.add_argument("--output", type=Path, required=True, help='{"passed", "reasons"}')
    options = parser.parse_args()
    report = read_json(options.report)
    if report.get("schema") != SCHEMA:
        raise AuditError(f"{options.report}: is not a full report of this version; give it report.full.json")
    found = reasons(report)
    document = {"passed": not found, "reasons": found}
    write_text(options.output, json.dumps(document, indent=2) + "\n")
    print("Gate passed." if not found else "Gate failed:\n" + "\n".join(f"  - {reason}" for reason in found))
    return 1 if found else 0


if __name__ == "__main__":
    run_main(main)

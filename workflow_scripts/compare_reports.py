"""Compare two reports: what became equal, what stopped being equal; exit 0 same, 1 different, 2 trouble.

    python -P -m workflow_scripts.compare_reports old/report.json new/report.json

With --findings only what was found decides: a change of the environment alone is then no difference.
"""

import argparse
import json
from pathlib import Path

import jsonschema

from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.report.changes import ENVIRONMENT, EQUAL, OTHERWISE, UNEQUAL, changes, comparisons
from workflow_scripts.report.evidence import read_json
from workflow_scripts.report.words import Json, count

SCHEMA = Path(__file__).resolve().parents[1] / "config" / "schemas" / "report.schema.json"


def main() -> int:
    """Compare two reports; 0 same, 1 different, 2 trouble."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a report.json")
    parser.add_argument("new", type=Path, help="another")
    parser.add_argument("--findings", action="store_true", help="let only what was found decide")
    options = parser.parse_args()
    old, new = read_report(options.old), read_report(options.new)
    if old["op"] != new["op"]:
        raise AuditError(f"these are reports of different operators: {old['op']} and {new['op']}")
    found = changes(old, new)
    for heading, lines in found.items():
        if lines:
            print(f"{heading}:")
            print("\n".join(f"  {line}" for line in lines))
    print(verdict(found, len(comparisons(old).keys() & comparisons(new).keys())))
    decisive = [heading for heading in found if not (options.findings and heading == ENVIRONMENT)]
    return 1 if any(found[heading] for heading in decisive) else 0


def read_report(path: Path) -> Json:
    """A report in the published form; AuditError when it is anything else."""
    report = read_json(path)
    if str(report.get("schema")).startswith("bitwise-reuse-audit/report/"):
        raise AuditError(f"{path}: is a full report; give the report.json beside it")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    fault = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(report))
    if fault:
        raise AuditError(f"{path}: is not a report.json: at {fault.json_path}: {fault.message[:200]}")
    return report


def verdict(found: dict[str, list[str]], shared: int) -> str:
    """The closing sentence.

    Args:
        found: what changed, by heading.
        shared: number of comparisons that both reports have.
    """
    if not any(found.values()):
        return f"The same: all {count(shared)} comparisons, and the environment."
    moved = sum(len(found[heading]) for heading in (EQUAL, UNEQUAL, OTHERWISE))
    if not moved:
        return f"Different, but not in any of the {count(shared)} comparisons that both have."
    return (
        f"Different: of {count(shared)} comparisons {len(found[EQUAL])} became equal, "
        f"{len(found[UNEQUAL])} stopped being equal, {len(found[OTHERWISE])} differ by another amount."
    )


if __name__ == "__main__":
    run_main(main)

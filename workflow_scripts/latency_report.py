"""Entry point of rule latency_report: latency.json and latency.md, from the measurements of an audit."""

import argparse
import json
from pathlib import Path

from workflow_scripts.errors import run_main
from workflow_scripts.report.evidence import read_json
from workflow_scripts.report.latency import latencies, markdown
from workflow_scripts.tensors.atomic import write_text


def main() -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audit", type=Path, required=True, help="the audit's config and implementations")
    parser.add_argument("--measurements", type=Path, nargs="+", required=True, help="one a cell")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, required=True)
    options = parser.parse_args()
    document = latencies(read_json(options.audit), [read_json(path) for path in options.measurements])
    write_text(options.json, json.dumps(document, indent=2, allow_nan=False) + "\n")
    write_text(options.markdown, markdown(document))
    return 0


if __name__ == "__main__":
    run_main(main)

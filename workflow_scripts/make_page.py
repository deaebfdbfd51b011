"""Entry point of rule page: report.html, from report.full.json alone."""

import argparse
from pathlib import Path

from workflow_scripts.errors import run_main
from workflow_scripts.report.evidence import read_full_report
from workflow_scripts.report.html import page
from workflow_scripts.tensors.atomic import write_text


def main() -> int:
    """Write the page of a full report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True, help="report.full.json")
    parser.add_argument("--output", type=Path, required=True, help="report.html")
    options = parser.parse_args()
    write_text(options.output, page(read_full_report(options.report)))
    return 0


if __name__ == "__main__":
    run_main(main)

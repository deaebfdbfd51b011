"""Entry point of rules page and bench_page: the page of a report.full.json, with latency after a bench."""

import argparse
from pathlib import Path

from workflow_scripts.errors import run_main
from workflow_scripts.report.evidence import read_full_report, read_json
from workflow_scripts.report.html import page
from workflow_scripts.tensors.atomic import write_text


def main() -> int:
    """Write the page of a full report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True, help="report.full.json")
    parser.add_argument("--latency", type=Path, help="latency.json, shown where it is given")
    parser.add_argument("--output", type=Path, required=True, help="the page")
    options = parser.parse_args()
    measurements = read_json(options.latency)["measurements"] if options.latency else ()
    write_text(options.output, page(read_full_report(options.report), measurements))
    return 0


if __name__ == "__main__":
    run_main(main)

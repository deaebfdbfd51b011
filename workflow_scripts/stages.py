"""Where the time of an audit's cells went, as a table: `python -P -m workflow_scripts.stages DIR`."""

import argparse
import json
from pathlib import Path

import pandas as pd

from workflow_scripts.errors import AuditError, run_main


def table(results: Path) -> pd.DataFrame:
    """Seconds by stage over all cells of an audit: sum, median and maximum.

    Raises:
        AuditError: no cell has run yet.
    """
    files = sorted(results.glob("cells/*/*/timing.json"))
    if not files:
        raise AuditError(f"{results}: no cell has run here; give the folder of an audit, such as results/cpu")
    seconds = pd.DataFrame([json.loads(file.read_text())["seconds"] for file in files])
    stages = seconds.agg(["sum", "median", "max"]).T.round(2).rename_axis("stage")
    return stages.rename(columns=lambda name: f"{name} (s)")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder of an audit")
    print(table(parser.parse_args().results).to_markdown())
    return 0


if __name__ == "__main__":
    run_main(main)

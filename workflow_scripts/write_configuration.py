"""Write the validated configuration beside the results that it led to."""

import argparse
import json
from pathlib import Path

from workflow_scripts.errors import run_main


def main() -> int:
    """Entry point of rule configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--document", required=True, help="JSON")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.write_text(json.dumps(json.loads(arguments.document), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)

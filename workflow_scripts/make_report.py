"""Entry point of rule report: the report's files, from what the audit's jobs left behind."""

import argparse
from pathlib import Path

from workflow_scripts.errors import run_main
from workflow_scripts.report.evidence import read_evidence
from workflow_scripts.report.full import full_report
from workflow_scripts.report.reference import dumps, reference_form
from workflow_scripts.report.summary import short
from workflow_scripts.report.tables import markdown, summary
from workflow_scripts.report.words import Json
from workflow_scripts.tensors.atomic import write_text


def main() -> int:
    """Write report.json, report.full.json, summary.tsv and report.md; print a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audit", type=Path, required=True, help="the audit's config and implementations")
    for kind, help_ in (
        ("manifests", "manifests of the audit's cells"),
        ("compares", "comparisons with the baselines"),
        ("rows", "comparisons of rows across cases, one an implementation"),
        ("controls", "the control that flips a bit, and manifests of the mode that does nothing"),
        ("accuracy", "accuracy against float64, one a case"),
    ):
        parser.add_argument(f"--{kind}", type=Path, nargs="*", default=[], metavar="FILE", help=help_)
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the report")
    options = vars(parser.parse_args())
    folder: Path = options.pop("output_dir")
    report = full_report(read_evidence(**options))
    write(report, folder)
    print(short(report, str(folder)))
    return 0


def write(report: Json, folder: Path) -> None:
    """Write the files of a full report into a folder, which is made if need be."""
    write_text(folder / "report.json", dumps(reference_form(report)))
    write_text(folder / "report.full.json", dumps(report) + "\n")
    write_text(folder / "summary.tsv", summary(report).to_csv(sep="\t", index=False, lineterminator="\n"))
    write_text(folder / "report.md", markdown(report))


if __name__ == "__main__":
    run_main(main)

"""`snakemake --report` of a finished audit: files with captions, categories and labels."""

import re
import zipfile
from pathlib import Path

import pytest

from tests.workflow.support.audits import copy_audit
from tests.workflow.support.running import snakemake

RULES = Path(__file__).parents[2] / "rules"


@pytest.fixture(scope="module")
def archive(finished_audit, tmp_path_factory):
    """The archive that Snakemake makes of the audit and its figure."""
    folder = copy_audit(finished_audit, tmp_path_factory.mktemp("reported") / "audit")
    drawn = snakemake(folder, "figures")
    assert drawn.returncode == 0, drawn.output
    reported = snakemake(folder, "all", "figures", "--report", "whole.zip")
    assert reported.returncode == 0, reported.output
    return folder / "whole.zip"


def test_it_holds_the_files_as_they_are(archive, finished_audit):
    report = finished_audit / "results" / "small" / "report"
    with zipfile.ZipFile(archive) as opened:
        held = {Path(name).name: opened.read(name) for name in opened.namelist() if "/data/raw/" in name}
    assert held.keys() == {"report.html", "summary.tsv", "differing_share.svg"}
    for name in ("report.html", "summary.tsv"):
        assert held[name] == (report / name).read_bytes()
    assert b"<svg" in held["differing_share.svg"]


def test_every_file_has_caption_category_and_labels(archive):
    with zipfile.ZipFile(archive) as opened:
        page = opened.read("whole/report.html").decode()
    for words in (
        "The answer of the audit in one page",
        "Every comparison in one table",
        "Percentage of elements whose raw bits differ",
        "the whole report",
        "every comparison",
        "share of differing elements",
        "Answer",
        "Figures",
    ):
        assert words in page


def test_every_caption_is_used():
    used = re.findall(
        r'caption="report/(\w+\.rst)"', "".join(path.read_text() for path in RULES.glob("*.smk"))
    )
    assert sorted(used) == sorted(path.name for path in (RULES / "report").glob("*.rst"))

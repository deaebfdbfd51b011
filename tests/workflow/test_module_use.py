"""From another workflow as a module, from another directory, with the sources left alone."""

import hashlib

import yaml

from tests.workflow.support.audits import copy_sources, small_audit, tiny_audit, write_audit
from tests.workflow.support.running import snakemake

OUTER = """\
configfile: "outer.yaml"


module bitwise_reuse:
    snakefile:
        "{sources}/Snakefile"
    config:
        config["bitwise_reuse"]
    prefix:
        "audits"


use rule * from bitwise_reuse as bitwise_reuse_*


rule mine:
    default_target: True
    input:
        "audits/results/small/report/report.json",
        "audits/results/small/report/gate.json",
    output:
        "mine.txt",
    shell:
        "cp {{input[0]}} {{output}}"
"""


def digests(folder):
    """Content of all files but Python's caches."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_another_directory_and_results_elsewhere(audit_elsewhere):
    assert (audit_elsewhere / "the results/small/report/report.json").exists()
    assert not (audit_elsewhere / "work/results").exists()
    assert digests(audit_elsewhere / "the sources") == digests(audit_elsewhere / "untouched")


def test_a_module_with_its_own_config_and_prefix(audit_elsewhere, tmp_path):
    sources, outer = tmp_path / "the sources", tmp_path / "outer"
    copy_sources(sources)
    before = digests(sources)
    outer.mkdir()
    write_audit(outer, tiny_audit(kernel=True))
    (outer / "Snakefile").write_text(OUTER.format(sources=sources))
    (outer / "outer.yaml").write_text(
        yaml.safe_dump({"bitwise_reuse": tiny_audit(kernel=True)}, sort_keys=False)
    )
    run = snakemake(outer, configfile="outer.yaml")
    assert run.returncode == 0, run.output
    report = audit_elsewhere / "the results/small/report/report.json"
    assert (outer / "mine.txt").read_bytes() == report.read_bytes()
    assert not (outer / "results").exists()  # all of it is below the prefix
    assert {path.name for path in (outer / "audits").iterdir()} == {"results"}
    assert digests(sources) == before
    assert snakemake(outer, "--dry-run", configfile="outer.yaml").jobs == []


def test_without_its_packages_it_says_what_to_do(tmp_path):
    # What Snakemake has when it fetches single files, as for github(...).
    copy_sources(tmp_path)
    (tmp_path / "workflow_scripts").rename(tmp_path / "not_fetched")
    write_audit(tmp_path, small_audit())
    run = snakemake(tmp_path)
    assert run.returncode == 1
    assert "Clone its repository and name its Snakefile by a local path" in run.output
    assert "Traceback" not in run.output

"""Fifty kills at random moments."""

import os
import random

import pytest

from tests.workflow.conftest import finished_audit  # noqa: F401 (a fixture)
from tests.workflow.support.audits import copy_sources, small_audit, write_audit
from tests.workflow.support.killing import Torment, report_of
from tests.workflow.support.running import snakemake

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("SOAK_KILLS", "50"))


def test_kills_change_nothing(finished_audit, tmp_path, capsys):  # noqa: F811
    folder = tmp_path / "audit"
    copy_sources(folder)
    write_audit(folder, small_audit())
    needed = len(snakemake(folder, "--dry-run").jobs)
    torment = Torment(folder, random.Random(int(os.environ.get("SOAK_SEED", "0")))).go_on(KILLS)
    redone = torment.jobs - needed * torment.audits
    with capsys.disabled():
        print(f"\n{torment.kills} kills over {torment.audits} audits of {needed} jobs: {redone} jobs redone")
    assert torment.reports == {report_of(finished_audit)}
    assert torment.left == []
    # Two cores run two jobs at a time, so a kill loses two at most; what follows them was not done yet.
    assert redone <= 2 * torment.kills

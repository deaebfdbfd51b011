"""What killed jobs left behind is removed, and nothing else."""

import os

from workflow_scripts.tidy import tidy


def test_temporary_files_and_objects_without_a_cell_go(tmp_path):
    cell, objects, kernel = tmp_path / "cells/a/1", tmp_path / "objects", tmp_path / "kernel"
    for folder in (cell, objects, kernel / ".build-x"):
        folder.mkdir(parents=True)
    kept = [objects / "kept.safetensors", kernel / "code.json", cell / "manifest.json"]
    lost = [
        cell / ".out_0.safetensors.1f.tmp",
        objects / ".x.tmp",
        objects / "lost",
        kernel / ".build-x" / "a.so",
    ]
    for path in (*kept, *lost):
        path.write_text("x")
    os.link(kept[0], cell / "out_0.safetensors")
    tidy(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        [*kept, cell / "out_0.safetensors"]
    )
    assert not (kernel / ".build-x").exists()


def test_a_folder_that_is_not_there_is_tidy(tmp_path):
    tidy(tmp_path / "none")

"""Manifests: what is read is what was written, or an error that says what to do."""

import json

import pytest

from tests.unit.fixtures.cells import flip_bit
from workflow_scripts.errors import AuditError
from workflow_scripts.tensors import manifest
from workflow_scripts.tensors.manifest import CorruptManifestError

CONTENT = {
    "schema": "x/1",
    "status": "ok",
    "reason": None,
    "case": 4,
    "scale": 1e-30,
    "name": "é",
    "list": [1, {}],
}


def test_what_is_read_is_what_was_written(tmp_path):
    path = tmp_path / "cell" / "manifest.json"
    manifest.write(path, CONTENT)
    found = manifest.read(path)
    assert list(found) == [*CONTENT, "digest"]
    assert {key: found[key] for key in CONTENT} == CONTENT
    manifest.write(path, found)  # its digest is made anew, not taken over
    assert manifest.read(path) == found


def test_the_same_content_is_the_same_bytes(tmp_path):
    for name in "ab":
        manifest.write(tmp_path / name, CONTENT)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_text().startswith('{\n  "schema": "x/1",\n')
    assert (tmp_path / "a").read_text().endswith('"\n}\n')


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "manifest.json"
    manifest.write(path, CONTENT)
    for position in range(8 * path.stat().st_size):
        flip_bit(path, position // 8, position % 8)
        with pytest.raises(CorruptManifestError):
            manifest.read(path)
        flip_bit(path, position // 8, position % 8)
    assert manifest.read(path)["case"] == 4


@pytest.mark.parametrize("length", [0, 1, 20, -1])
def test_a_truncated_manifest_is_found(tmp_path, length):
    path = tmp_path / "manifest.json"
    manifest.write(path, CONTENT)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CorruptManifestError):
        manifest.read(path)


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"digest": 3}', "[" * 100_000, "\ud800"])
def test_other_json_is_no_manifest(tmp_path, text):
    path = tmp_path / "manifest.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CorruptManifestError):
        manifest.read(path)


def test_a_changed_manifest_with_its_old_digest_is_found(tmp_path):
    path = tmp_path / "manifest.json"
    manifest.write(path, CONTENT)
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | {"case": 5}, indent=2) + "\n")
    with pytest.raises(CorruptManifestError, match="does not match its digest"):
        manifest.read(path)


def test_the_message_names_the_command_that_remakes_the_cell(tmp_path):
    path = tmp_path / "a cell" / "manifest.json"
    with pytest.raises(CorruptManifestError) as caught:
        manifest.read(path, "config/my audit.yaml")
    assert str(caught.value) == (
        f"{path}: No such file or directory; remake the cell: "
        f"snakemake --configfile 'config/my audit.yaml' --forcerun '{path}'"
    )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), {1, 2}])
def test_only_strict_json_is_written(tmp_path, wrong):
    with pytest.raises(AuditError, match="strict JSON"):
        manifest.write(tmp_path / "manifest.json", CONTENT | {"max_abs": wrong})
    assert list(tmp_path.iterdir()) == []

"""An upgraded library changes a cell's parameters, so that the cell is stale."""

import sys
from importlib import metadata

from workflow_scripts.fingerprint import library_versions


def install(folder, name, version):
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_every_cell_depends_on_torch():
    assert f"torch=={metadata.version('torch')}" in library_versions([], None, []).split()


def test_a_library_counts_where_the_mode_names_it(tmp_path):
    install(tmp_path, "my-Library", "1.0")
    assert "my-library==1.0" not in library_versions([], None, [str(tmp_path)])
    for spelling in ("my_library", "My.Library", "my-library"):
        assert "my-library==1.0" in library_versions([spelling], None, [str(tmp_path)])


def test_an_upgrade_shows(tmp_path):
    install(tmp_path / "old", "lib", "1.0")
    install(tmp_path / "new", "lib", "1.0.1")
    old, new = (library_versions(["lib"], None, [str(tmp_path / age)]) for age in ("old", "new"))
    assert old != new


def test_the_first_folder_wins_as_it_does_on_the_path(tmp_path):
    install(tmp_path / "first", "lib", "1")
    install(tmp_path / "second", "lib", "2")
    assert "lib==1" in library_versions(["lib"], None, [str(tmp_path / "first"), str(tmp_path / "second")])


def test_an_absent_library_is_left_out():
    assert "no-such-library" not in library_versions(["no-such-library"], None, [])


def test_a_damaged_installation_is_no_trouble(tmp_path):
    (tmp_path / "half-1.0.dist-info").mkdir()
    assert library_versions(["half"], None, [str(tmp_path)]) == library_versions([], None, [])


def test_another_interpreter_is_asked():
    same = library_versions(["pytest"], None, [])
    assert library_versions(["pytest"], sys.executable, []) == same
    assert library_versions(["pytest"], "/no/such/python", []) == ""

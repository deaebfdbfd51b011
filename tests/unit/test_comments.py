"""A comment-only edit of the kernel is told from an edit of its code, by the text."""

import json

import pytest

from kernels.adaln_projection import library

SOURCE = 'int f() { /* one */ return g("a // b", \'"\');  // two\n}\n'


@pytest.fixture
def package(tmp_path):
    (tmp_path / "reference.cpp").write_text(SOURCE)
    record = {"source_digest": library.source_digest("cpu", tmp_path)}
    record["program_digest"] = library.program_digest("cpu", tmp_path)
    (tmp_path / "build.json").write_text(json.dumps({"libraries": {"cpu": record}}))
    return tmp_path


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("// two", "// three", "comments"),
        ("/* one */", "/* one\n more */", "comments"),
        ("// two\n", "\n", "comments"),
        ("  //", "\t//", "comments"),
        ("", "", "nothing"),
        ("return g", "return h", "program"),
        ('"a // b"', '"a // c"', "program"),  # a string is no comment
        ('"a // b"', '"a"', "program"),
        ("'\"'", "'q'", "program"),
    ],
)
def test_what_changed(package, before, after, change):
    (package / "reference.cpp").write_text(SOURCE.replace(before, after) if before else SOURCE)
    assert library.what_changed(package, ["cpu"], package) == change


@pytest.mark.parametrize("text", ["", "{}", '{"libraries": {"cpu": null}}', '{"libraries": {"cpu": {}}}'])
def test_without_a_record_nothing_is_known(package, text):
    (package / "reference.cpp").write_text(SOURCE + "// three\n")
    (package / "build.json").write_text(text)
    assert library.what_changed(package, ["cpu"], package) == "program"

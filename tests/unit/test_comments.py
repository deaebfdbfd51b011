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
    ("before", "after", "only_comments"),
    [
        ("// two", "// three", True),
        ("/* one */", "/* one\n more */", True),
        ("// two\n", "\n", True),
        ("  //", "\t//", True),
        ("", "", False),  # nothing was edited: no build is pending
        ("return g", "return h", False),
        ('"a // b"', '"a // c"', False),  # a string is no comment
        ('"a // b"', '"a"', False),
        ("'\"'", "'q'", False),
    ],
)
def test_only_comments_changed(package, before, after, only_comments):
    (package / "reference.cpp").write_text(SOURCE.replace(before, after) if before else SOURCE)
    assert library.only_comments_changed(package, ["cpu"], package) is only_comments


@pytest.mark.parametrize("text", ["", "{}", '{"libraries": {"cpu": null}}', '{"libraries": {"cpu": {}}}'])
def test_without_a_record_nothing_is_known(package, text):
    (package / "reference.cpp").write_text(SOURCE + "// three\n")
    (package / "build.json").write_text(text)
    assert library.only_comments_changed(package, ["cpu"], package) is False

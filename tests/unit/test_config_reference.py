"""config/README.md says what the schema says."""

from workflow_scripts.config_reference import README, reference
from workflow_scripts.config_schema import schema


def keys(node, place=""):
    for key, entry in node.get("properties", {}).items():
        yield f"{place}{key}"
        yield from keys(entry, f"{place}{key}.")
        if isinstance(entry.get("additionalProperties"), dict):
            yield from keys(entry["additionalProperties"], f"{place}{key}.<>.")


def test_it_is_up_to_date():
    assert README.read_text(encoding="utf-8") == reference(), "run `make config-reference`"


def test_it_has_every_key_with_a_type_and_a_meaning():
    rows = [line for line in reference().splitlines() if line.startswith("| `") and "](" not in line]
    assert len(rows) == len(list(keys(schema())))
    for row in rows:
        key, kind, _, meaning = (cell.strip() for cell in row.strip("|").split(" | "))
        assert key, row
        assert kind, row
        assert meaning.endswith((".", ")")), row


def test_a_row_reads_as_it_should():
    cells = (
        "`repeats`",
        "integer \u2265 2, \u2264 1000",
        "`2`",
        "Runs of each cell; all must give the same bits.",
    )
    assert f"| {' | '.join(cells)} |" in reference().splitlines()

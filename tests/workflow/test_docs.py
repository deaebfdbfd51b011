"""The documents are true: their commands run, their links lead somewhere, their fields and keys exist.

A fenced block of commands is ```console, a `$` before each command. After the word may stand `exit=1`, the
status of the last command, or `notest=reason`. ```python file=a/b.py writes that file for the commands that
follow it, and ```yaml file=c.yaml append adds to it. Commands on the CPU audit run on a smaller one instead.
Other ```yaml is a configuration, or a part of one, unless the word `profile` follows.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.workflow.support.audits import ROOT
from tests.workflow.support.running import environment

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "config" / "README.md",
    ROOT / "kernels" / "adaln_projection" / "CONTRACT.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SCHEMAS = ROOT / "config" / "schemas"
REFERENCE = ROOT / "docs" / "reference"
# The finished small audit stands in for the CPU audit, in commands that name that one.
STAND_IN = {
    "config/cpu.yaml": "small.yaml",
    "results/cpu": "results/small",
    "diffusers[plain]": "provider[plain]",
    "diffusers.plain": "provider.plain",
    "--case 64": "--case 2",
    "/64/": "/2/",
}


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence, and its lines without the fence's indent."""

    words: tuple[str, ...]
    text: str

    @property
    def options(self) -> dict[str, str]:
        return dict(word.partition("=")[::2] for word in self.words[1:])

    @property
    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", "").splitlines()
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def blocks(path: Path) -> Iterator[Block]:
    fenced = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    for indent, words, text in fenced.findall(path.read_text()):
        yield Block(tuple(words.split()), re.sub(f"^{indent}", "", text, flags=re.MULTILINE))


def kind(block: Block) -> str:
    return block.words[0] if block.words else ""


def runnable(path: Path) -> list[Block]:
    """Blocks of commands that are to be run, and the files that they need."""
    found = [block for block in blocks(path) if kind(block) == "console" or "file" in block.options]
    return [block for block in found if "notest" not in block.options]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def on_the_stand_in(command: str) -> str:
    if "config/cpu.yaml" in command or "results/cpu" in command:
        for word, other in STAND_IN.items():
            command = command.replace(word, other)
    return command


# They run audits of their own.
SLOW = {"add-a-candidate.md", "add-a-mode.md", "first-audit.md", "real-checkpoint-weights.md"}


def runnable_documents():
    for path in DOCUMENTS:
        if runnable(path):
            yield pytest.param(path, id=name(path), marks=[pytest.mark.slow] if path.name in SLOW else [])


@pytest.mark.parametrize("path", list(runnable_documents()))
def test_commands_run(path, audit_copy):
    path_of_tools = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    for block in runnable(path):
        if file := block.options.get("file"):
            (audit_copy / file).parent.mkdir(parents=True, exist_ok=True)
            with (audit_copy / file).open("a" if "append" in block.words else "w") as opened:
                opened.write(block.text)
            continue
        expected = [0] * len(block.commands)
        expected[-1] = int(block.options.get("exit", 0))
        for command, status in zip(block.commands, expected, strict=True):
            done = subprocess.run(
                ["bash", "-c", on_the_stand_in(command)],
                cwd=audit_copy,
                env=environment(PATH=path_of_tools),
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
            assert done.returncode == status, f"$ {command}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_block_of_commands_has_commands_and_known_options(path):
    for block in blocks(path):
        if kind(block) == "console":
            assert block.commands, block.text
            assert block.options.keys() <= {"exit", "notest"}, block.words
            assert block.options.get("notest", "reason"), "say why it is not run"
        assert kind(block) not in {"bash", "sh", "shell"}, "commands are marked console, so that they are run"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert not anchor or anchor in headings(file), link


def headings(path: Path) -> list[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_modules_and_targets_of_make_exist(path):
    for module in re.findall(r"-m (workflow_scripts(?:\.\w+)*\w)", path.read_text()):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), module
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", path.read_text()):
        assert target in targets, target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_files_of_the_repository_exist(path):
    folders = "tests|workflow_scripts|config|profiles|kernels|envs|docs|rules"
    for file in re.findall(rf"`((?:{folders})/[\w./-]+)`", prose(path)):
        assert (ROOT / file).exists(), file


def configuration_schema(*, whole: bool) -> dict[str, Any]:
    schema = json.loads((SCHEMAS / "config.schema.json").read_text())
    return schema if whole else {key: value for key, value in schema.items() if key != "required"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_configurations_are_valid(path):
    """Whole ones and fragments: each key exists and has a value that it may have."""
    for block in blocks(path):
        if kind(block) == "yaml" and "profile" not in block.words:
            content = yaml.safe_load(block.text)
            validator = jsonschema.Draft202012Validator(configuration_schema(whole="audit" in content))
            assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_keys_in_the_text_exist(path):
    """A setting that is named in passing, such as `keep_dumps: false`, of an audit, a profile or a module."""
    settings = " ".join(fields(configuration_schema(whole=True)))
    profile = (ROOT / "profiles" / "slurm" / "config.yaml").read_text()
    known = {"snakefile", *re.findall(r"[a-z_]+", settings + profile)}
    for code in re.findall(r"`([a-z_]+): [^`]+`", prose(path)):
        assert code in known, code


def fields(schema: dict[str, Any]) -> set[str]:
    """Every field of a document, by the path to it: `cells.<name>.tensors`, `pairs[].a`."""
    found: set[str] = set()

    def visit(node: dict[str, Any], path: str) -> None:
        if reference := node.get("$ref"):
            visit(schema["$defs"][reference.rpartition("/")[2]], path)
        for key, below in node.get("properties", {}).items():
            found.add(f"{path}.{key}".lstrip("."))
            visit(below, f"{path}.{key}")
        for word, suffix in (("additionalProperties", ".<name>"), ("items", "[]")):
            if isinstance(node.get(word), dict):
                visit(node[word], path + suffix)
        for choice in [*node.get("oneOf", []), *node.get("anyOf", [])]:
            visit(choice, path)

    visit(schema, "")
    return found


def documented(text: str) -> set[str]:
    """The fields in a document's tables; a heading such as ### `witness` stands before those below it."""
    found, place = set(), ""
    for line in text.splitlines():
        if heading := re.match(r"#+ `?([^`]*)`?$", line):
            place = f"{heading[1]}." if "`" in line else ""
        elif row := re.match(r"\| `([^`]+)` \|", line):
            found.add(place + row[1])
    return found


@pytest.mark.parametrize(("document", "schema"), [("manifest.md", "manifest"), ("report.md", "report.full")])
def test_fields_are_those_of_the_schema(document, schema):
    text = (REFERENCE / document).read_text().rpartition("\n## report.full.json\n")[2]
    assert documented(text) == fields(json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))


def test_words_of_the_report_are_defined_as_in_the_report():
    """Every value that the schema allows for a verdict, a relation, a status or a label has its line."""
    schema = json.loads((SCHEMAS / "report.full.schema.json").read_text())
    text = (REFERENCE / "report.md").read_text()
    entry = schema["properties"]["implementations"]["items"]["properties"]
    rows = re.findall(r"^\| ([a-z' ]+) \|", text, re.MULTILINE)
    assert set(entry["verdict"]["properties"]["verdict"]["enum"]) <= set(rows)
    assert set(schema["properties"]["pairs"]["items"]["properties"]["relation"]["enum"]) <= set(rows)
    comparison = schema["properties"]["comparisons"]["items"]["properties"]["status"]["enum"]
    for word in [*comparison, *schema["$defs"]["way"]["properties"]["label"]["enum"]]:
        assert f"`{word}`" in text, word

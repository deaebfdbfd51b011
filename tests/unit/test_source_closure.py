"""The files that a job depends on are those that it really imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from workflow_scripts.source_closure import _file, _imports, closure

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path.joinpath("workflow_scripts", *name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in [path.parent, *path.parent.parents]:
                if folder == tmp_path:
                    break
                (folder / "__init__.py").touch()
            path.write_text(text)
        return tmp_path

    return write


def names(root, *modules):
    return [Path(f).relative_to(root / "workflow_scripts").as_posix() for f in closure(root, modules)]


def test_imports_are_followed(tree):
    root = tree(
        a="import os\nfrom workflow_scripts import b\n",
        b="def f():\n    from workflow_scripts.part.c import x\n",
        part__c="import workflow_scripts.part.d as d\nx = 1\n",
        part__d="",
        unused="",
    )
    assert names(root, "workflow_scripts.a") == [
        "__init__.py",
        "a.py",
        "b.py",
        "part/__init__.py",
        "part/c.py",
        "part/d.py",
    ]


def test_cycles_end(tree):
    root = tree(a="from workflow_scripts import b\n", b="from workflow_scripts import a\n")
    assert names(root, "workflow_scripts.a") == ["__init__.py", "a.py", "b.py"]


def test_an_attribute_is_no_module(tree):
    root = tree(a="from workflow_scripts.b import f\n", b="def f(): pass\n")
    assert names(root, "workflow_scripts.a") == ["__init__.py", "a.py", "b.py"]


def test_a_module_that_is_not_there(tree):
    with pytest.raises(ValueError, match=r"no module workflow_scripts\.z"):
        closure(tree(a=""), ["workflow_scripts.z"])


def test_a_list_of_several_lines_is_read_without_its_comments(tree):
    root = tree(a="from workflow_scripts import (\n    b,  # not c\n    d as e,\n)\n", b="", c="", d="")
    assert names(root, "workflow_scripts.a") == ["__init__.py", "a.py", "b.py", "d.py"]


def imports(path):
    """What Python's own parser finds."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_imports_of_every_file_are_those_that_python_finds():
    for package in ("workflow_scripts", "kernels"):
        for path in (ROOT / package).rglob("*.py"):
            ours = (name for name in imports(path) if name.split(".")[0] in {"workflow_scripts", "kernels"})
            assert set(_imports(ROOT, path)) == {name for name in ours if _file(ROOT, name)}, path


@pytest.mark.parametrize(
    "module", ["run_cell", "make_inputs", "compare", "compare_rows", "make_report", "gate", "launch"]
)
def test_it_holds_all_that_python_loads(module):
    """The real imports of each entry point, from an interpreter of its own."""
    code = f"""
import sys, workflow_scripts.{module}
ours = ("workflow_scripts", "kernels")
loaded = [m for n, m in sys.modules.items() if n.split(".")[0] in ours]
print(*(module.__file__ for module in loaded if getattr(module, "__file__", None)))
"""
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded <= set(closure(ROOT, [f"workflow_scripts.{module}"]))

"""Which of our source files a module imports, directly or not: what a job must be rerun for."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

# Parsing whole files would take a tenth of each start of Snakemake, of which a job on a cluster has two.
_IMPORT = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+((?:workflow_scripts|kernels)(?:\.\w+)*)"  # of our packages
    r"(?:[ \t]+import[ \t]+(\([^)]*\)|.*))?",
    re.MULTILINE,
)


def closure(root: Path, modules: Iterable[str]) -> list[str]:
    """Files of these modules and of all that they import from our packages, sorted.

    Imports are read off the source, a statement for each module, those inside functions too; a module that is
    imported by a computed name must be named by the caller.

    Args:
        root: the folder that holds our packages.
        modules: dotted names.

    Raises:
        ValueError: there is no such module.
    """
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = _file(root, name)
        if path is None:
            raise ValueError(f"no module {name} under {root}")
        found[name] = path
        waiting += [n for n in _imports(root, path) if n not in found]
        waiting += [parent for parent in _parents(name) if _file(root, parent)]
    return sorted(str(path) for path in found.values())


def closure_digest(root: Path, modules: Iterable[str]) -> str:
    """SHA-256 of the names and contents of the files of `closure`."""
    digest = hashlib.sha256()
    for path in map(Path, closure(root, modules)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _file(root: Path, name: str) -> Path | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            return path
    return None


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:i]) for i in range(1, len(parts)))


@cache
def _imports(root: Path, path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for module, imported in _IMPORT.findall(path.read_text()):
        words = re.findall(r"\w+", re.sub(r"#.*", "", imported))
        names += [module, *(f"{module}.{word}" for word in words)]
    return tuple(name for name in names if _file(root, name))

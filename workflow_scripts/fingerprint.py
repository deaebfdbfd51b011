"""Versions of the libraries that a mode's cells use, read without importing them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import metadata

ALWAYS = ("torch", "triton", "diffusers", "numpy")
_ASK = """
import json, sys
from importlib import metadata
print(json.dumps({d.metadata["Name"]: d.version for d in metadata.distributions()}))
"""


def library_versions(libraries: Sequence[str], python: str | None, path: Sequence[str]) -> str:
    """`name==version` of the libraries and of those that every cell uses; absent ones are left out.

    Args:
        libraries: distributions that the mode names.
        python: the mode's interpreter; None for this one.
        path: the mode's extra folders of packages.
    """
    wanted = {_normal(name) for name in (*ALWAYS, *libraries)}
    found = _installed_here(wanted) if python in (None, sys.executable) else dict(_installed(python))
    for folder in reversed(path):
        here = metadata.distributions(path=[folder])
        found.update({_normal(d.metadata["Name"]): d.version for d in here if d.metadata["Name"]})
    return " ".join(f"{name}=={found[name]}" for name in sorted(wanted & found.keys()))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()  # https://peps.python.org/pep-0503/#normalized-names


def _installed_here(wanted: Iterable[str]) -> dict[str, str]:
    return {name: version for name in wanted if (version := _version_here(name))}


@lru_cache
def _version_here(name: str) -> str | None:
    """Of what is asked for alone, and once: all packages are a twentieth of each start of Snakemake."""
    with suppress(metadata.PackageNotFoundError):
        distribution = metadata.distribution(name)  # by any spelling of its name
        if distribution.metadata["Name"]:
            return distribution.version
    return None


@lru_cache
def _installed(python: str) -> tuple[tuple[str, str], ...]:
    try:
        command = [python, "-P", "-c", _ASK]
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        names = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError):
        return ()  # the cell says that its interpreter cannot be started
    return tuple((_normal(name), version) for name, version in names.items() if name)

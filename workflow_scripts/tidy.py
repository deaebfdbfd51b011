"""Remove what killed jobs left behind: temporary files, and objects that no cell refers to any more."""

import shutil
from pathlib import Path


def tidy(audit: str | Path) -> None:
    """Tidy the folder of an audit. No job of it may be running.

    Temporary files have names like `.out_0.safetensors.1f2e.tmp`, a build's folder `.build-x`. An object with
    one name is in no cell; where the file system has no hard links the cells hold copies, and no object is
    needed.
    """
    for path in Path(audit).rglob(".*"):
        if path.name.endswith(".tmp"):
            path.unlink(missing_ok=True)
        elif path.name.startswith(".build-"):
            shutil.rmtree(path, ignore_errors=True)
    for path in Path(audit, "objects").glob("*"):
        if path.stat().st_nlink == 1:
            path.unlink()

"""A `g++` that compiles the same sources once: in all audits but the first the kernel's library is a copy."""

import shutil
import stat
import sys
from pathlib import Path

# All that decides what is compiled: the options without the output's name, and the files beside the sources.
PROGRAM = """\
#!{python} -SE
import hashlib, os, shutil, sys
from pathlib import Path

words = sys.argv[1:]
if "-o" not in words:
    os.execv("{compiler}", ["{compiler}", *words])
place = words.index("-o") + 1
output = Path(words[place])
key = hashlib.sha256(repr(words[:place] + words[place + 1:]).encode())
for path in sorted(path for path in Path.cwd().iterdir() if path.is_file()):
    key.update(f"{{path.name}} {{path.stat().st_size}}\\n".encode() + path.read_bytes())
kept = Path(__file__).with_name(key.hexdigest())
if not kept.exists():
    if status := os.spawnv(os.P_WAIT, "{compiler}", ["{compiler}", *words]):
        sys.exit(status)
    shutil.copy(output, f"{{kept}}.{{os.getpid()}}")
    os.replace(f"{{kept}}.{{os.getpid()}}", kept)
shutil.copy(kept, output)
"""


def install(folder: Path) -> None:
    """Put the compiler into `folder`, where it also keeps what it made."""
    program = folder / "g++"
    program.write_text(PROGRAM.format(python=sys.executable, compiler=shutil.which("g++")))
    program.chmod(stat.S_IRWXU)

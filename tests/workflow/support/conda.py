"""A local channel and a small `conda` on py-rattler: environments are really solved and installed, offline.

The channel's `python` is this interpreter in a new environment, its `host-libraries` are the packages of this
one, and `stand-in-library` is a package of two versions. What conda-forge's packages solve to is not shown.
"""

import asyncio
import hashlib
import io
import json
import os
import stat
import sys
import sysconfig
import tarfile
from pathlib import Path

LIBRARY = "stand_in_library"
VERSIONS = ("1.0", "2.0")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"

# What Snakemake 9.27 asks of conda, no more.
CONDA = """\
#!{python}
import asyncio, json, os, sys
from pathlib import Path

prefix = str(Path(__file__).resolve().parents[1])
words = sys.argv[1:]
if words == ["--version"]:
    print("conda 26.9.4")
elif words[:1] == ["info"]:
    paths = dict(conda_prefix=prefix, root_prefix=prefix)
    print(json.dumps(dict(**paths, platform="linux-64", conda_version="26.9.4")))
elif words[:2] == ["config", "--get"]:
    print(json.dumps(dict(get=dict(channel_priority="strict"))))
elif words[:2] == ["env", "export"]:
    print(json.dumps(dict(prefix=words[-1])))
elif words[:2] == ["env", "create"]:
    import rattler, yaml

    file, target = (words[words.index(option) + 1] for option in ("--file", "--prefix"))
    wanted = yaml.safe_load(Path(file).read_text())["dependencies"]

    async def create():
        channel = rattler.Channel("file://{channel}")
        machine = rattler.VirtualPackage.detect()
        platforms = ["linux-64", "noarch"]
        found = await rattler.solve([channel], wanted, platforms=platforms, virtual_packages=machine)
        await rattler.install(found, target, cache_dir=prefix + "/pkgs", show_progress=False)

    asyncio.run(create())
    Path(target, "conda-meta").mkdir(parents=True, exist_ok=True)
    Path(target, "conda-meta", "history").touch()
    sys.stdout.flush()
    os._exit(0)  # py-rattler 0.28 now and then crashes while the interpreter shuts down
elif words[:1] != ["clean"]:
    sys.exit(f"this conda does not know {{words}}")
"""
ACTIVATE = 'export CONDA_PREFIX="$1" CONDA_DEFAULT_ENV="$1" CONDA_SHLVL=1 PATH="$1/bin:$PATH"\n'


def install_conda(prefix: Path) -> Path:
    """Make the channel and `conda` below `prefix`; the folder to put on PATH."""
    channel = prefix / "channel"
    _build_channel(channel)
    programs = prefix / "bin"
    programs.mkdir()
    (programs / "conda").write_text(CONDA.format(python=sys.executable, channel=channel))
    (programs / "conda").chmod(stat.S_IRWXU)
    (programs / "activate").write_text(ACTIVATE)
    return programs


def environment_file(version: str) -> str:
    """An environment with that version of the stand-in library."""
    dependencies = [f"python ={MINOR}", "host-libraries", f"{LIBRARY.replace('_', '-')} ={version}"]
    return json.dumps({"channels": ["local", "nodefaults"], "dependencies": dependencies}, indent=2) + "\n"


def _build_channel(channel: Path) -> None:
    from rattler.index import index_fs

    real = os.path.realpath(sys.executable)
    version = ".".join(map(str, sys.version_info[:3]))
    settings = f"home = {Path(real).parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    links = {"bin/python": real, "bin/python3": "python", f"bin/python{MINOR}": "python"}
    _package(channel, "linux-64", "python", version, {"pyvenv.cfg": settings}, links)
    libraries = {"site-packages/host.pth": sysconfig.get_path("purelib") + "\n"}
    _package(channel, "noarch", "host-libraries", "1.0", libraries)
    for number in VERSIONS:
        files = {
            f"site-packages/{LIBRARY}/__init__.py": f"__version__ = {number!r}\n",
            f"site-packages/{LIBRARY}-{number}.dist-info/METADATA": (
                f"Metadata-Version: 2.1\nName: {LIBRARY}\nVersion: {number}\n"
            ),
        }
        _package(channel, "noarch", LIBRARY.replace("_", "-"), number, files)
    asyncio.run(index_fs(channel, write_zst=False, write_shards=False))


def _package(  # noqa: PLR0917 (what a package is made of)
    channel: Path,
    platform: str,
    name: str,
    version: str,
    texts: dict[str, str],
    links: dict[str, str] | None = None,
) -> None:
    """Write NAME-VERSION-0.tar.bz2; `links` are symbolic links by their path."""
    links = links or {}
    files = {path: text.encode() for path, text in texts.items()}
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "subdir": platform}
    index |= {"depends": ["python"], "noarch": "python"} if platform == "noarch" else {"depends": []}
    paths = [_entry(path, "hardlink", content) for path, content in files.items()]
    paths += [_entry(path, "softlink", b"") for path in links]
    info = {"index.json": index, "paths.json": {"paths": paths, "paths_version": 1}}
    if platform == "noarch":
        kind = {"type": "python", "entry_points": []}
        info["link.json"] = {"noarch": kind, "package_metadata_version": 1}
    archive = channel / platform / f"{name}-{version}-0.tar.bz2"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:bz2") as tar:
        for path, content in {
            **{f"info/{n}": json.dumps(c).encode() for n, c in info.items()},
            **files,
        }.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for path, target in links.items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)


def _entry(path: str, kind: str, content: bytes) -> dict[str, str | int]:
    digest = hashlib.sha256(content).hexdigest()
    return {"_path": path, "path_type": kind, "sha256": digest, "size_in_bytes": len(content)}

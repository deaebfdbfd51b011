"""Writing dumps: atomic, durable, kept once, whatever happens meanwhile."""

import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.fixtures.cells import flip_bit
from workflow_scripts.errors import AuditError
from workflow_scripts.tensors import atomic, dump

ROOT = Path(__file__).parents[2]
DATA = np.arange(5000, dtype=np.uint16)
SHA256 = hashlib.sha256(DATA.tobytes()).hexdigest()


def store(tmp_path, link, data=DATA, shape=(50, 100)):
    dump.store(tmp_path / "objects", tmp_path / link, data, "BF16", shape, hashlib.sha256(data).hexdigest())
    return tmp_path / link


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *map(str, arguments)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from workflow_scripts.tensors import dump
whole = os.write
def half(descriptor, data):
    if len(data) > 1000:
        whole(descriptor, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(descriptor, data)
os.write = half
data = np.arange(5000, dtype=np.uint16)
dump.store(Path(sys.argv[1]), Path(sys.argv[2]), data, "BF16", (50, 100), sys.argv[3])
"""


def test_a_job_killed_while_it_writes_leaves_no_file_under_a_final_name(tmp_path):
    objects, cell = tmp_path / "objects", tmp_path / "cell"
    killed = python(KILLED, objects, cell / "out_0.safetensors", SHA256)
    assert killed.wait() == -signal.SIGKILL
    assert not cell.exists()
    (left,) = names(objects)
    assert left.startswith(".")
    assert left.endswith(".tmp")
    again = store(tmp_path, "cell/out_0.safetensors")  # what the next run does
    assert dump.open_dump(again).data.tobytes() == DATA.tobytes()


def full_disk(after):
    """An os.write whose disk has room for `after` bytes."""
    room, whole = after, os.write

    def write(descriptor, data):
        nonlocal room
        if len(data) > room:
            data = data[:room]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= len(data)
        return whole(descriptor, data)

    return write


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "out_0.safetensors"
    monkeypatch.setattr(os, "write", full_disk(3000))
    with pytest.raises(AuditError, match=r"can't write .*out_0\.safetensors: No space left on device"):
        dump.write(path, "out_0", DATA, "BF16", DATA.shape)
    assert names(tmp_path) == []


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "out_0.safetensors"
    dump.write(path, "out_0", DATA, "BF16", DATA.shape)
    before = path.read_bytes()
    monkeypatch.setattr(os, "write", full_disk(3000))
    with pytest.raises(AuditError):
        dump.write(path, "out_0", DATA + 1, "BF16", DATA.shape)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["out_0.safetensors"]


def test_a_disk_that_fills_when_it_is_flushed(tmp_path, monkeypatch):
    def fsync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(AuditError, match="No space left on device"):
        store(tmp_path, "cell/out_0.safetensors")
    assert names(tmp_path / "objects") == []
    assert not (tmp_path / "cell").exists()


LIMITED = """
import sys
from pathlib import Path
import numpy as np
from workflow_scripts.errors import run_main
from workflow_scripts.tensors import dump
def main():
    dump.write(Path(sys.argv[1]), "out_0", np.zeros(5000, np.uint16), "BF16", (5000,))
    return 0
run_main(main)
"""


def test_a_limit_of_the_system_is_one_message_and_status_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-c", LIMITED, str(tmp_path / "x")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: can't write {tmp_path / 'x'}: File too large")
    assert "Traceback" not in done.stderr
    assert names(tmp_path) == []


def test_the_data_is_on_the_disk_before_its_name_and_the_name_after(tmp_path, monkeypatch):
    events = []
    real = os.fsync

    def fsync(descriptor):
        kind = "folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file"
        events.append((kind, (tmp_path / "x").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    dump.write(tmp_path / "x", "out_0", DATA, "BF16", DATA.shape)
    assert events == [("file", False), ("folder", True)]


def test_files_are_readable_by_others_as_the_umask_says(tmp_path):
    old = os.umask(0o022)
    try:
        dump.write(tmp_path / "x", "out_0", DATA, "BF16", DATA.shape)
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_equal_tensors_are_one_file(tmp_path):
    a, b = store(tmp_path, "a/out_0.safetensors"), store(tmp_path, "b/out_0.safetensors")
    (kept,) = (tmp_path / "objects").iterdir()
    assert kept.name == f"{SHA256}-BF16-50x100.safetensors"
    assert a.stat().st_ino == b.stat().st_ino == kept.stat().st_ino
    assert kept.stat().st_nlink == 3


def test_the_same_bytes_in_another_shape_are_another_object(tmp_path):
    a, b = store(tmp_path, "a", shape=(50, 100)), store(tmp_path, "b", shape=(100, 50))
    assert dump.open_dump(a).shape == (50, 100)
    assert dump.open_dump(b).shape == (100, 50)


def test_storing_again_under_the_same_name_leaves_nothing_beside_it(tmp_path):
    for _ in range(2):  # rename(2) between two links to one file does nothing, and says that it succeeded
        store(tmp_path, "a/out_0.safetensors")
    assert names(tmp_path / "a") == ["out_0.safetensors"]


@pytest.mark.parametrize("damage", ["flipped bit", "truncated", "another header"])
def test_a_damaged_object_is_not_trusted(tmp_path, damage):
    store(tmp_path, "a")
    (kept,) = (tmp_path / "objects").iterdir()
    if damage == "flipped bit":
        flip_bit(kept, -1)
    elif damage == "truncated":
        os.truncate(kept, kept.stat().st_size - 1)
    else:
        dump.write(kept, "tensor", DATA, "F16", (50, 100))
    again = dump.open_dump(store(tmp_path, "b"))
    assert (again.dtype, again.data.tobytes()) == ("BF16", DATA.tobytes())


def test_a_link_is_not_older_than_the_job_that_made_it(tmp_path):
    first = store(tmp_path, "a")
    os.utime(first, (1, 1))
    assert store(tmp_path, "b").stat().st_mtime > 1_000_000_000


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_without_hard_links_a_copy_is_made(tmp_path, monkeypatch, number):
    def link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    a = store(tmp_path, "a/out_0.safetensors")
    assert dump.open_dump(a).data.tobytes() == DATA.tobytes()
    assert a.stat().st_nlink == 1
    assert names(tmp_path / "a") == ["out_0.safetensors"]


def test_a_link_that_misses_the_object_as_it_is_replaced_is_tried_again(tmp_path, monkeypatch):
    # Linux: where rename takes the name of a file while link looks at it, link finds no file.
    real, calls = os.link, []

    def link(source, target):
        calls.append(target)
        if len(calls) == 1:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    a = store(tmp_path, "a/out_0.safetensors")
    assert dump.open_dump(a).data.tobytes() == DATA.tobytes()
    assert (len(calls), a.stat().st_nlink) == (2, 2)


RACE = """
import sys, time
from pathlib import Path
import numpy as np
from workflow_scripts.tensors import dump, digest
root, name = Path(sys.argv[1]), sys.argv[2]
(root / f"{name}.ready").touch()
while len(list(root.glob("*.ready"))) < 3:
    time.sleep(0.001)
for i in range(60):
    data = np.full(30_000, i // 2, np.uint16)
    dump.store(root / "objects", root / name / str(i), data, "BF16", (30_000,), digest.sha256_of(data))
"""


def test_processes_that_store_the_same_tensors_at_once_all_succeed(tmp_path):
    racing = [python(RACE, tmp_path, name) for name in "abc"]
    assert [process.wait() for process in racing] == [0, 0, 0]
    assert len(names(tmp_path / "objects")) == 30
    for name in "abc":
        assert len(names(tmp_path / name)) == 60
        for i in range(60):
            assert set(dump.open_dump(tmp_path / name / str(i)).data.view(np.uint16)) == {i // 2}


def test_a_small_text_is_written_like_a_dump(tmp_path, monkeypatch):
    atomic.write_text(tmp_path / "new" / "x.json", "{}\n")
    assert (tmp_path / "new" / "x.json").read_text() == "{}\n"
    monkeypatch.setattr(os, "write", full_disk(1))
    with pytest.raises(AuditError, match="No space left"):
        atomic.write_text(tmp_path / "new" / "x.json", "{} \n")
    assert names(tmp_path / "new") == ["x.json"]
    assert (tmp_path / "new" / "x.json").read_text() == "{}\n"

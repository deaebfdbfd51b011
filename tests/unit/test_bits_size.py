"""Tensors of more than 2^31 elements: 64-bit counts, and memory bounded by the block."""

import ctypes
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from workflow_scripts.tensors import bits, dump
from workflow_scripts.tensors.dump import Dump

ROOT = Path(__file__).parents[2]
NUMEL = (1 << 31) + 5

COMPARE = """
import json, re, sys
import numpy as np
from pathlib import Path
from workflow_scripts.tensors import bits, dump
a = dump.open_dump(Path(sys.argv[1]))
b = np.zeros(a.data.size, np.uint8)  # the system maps one page of zeros for all that is not written
b[-1] = 7
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
found = bits.compare(a, dump.Dump("U8", a.shape, b))
grown = peak() - before  # ru_maxrss would begin at the peak of the process that started this one
print(json.dumps([found.differ, found.numel, found.max_abs, found.detail["first"]["flat"], grown]))
"""


def test_a_tensor_beyond_two_gigabytes_takes_the_memory_of_a_few_blocks(tmp_path):
    path = tmp_path / "sparse.safetensors"
    dump.write(path, "tensor", b"", "U8", (0,))
    header = json.dumps({"tensor": {"dtype": "U8", "shape": [NUMEL], "data_offsets": [0, NUMEL]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + NUMEL)  # a hole: no blocks on the disk
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMPARE, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    differ, numel, max_abs, first, kilobytes = json.loads(done.stdout)
    assert (differ, numel, max_abs, first) == (1, NUMEL, 7.0, NUMEL - 1)
    assert kilobytes < 300_000  # the tensor has 2,097,152


def repeated(size, value):
    """An array of `size` equal bytes in 16 MB of memory: one piece, mapped again and again."""
    piece = 1 << 24
    file = os.memfd_create("piece")
    os.write(file, bytes([value]) * piece)
    space = mmap.mmap(-1, size)
    start = ctypes.addressof(ctypes.c_char.from_buffer(space))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.mmap.restype = ctypes.c_void_p
    fixed = 0x10
    for offset in range(0, size, piece):
        length = min(piece, size - offset)
        assert (
            libc.mmap(start + offset, length, mmap.PROT_READ, mmap.MAP_SHARED | fixed, file, 0)
            == start + offset
        )
    os.close(file)
    return np.frombuffer(space, np.uint8)


def test_more_than_two_to_the_31_differences_are_counted():
    sides = [Dump("U8", (NUMEL,), repeated(NUMEL, value)) for value in (1, 4)]
    found = bits.compare(*sides, detail=False)
    assert (found.differ, found.max_abs) == (2_147_483_653, 3.0)

"""The gradients' CUDA kernels, run on a CPU thread by thread: their bits, and that no two threads race.

They are compiled for the CPU, with cuda_on_cpu/emulation.h in place of CUDA. This covers what only runs on a
GPU before Hopper, and lets ThreadSanitizer look at the use of shared memory. Clusters and tensor cores are
not emulated.
"""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch

from kernels.adaln_projection import cpu
from kernels.adaln_projection.library import PACKAGE
from tests.unit.fixtures.kernel_inputs import FAMILIES, problem

EMULATION = Path(__file__).parent / "fixtures" / "cuda_on_cpu" / "emulation.h"
MAIN = Path(__file__).parent / "fixtures" / "cuda_on_cpu" / "main.cpp"
SOURCES = ["d_act.cu", "d_weight.cu"]
FLAGS = ["-std=c++17", "-ffp-contract=off", "-march=native", "-pthread", "-fno-strict-aliasing"]

pytestmark = pytest.mark.usefixtures("cpu_kernel")

# T, N, K on both sides of the changes of way: few rows, folding, and tiles (4 multiprocessors).
SHAPES = [
    (1, 77, 40),
    (2, 264, 104),
    (4, 130, 176),
    (7, 1000, 200),
    (9, 264, 40),
    (33, 1537, 176),
    (40, 2304, 168),
    (300, 136, 176),
    (1050, 77, 168),
]


def as_cpp(source: str) -> str:
    """A CUDA source as C++: launches become calls, and what the emulation defines is left out."""
    source = re.sub(r"#include <cuda_\w+\.h>\n", "", source)
    source = re.sub(
        r"(?:template <int \w+>\n)?__device__ inline void \w+\([^)]*\) \{\s*asm .*?\}\n",
        "",
        source,
        flags=re.DOTALL,
    )
    source = re.sub(
        r"extern __shared__ __align__\(16\) char shared_bytes\[\];",
        "char *shared_bytes = emulated::shared;",
        source,
    )
    return re.sub(r"(\w+(?:<\w+>)?)<<<", r"emulated::launch(\1, ", source).replace(">>>(", ")(")


def build(directory: Path, *flags: str, left_out: str = "") -> Path:
    """Compile the sources, without the text `left_out`, into `directory`/emulated."""
    for path in [*PACKAGE.glob("*.cuh"), PACKAGE / "abi.h", *(PACKAGE / name for name in SOURCES)]:
        source = as_cpp(path.read_text())
        (directory / path.name).write_text(source.replace(left_out, "") if left_out else source)
    words = ["g++", *FLAGS, *flags, "-include", str(EMULATION), f"-I{directory}", "-x", "c++"]
    words += [*(str(directory / name) for name in SOURCES), "-o", str(directory / "emulated")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "emulated"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return ctypes.CDLL(str(build(tmp_path_factory.mktemp("emulated"), "-O2", "-shared", "-fPIC")))


def pointers(*tensors):
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def sizes(*values):
    return [ctypes.c_int64(value) for value in values]


def gradients(library, act, weight, grad_table):
    (rows, n), k = grad_table.shape, weight.shape[1]
    d_act, d_weight, d_bias = (
        torch.full((rows, k), 7.0),
        torch.empty_like(weight),
        torch.empty_like(weight[:, 0]),
    )
    shape = [*sizes(rows, n, k), None]
    assert library.adaln_cuda_d_act(*pointers(grad_table, weight, d_act), *shape) == 0
    assert library.adaln_cuda_d_weight_bias(*pointers(grad_table, act, d_weight, d_bias), *shape) == 0
    return d_act, d_weight, d_bias


def bits(tensor):
    return tensor.view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32)


def assert_reference_bits(library, family, rows, n, k):
    act, weight, _, grad_table = problem(family, rows, n, k)
    expected = [cpu.d_act(grad_table, weight), *cpu.d_weight_bias(grad_table, act)]
    for one, other in zip(gradients(library, act, weight, grad_table), expected, strict=True):
        nan = torch.isnan(other)  # a CPU's NaNs keep a payload, a GPU's do not
        assert torch.equal(torch.isnan(one), nan)
        assert torch.equal(bits(one)[~nan], bits(other)[~nan])


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_the_gradients_have_the_reference_s_bits(emulated, rows, n, k):
    assert_reference_bits(emulated, "spread", rows, n, k)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_kinds_of_values_have_the_reference_s_bits(emulated, family):
    assert_reference_bits(emulated, family, 35, 264, 176)


def test_rows_that_would_take_tiles_are_folded_where_a_tile_does_not_fit(emulated):
    emulated.emulate_shared_bytes(163 << 10)  # compute capability 8.0
    try:
        assert_reference_bits(emulated, "spread", 1030, 136, 168)
    finally:
        emulated.emulate_shared_bytes(227 << 10)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("rows", "n", "k"), [(4, 200, 40), (1030, 77, 168)])
def test_all_kinds_of_values_in_slices_and_tiles_too(emulated, family, rows, n, k):
    assert_reference_bits(emulated, family, rows, n, k)


def races(directory, **words):
    """The status of a run under ThreadSanitizer and what it says; some kernels' ASLR is too much for it."""
    program = str(build(directory, "-O1", "-g", "-fsanitize=thread", str(MAIN), **words))
    for command in ([program], ["setarch", "-R", program]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if "unexpected memory mapping" not in done.stderr and "failed to set personality" not in done.stderr:
            return done.returncode, done.stderr
    pytest.skip(f"ThreadSanitizer can't run here: {done.stderr.strip()}")


def test_no_two_threads_race(tmp_path):
    assert races(tmp_path) == (0, "")


@pytest.mark.slow
def test_a_missing_barrier_is_found(tmp_path):
    _, found = races(tmp_path, left_out="shared.buffers.begin_to_read(stage);")
    assert "data race" in found

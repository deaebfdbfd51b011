"""The dump format against the safetensors library, and files that are not what they should be."""

import json
import struct
from contextlib import suppress

import numpy as np
import pytest
import safetensors.numpy

from tests.unit.fixtures.cells import flip_bit
from workflow_scripts.errors import AuditError, CorruptDumpError
from workflow_scripts.tensors import dump

ARRAYS = {
    "F64": np.array([[1.5, -0.0], [np.nan, np.inf]]),
    "F32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "F16": np.arange(3, dtype=np.float16),
    "I64": np.array([-(2**63), 2**63 - 1]),
    "U16": np.array([[[1, 2, 3]]], np.uint16),
    "I8": np.array(-5, np.int8),
    "BOOL": np.array([True, False, True]),
    "U8": np.zeros((0, 4), np.uint8),
}


@pytest.mark.parametrize("dtype", ARRAYS)
def test_a_dump_is_byte_for_byte_what_the_library_writes(tmp_path, dtype):
    array = ARRAYS[dtype]
    dump.write(tmp_path / "x", "out_0", array, dtype, array.shape)
    assert (tmp_path / "x").read_bytes() == safetensors.numpy.save({"out_0": array})


def test_a_bf16_dump_is_what_the_library_loads(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    array = np.array([0x0000, 0x8000, 0x3F80, 0x7FC1], np.uint16)
    dump.write(tmp_path / "x", "out_0", array, "BF16", (2, 2))
    loaded = load_file(tmp_path / "x")["out_0"]
    assert loaded.dtype == torch.bfloat16
    assert loaded.view(torch.uint16).tolist() == [[0x0000, 0x8000], [0x3F80, 0x7FC1]]


@pytest.mark.parametrize("dtype", ARRAYS)
def test_a_file_of_the_library_is_read(tmp_path, dtype):
    array = ARRAYS[dtype]
    safetensors.numpy.save_file({"whatever": array}, tmp_path / "x")
    found = dump.open_dump(tmp_path / "x")
    assert (found.dtype, found.shape, found.data.tobytes()) == (dtype, array.shape, array.tobytes())


def test_an_empty_dump_has_no_tensor_to_compare(tmp_path):
    dump.write_empty(tmp_path / "x")
    assert safetensors.numpy.load_file(tmp_path / "x") == {}
    with pytest.raises(CorruptDumpError, match="holds no tensor"):
        dump.open_dump(tmp_path / "x")


def test_the_logical_bytes_of_a_view_are_written(tmp_path):
    table = np.arange(64 * 96, dtype=np.uint16).reshape(64, 96)
    part = table[:, 16:32]
    dump.write(tmp_path / "x", "out_0", part, "BF16", part.shape)
    found = dump.open_dump(tmp_path / "x")
    assert found.data.tobytes() == b"".join(table[row, 16:32].tobytes() for row in range(64))
    assert (tmp_path / "x").stat().st_size < 2048 + 200  # the table behind it has 12,288 bytes


def test_bytes_that_do_not_fit_the_shape_are_refused(tmp_path):
    with pytest.raises(AuditError, match=r"BF16 \[3\] takes 6 bytes, 4 were given"):
        dump.write(tmp_path / "x", "out_0", b"four", "BF16", (3,))
    assert list(tmp_path.iterdir()) == []


def test_rows_and_released_memory_hold_the_same_bytes(tmp_path):
    array = np.arange(300_000, dtype=np.uint16).reshape(300, 1000)
    dump.write(tmp_path / "x", "out_0", array, "U16", array.shape)
    found = dump.open_dump(tmp_path / "x")
    rows = found.first_rows(7)
    assert (rows.shape, rows.data.tobytes()) == ((7, 1000), array[:7].tobytes())
    found.release(0, found.data.size)
    found.release(5, 6)
    assert found.data.tobytes() == array.tobytes()


def refused(path, content, word):
    path.write_bytes(content)
    with pytest.raises(CorruptDumpError, match=word) as caught:
        dump.open_dump(path)
    return str(path) in str(caught.value)


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "x"
    dump.write(path, "out_0", b"sixsix", "BF16", (3,))
    content = path.read_bytes()
    assert refused(path, content[:-1], "truncated")
    assert refused(path, content + b"\0", "trailing bytes")
    assert refused(path, b"", "truncated")
    assert refused(path, content[:20], "bad header")
    assert refused(path, struct.pack("<Q", 1 << 60) + content[8:], "bad header")
    assert refused(path, struct.pack("<Q", 100_000) + b"[" * 100_000, "bad header")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F99", "shape": [3], "data_offsets": [0, 6]},
        {"dtype": "BF16", "shape": [3], "data_offsets": [2, 8]},
        {"dtype": "BF16", "shape": [4], "data_offsets": [0, 6]},
        {"dtype": "BF16", "shape": [-3, -1], "data_offsets": [0, 6]},
        {"dtype": "BF16", "shape": ["3"], "data_offsets": [0, 6]},
        {"dtype": "BF16", "shape": [3.0], "data_offsets": [0, 6]},
        {"dtype": "BF16", "shape": 3, "data_offsets": [0, 6]},
        {"dtype": "BF16", "shape": [3]},
        ["BF16", [3], [0, 6]],
    ],
)
def test_a_header_that_makes_no_sense_is_named(tmp_path, entry):
    text = json.dumps({"out_0": entry}).encode()
    assert refused(tmp_path / "x", struct.pack("<Q", len(text)) + text + b"sixsix", "bad header")


def test_a_file_of_two_tensors_is_no_dump(tmp_path):
    content = safetensors.numpy.save({"a": ARRAYS["F32"], "b": ARRAYS["F32"]})
    assert refused(tmp_path / "x", content, "bad header")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorruptDumpError, match="No such file"):
        dump.open_dump(tmp_path / "x")


def test_no_flipped_bit_of_a_header_is_more_than_a_corrupt_dump(tmp_path):
    path = tmp_path / "x"
    dump.write(path, "t", b"sixsix", "BF16", (3,))
    for position in range(8 * (path.stat().st_size - 6)):
        flip_bit(path, position // 8, position % 8)
        # What opens all the same has another name, or a dtype of the same width, which the manifest tells.
        with suppress(CorruptDumpError):
            assert len(dump.open_dump(path).data) == 6
        flip_bit(path, position // 8, position % 8)

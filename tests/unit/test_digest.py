"""Digests, and the check of a dump against its manifest's entry."""

import hashlib

import numpy as np
import pytest

from tests.unit.fixtures.cells import flip_bit
from workflow_scripts.errors import CorruptDumpError
from workflow_scripts.tensors import digest, dump

ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)
ENTRY = {"dtype": "F32", "shape": [3, 4], "sha256": hashlib.sha256(ARRAY.tobytes()).hexdigest()}


@pytest.fixture
def path(tmp_path):
    dump.write(tmp_path / "x", "out_0", ARRAY, "F32", ARRAY.shape)
    return tmp_path / "x"


def test_known_digests():
    # FIPS 180-4, and the digest of nothing
    assert digest.sha256_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest.sha256_of(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_logical_contiguous_bytes_are_hashed():
    table = np.arange(60, dtype=np.uint16).reshape(6, 10)
    for view in (table[:, 2:5], table.T, table[::-2], memoryview(table)[1:3]):
        assert digest.sha256_of(view) == hashlib.sha256(np.array(view).tobytes()).hexdigest()


def test_a_dump_larger_than_a_piece_is_hashed_whole(tmp_path):
    data = np.random.default_rng(0).bytes((1 << 23) + 5)
    dump.write(tmp_path / "x", "out_0", data, "U8", (len(data),))
    assert digest.sha256_of_dump(dump.open_dump(tmp_path / "x")) == hashlib.sha256(data).hexdigest()


def test_a_sound_dump_is_opened(path):
    found = digest.verify(path, ENTRY)
    assert found.data.tobytes() == ARRAY.tobytes()


def test_every_flipped_bit_of_the_data_is_found(path):
    for position in range(8 * ARRAY.nbytes):
        flip_bit(path, -1 - position // 8, position % 8)
        with pytest.raises(CorruptDumpError, match="SHA-256"):
            digest.verify(path, ENTRY)
        flip_bit(path, -1 - position // 8, position % 8)


@pytest.mark.parametrize(("key", "told"), [("dtype", "I32"), ("shape", [4, 3]), ("sha256", "0" * 64)])
def test_a_dump_of_something_else_is_refused(path, key, told):
    with pytest.raises(CorruptDumpError, match="in place of") as caught:
        digest.verify(path, ENTRY | {key: told})
    assert str(path) in str(caught.value)

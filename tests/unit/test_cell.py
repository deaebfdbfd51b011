"""What becomes of a candidate that is right, and of one that is not."""

import hashlib
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.unit.fixtures.small_cell import run_cell, write_inputs
from workflow_scripts.cell import cell as cell_module
from workflow_scripts.cell.cell import StorageError, sentence
from workflow_scripts.errors import AuditError
from workflow_scripts.tensors import dump, manifest

SCHEMA = Path(__file__).parents[2] / "config" / "schemas" / "manifest.schema.json"
TENSORS = ["out_0", "grad_temb", "grad_w", "grad_b"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    return lambda callable_=None, **changes: run_cell(tmp_path, monkeypatch, callable_, **changes)


def opened(tmp_path, name, callable_):
    return dump.open_dump(tmp_path / "cells" / callable_ / "4" / f"{name}.safetensors")


def digests(document):
    return {name: entry["sha256"] for name, entry in document["tensors"].items()}


def test_a_right_candidate_is_ok_and_its_manifest_is_complete(run):
    found = run("behaving:expression")
    assert (found["status"], found["reason"]) == ("ok", None)
    assert list(found["tensors"]) == TENSORS
    assert found["repeats"] == {"runs": 2, "differ": []}
    assert found["inputs_changed"] == []
    assert "aten::addmm" in found["witness"]["kernels"]["forward"]
    assert "aten::silu_backward" in found["witness"]["kernels"]["backward"]
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))


def test_dumps_hold_what_the_expression_gives(run, tmp_path):
    run("behaving:expression")
    generator = torch.Generator().manual_seed(1)
    w = (torch.randn(576, 64, generator=generator) * 64**-0.5).bfloat16().requires_grad_()
    b = (torch.randn(576, generator=generator) * 0.02).bfloat16().requires_grad_()
    temb = torch.randn(4, 64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    grad = torch.randn(4, 576, generator=torch.Generator().manual_seed(4)).bfloat16()
    table = functional.linear(functional.silu(temb).bfloat16(), w, b)
    table.backward(grad)
    for name, tensor in zip(TENSORS, (table, temb.grad, w.grad, b.grad), strict=True):
        expected = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
        assert opened(tmp_path, name, "behaving:expression").data.tobytes() == expected


def test_the_same_outcome_gives_the_same_manifest(run):
    assert run("behaving:expression") == run("behaving:expression")


@pytest.mark.parametrize(
    ("name", "strides"),
    [("six_chunks", [576, 1]), ("strided_view", [3456, 1]), ("column_major", [1, 4])],
)
def test_the_layout_in_memory_changes_no_bit(run, tmp_path, name, strides):
    expected, found = run("behaving:expression"), run(f"behaving:{name}")
    assert found["tensors"]["out_0"]["strides"] == strides
    assert digests(found)["out_0"] == digests(expected)["out_0"]
    assert (
        opened(tmp_path, "out_0", f"behaving:{name}").data.size == 4 * 576 * 2
    )  # not the table behind a view


def test_digests_are_those_of_the_dumped_bytes(run, tmp_path):
    for name, sha256 in digests(run("behaving:strided_view")).items():
        data = opened(tmp_path, name, "behaving:strided_view").data
        assert hashlib.sha256(data.tobytes()).hexdigest() == sha256


def test_equal_tensors_are_stored_once(run, tmp_path):
    run("behaving:expression")
    before = {path.name for path in (tmp_path / "objects").iterdir()}
    run("behaving:strided_view")
    assert {path.name for path in (tmp_path / "objects").iterdir()} == before


def test_nan_is_a_value_like_any_other(run, tmp_path):
    found = run("behaving:nan")
    assert found["status"] == "ok"
    assert found["repeats"]["differ"] == []
    table = opened(tmp_path, "out_0", "behaving:nan").data.view(np.uint16).reshape(4, 576)
    assert (table[:, 0] & 0x7FFF > 0x7F80).all()
    assert not (table[:, 1:] & 0x7FFF > 0x7F80).any()


def test_memory_that_is_written_in_full_is_no_false_alarm(run):
    assert run("behaving:written_empty")["repeats"]["differ"] == []


def test_no_run_is_under_a_dispatch_mode(run):
    found = run("behaving:under_no_mode")
    assert (found["status"], found["reason"]) == ("ok", None)


def test_bias_before_and_after_rounding_differ(run):
    assert (
        digests(run("behaving:bias_before_rounding"))["out_0"]
        != digests(run("behaving:bias_after_rounding"))["out_0"]
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("five_chunks", "ValueError: the result has 5 chunks; expected 6"),
        ("uneven_chunks", "ValueError: chunk 0 has shape [12, 33]; expected [3 x rows, 32]"),
        ("none_among_chunks", "TypeError: chunk 5 is NoneType; expected a tensor"),
        ("nothing", "TypeError: the result is NoneType; expected the table or its six chunks"),
        ("float32_table", "TypeError: the table is torch.float32; expected torch.bfloat16"),
        ("too_many_rows", "ValueError: the output has shape [8, 576]; expected [4, 576]"),
        ("other_device", "ValueError: the output is on meta; expected cpu"),
        ("no_graph", "ValueError: the output does not depend on any input that requires a gradient"),
        ("without_temb", "ValueError: the gradient of temb is None: the output does not depend on temb"),
        ("an_input", "ValueError: the gradient of temb is None: the output does not depend on temb"),
        ("raises", "RuntimeError: boom: the kernel"),
        ("exits", "SystemExit: this library wants a licence"),
    ],
)
def test_what_is_not_the_operators_result_is_an_error(run, tmp_path, name, reason):
    found = run(f"misbehaving:{name}")
    assert (found["status"], found["reason"]) == ("error", reason)
    assert found["tensors"] == {}
    assert [found[key] for key in ("repeats", "witness", "callable")] == [None, None, None]
    for tensor in TENSORS:
        with pytest.raises(AuditError, match="holds no tensor"):
            opened(tmp_path, tensor, f"misbehaving:{name}")
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))


def test_a_change_that_autograd_sees_is_an_error_with_a_readable_reason(run):
    found = run("misbehaving:changes_leaf")
    assert found["status"] == "error"
    assert found["reason"].startswith("the candidate changes an input in place, which autograd refuses: ")


@pytest.mark.parametrize(("name", "changed"), [("changes_temb", ["temb"]), ("changes_grad", ["grad"])])
def test_changed_inputs_are_named_and_put_back(run, tmp_path, name, changed):
    before = {path: path.read_bytes() for path in (tmp_path / "inputs").glob("*")}
    expected, found = run("behaving:expression"), run(f"misbehaving:{name}")
    assert (found["status"], found["inputs_changed"]) == ("ok", changed)
    assert found["repeats"]["differ"] == []  # the second run got the inputs as they were
    assert digests(found)["out_0"] == digests(expected)["out_0"]
    assert all(path.read_bytes() == content for path, content in before.items())
    assert run("behaving:six_chunks")["tensors"]["grad_b"] == expected["tensors"]["grad_b"]


@pytest.mark.parametrize(
    ("name", "differ"),
    [
        ("other_bits_later", ["out_0"]),
        ("other_bits_later_in_one_buffer", ["out_0"]),
        ("unwritten_tail", ["out_0"]),
        ("unwritten_gradient", ["grad_b", "grad_temb", "grad_w"]),
    ],
)
def test_what_is_not_repeatable_is_named(run, monkeypatch, name, differ):
    from tests.workflow.candidates import misbehaving

    monkeypatch.setattr(misbehaving, "_calls", iter(range(9)))
    monkeypatch.setattr(misbehaving, "_buffers", {})
    found = run(f"misbehaving:{name}")
    assert (found["status"], found["repeats"]["differ"]) == ("ok", differ)


def test_every_repeat_counts(run, monkeypatch):
    from tests.workflow.candidates import misbehaving

    monkeypatch.setattr(misbehaving, "_calls", iter([0, 0, 0, 1]))  # the fourth run is the first to differ
    found = run("misbehaving:other_bits_later", repeats=4)
    assert found["repeats"] == {"runs": 4, "differ": ["out_0"]}


def test_our_kernel_refuses_a_bf16_temb(run):
    found = run("misbehaving:kernel_on_bf16_temb")
    assert found["status"] == "error"
    assert found["reason"] == "TypeError: adaln_projection: temb must be torch.float32, got torch.bfloat16"


def test_a_bf16_temb_moves_about_half_of_the_outputs(run, tmp_path):
    run("behaving:expression")
    run("behaving:bf16_temb")
    tables = [
        opened(tmp_path, "out_0", f"behaving:{n}").data.view(np.uint16) for n in ("expression", "bf16_temb")
    ]
    assert 0.2 < np.mean(tables[0] != tables[1]) < 0.8


@pytest.mark.parametrize("missing", ["no.such.module:function", "tests.workflow.candidates.behaving:absent"])
def test_a_callable_that_cannot_be_imported_is_an_error(run, missing):
    found = run(None, callable=missing, candidate="candidate")
    assert found["status"] == "error"
    assert missing.partition(":")[2 if "absent" in missing else 0].split(".")[0] in found["reason"]


def test_a_dump_that_cannot_be_written_is_not_the_candidates_fault(run, tmp_path, monkeypatch):
    def full(*_):
        raise AuditError("can't write x: No space left on device")

    monkeypatch.setattr(cell_module.dump, "store", full)
    with pytest.raises(StorageError, match="No space left"):
        run("behaving:expression")
    assert not list(tmp_path.glob("cells/*/*/manifest.json"))


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damaged_inputs_stop_the_cell_and_say_what_to_do(run, tmp_path, damage):
    path = write_inputs(tmp_path / "inputs").parent / "w.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flip" else content[:-1])
    with pytest.raises(StorageError, match=r"w\.safetensors.*--forcerun inputs"):
        run("behaving:expression")
    assert not list(tmp_path.glob("cells/*/*/manifest.json"))


def test_inputs_in_bf16_where_float32_is_wanted_are_refused(run, tmp_path):
    document = write_inputs(tmp_path / "inputs")
    content = json.loads(document.read_text())
    content["cases"]["4"]["temb"]["dtype"] = "BF16"
    document.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"temb.*BF16.*F32"):
        run("behaving:expression")


def test_inputs_that_lack_the_case_are_refused(run, tmp_path):
    write_inputs(tmp_path / "inputs", cases=(1, 2))
    with pytest.raises(AuditError, match="does not describe the inputs of case 4"):
        run("behaving:expression")


def test_manifest_is_written_last(run, tmp_path, monkeypatch):
    def there(path, content):
        names = {p.name for p in path.parent.iterdir()}
        assert names == {*(f"{name}.safetensors" for name in TENSORS), "timing.json"}
        real(path, content)

    real = manifest.write
    monkeypatch.setattr(cell_module.manifest, "write", there)
    assert run("behaving:expression")["status"] == "ok"


def test_variables_are_read_back_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_module.Cell, "_attempt", lambda self: pytest.fail("ran"))
    record = json.dumps({"set": {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "scrubbed": []})
    monkeypatch.setenv("BITWISE_REUSE_AUDIT_VARIABLES", record)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # too late: the process has started
    from tests.unit.fixtures.small_cell import spec

    cell = cell_module.Cell(spec("x:y"), write_inputs(tmp_path), tmp_path / "objects", tmp_path / "cell")
    with pytest.raises(AuditError, match="CUBLAS_WORKSPACE_CONFIG=:16:8, but when the process started"):
        cell.run()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError(), "ValueError: no message"),
        (AuditError("the kernel is not built"), "the kernel is not built"),
        (RuntimeError("x" * 500), "RuntimeError: " + "x" * 297 + "..."),
    ],
)
def test_reasons_are_one_sentence(error, expected):
    assert sentence(error) == expected

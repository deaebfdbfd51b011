"""Switches are found where each release keeps them, and each says exactly why it is unavailable."""

import os
import subprocess
import sys

import pytest
import torch

from tests.unit.fixtures.fake_libraries import plant as fakes
from tests.unit.fixtures.fake_libraries.process import plain, run_cell
from workflow_scripts import modes
from workflow_scripts.errors import AuditError
from workflow_scripts.modes import switch as switches
from workflow_scripts.modes import witness
from workflow_scripts.modes.label import label
from workflow_scripts.modes.library import own_triton_cache

CUDA = {"device": "cuda"}
FAKES = ("vllm", "sglang", "megatron", "transformer_engine", "deep_gemm")


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """A folder on sys.path, on a machine that says it has CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("TRITON_CACHE_DIR", "CUBLASLT_WORKSPACE_SIZE"):  # what a switch sets is taken back
        monkeypatch.setenv(variable, str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in FAKES]:
        del sys.modules[name]


def test_an_unknown_switch_is_refused_and_the_known_ones_are_named():
    with pytest.raises(AuditError, match=r"unknown switch 'vlm': choose one of none, nothing, .*vllm"):
        modes.get("vlm")


@pytest.mark.parametrize("name", modes.names())
def test_every_switch_knows_its_name(name):
    assert modes.get(name).name == name


@pytest.mark.parametrize("name", ["vllm", "sglang", "megatron_te_native", "megatron_triton"])
def test_without_cuda_a_library_is_unavailable(name):
    assert modes.get(name).unavailable(CUDA).startswith("no CUDA device")
    assert "this audit's device is cpu" in modes.get(name).unavailable({"device": "cpu"})


@pytest.mark.parametrize(
    ("name", "distribution"), [("vllm", "vllm"), ("sglang", "sglang"), ("megatron_triton", "megatron-core")]
)
def test_a_missing_library_is_named(libraries, name, distribution):
    assert modes.get(name).unavailable(CUDA).startswith(f"{distribution} is not installed in this mode's env")


def test_a_library_without_the_entry_point_is_told_from_a_missing_one(libraries):
    fakes.plant(libraries, fakes.SGLANG, "def other(): ...")
    assert "has no enable_batch_invariant_mode in sglang.srt." in modes.get("sglang").unavailable(CUDA)


def test_a_library_that_cannot_be_imported_says_what_it_lacks(libraries):
    fakes.plant(libraries, fakes.SGLANG, "import a_module_that_nobody_has")
    reason = modes.get("sglang").unavailable(CUDA)
    assert reason == "sglang is there, but needs a module that is not: a_module_that_nobody_has"


def test_a_library_that_raises_while_it_is_imported_says_so(libraries):
    fakes.plant(libraries, fakes.SGLANG, "raise RuntimeError('no driver')")
    assert modes.get("sglang").unavailable(CUDA) == (
        "sglang is there, but cannot be imported: RuntimeError: no driver"
    )


def test_a_library_that_failed_once_is_not_asked_again(libraries):
    """A second import finds the first one's half-imported parts in sys.modules, and may go through."""
    fakes.plant(libraries, fakes.SGLANG, "raise RuntimeError('half imported')")
    switch = modes.get("sglang")
    first = switch.unavailable(CUDA)
    fakes.plant_body(libraries, fakes.SGLANG, "mm_and_addmm")
    assert switch.unavailable(CUDA) == first
    with pytest.raises(AuditError, match="half imported"):
        switch.throw(CUDA)


def test_a_source_tree_is_named_by_its_commit(libraries):
    fakes.plant_body(libraries / "tree", fakes.MEGATRON, "with_backend")
    fakes.plant_transformer_engine(libraries)
    git = ["git", "-C", str(libraries / "tree"), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    thrown = modes.get("megatron_te_native").throw({**CUDA, "megatron_source": str(libraries / "tree")})
    assert thrown.library == f"Megatron-LM at {commit.strip()}"


def test_vllm_without_a_cuda_platform_is_refused_as_it_would_enable_itself_for_the_cpu(libraries):
    fakes.plant_body(libraries, fakes.VLLM_NEW, "does_nothing")
    fakes.plant_vllm_platform(libraries, cuda=False)
    assert modes.get("vllm").unavailable(CUDA).startswith("vLLM finds no CUDA platform here")


def test_vllm_on_ampere_and_ada_has_no_backward(libraries):
    fakes.plant_body(libraries, fakes.VLLM_NEW, "does_nothing")
    fakes.plant_vllm_platform(libraries, capability=(8, 9))
    assert modes.get("vllm").unavailable(CUDA).startswith("compute capability 8.9: ")


def test_a_megatron_release_has_no_te_native(libraries):
    fakes.plant_body(libraries, fakes.MEGATRON, "mm_and_addmm")
    reason = modes.get("megatron_te_native").unavailable(CUDA)
    assert "has no backend te_native" in reason
    assert "megatron_source" in reason


def test_megatron_needs_transformer_engine_before_anything_is_overridden(libraries):
    fakes.plant_body(libraries, fakes.MEGATRON, "half_way")
    reason = modes.get("megatron_triton").unavailable(CUDA)
    assert reason.startswith("Megatron's switch needs Transformer Engine: ModuleNotFoundError")
    assert not sys.modules[fakes.MEGATRON].is_batch_invariant_mode_enabled()


def test_megatron_source_must_be_a_source_tree(libraries):
    reason = modes.get("megatron_triton").unavailable({**CUDA, "megatron_source": str(libraries)})
    assert "is not a Megatron-LM source tree" in reason


def test_another_megatron_than_the_source_tree_is_refused(libraries):
    fakes.plant_body(libraries / "installed", fakes.MEGATRON, "with_backend")
    (libraries / "tree" / "megatron" / "core").mkdir(parents=True)
    sys.path.insert(0, str(libraries / "installed"))
    reason = modes.get("megatron_triton").unavailable({**CUDA, "megatron_source": str(libraries / "tree")})
    assert "not from megatron_source" in reason


def test_a_switch_is_refused_once_cuda_runs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(AuditError, match="CUDA was initialised before the mode's switch was thrown"):
        witness.before("cpu")


def test_another_torch_than_the_pin_is_a_deviation(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    assert switches.torch_deviations() == ["torch is 2.11.0+cu130, not the pinned 2.13.0"]
    monkeypatch.setattr(torch, "__version__", "2.13.0+cu130")
    assert switches.torch_deviations() == []


@pytest.fixture(name="plain")
def plain_witness():
    return plain()


@pytest.mark.parametrize("module", [fakes.VLLM_OLD, fakes.VLLM_NEW])
def test_vllm_is_found_at_both_its_places_and_a_switch_without_effect_is_inert(tmp_path, plain, module):
    fakes.plant_body(tmp_path, module, "does_nothing")
    fakes.plant_vllm_platform(tmp_path)
    result = run_cell("vllm", CUDA, path=tmp_path)
    assert result["witness"]["entry_point"] == f"{module}.enable_batch_invariant_mode()"
    assert result["witness"]["switched"] is False
    labels = label(result["witness"], plain)
    assert {way: labels[way]["label"] for way in labels} == {"forward": "inert", "backward": "inert"}
    assert labels["backward"]["reason"].startswith(
        "no effect: the switch changed no kernel, no flag, no state"
    )
    assert any(words.startswith("vLLM's compiled module is absent") for words in result["deviations"])


def test_the_newest_place_wins(libraries):
    for module in (fakes.VLLM_OLD, fakes.VLLM_NEW):
        fakes.plant_body(libraries, module, "does_nothing")
    fakes.plant_vllm_platform(libraries)
    assert modes.get("vllm").throw(CUDA).entry_point.startswith(fakes.VLLM_NEW)


def test_an_override_for_float32_alone_is_inert_on_bf16_and_effective_on_float32(tmp_path, plain):
    fakes.plant_body(tmp_path, fakes.VLLM_NEW, "float32_only")
    fakes.plant_vllm_platform(tmp_path)
    seen = run_cell("vllm", CUDA, path=tmp_path)["witness"]
    assert seen["overridden"] == ["aten::mm"]
    labels = label(seen, plain)
    assert {way: labels[way]["label"] for way in labels} == {"forward": "inert", "backward": "inert"}
    assert labels["backward"]["reason"].startswith("the switch overrode aten::mm, but the same kernels ran")

    seen = run_cell("vllm", CUDA, path=tmp_path, dtype="float32")["witness"]
    assert label(seen, run_cell(dtype="float32")["witness"])["backward"]["label"] == "effective"


def test_sglang_overrides_are_witnessed_and_it_gets_a_triton_cache_of_its_own(tmp_path):
    fakes.plant_body(tmp_path, fakes.SGLANG, "mm_and_addmm")
    result = run_cell("sglang", CUDA, path=tmp_path, run=False)
    seen = result["witness"]
    assert seen["overridden"] == ["aten::addmm", "aten::mm"]
    assert seen["entry_point"] == f"{fakes.SGLANG}.enable_batch_invariant_mode()"
    assert "triton-cache-" in result["cache"]
    assert "TRITON_CACHE_DIR" not in seen["variables_set_by_switch"]


def test_a_triton_cache_named_at_the_start_is_kept(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/mine")
    own_triton_cache()
    assert os.environ["TRITON_CACHE_DIR"] == "/mine"


def test_megatron_triton_from_a_release_with_a_stand_in_for_transformer_engine(tmp_path):
    fakes.plant_body(tmp_path, fakes.MEGATRON, "mm_and_addmm")
    fakes.plant_transformer_engine(tmp_path)
    result = run_cell("megatron_triton", CUDA, path=tmp_path, run=False)
    assert result["witness"]["entry_point"] == f"{fakes.MEGATRON}.enable_batch_invariant_mode()"
    assert result["deviations"][0].startswith("transformer_engine is a stand-in")


def test_megatron_te_native_from_a_source_tree_changes_a_variable_alone(tmp_path):
    fakes.plant_body(tmp_path / "tree", fakes.MEGATRON, "with_backend")
    fakes.plant_transformer_engine(tmp_path)
    config = {**CUDA, "megatron_source": str(tmp_path / "tree")}
    seen = run_cell("megatron_te_native", config, path=tmp_path, run=False)["witness"]
    assert seen["entry_point"] == f"{fakes.MEGATRON}.enable_batch_invariant_mode(backend='te_native')"
    assert seen["variables_set_by_switch"] == {"CUBLASLT_WORKSPACE_SIZE": "0"}
    assert (seen["overridden"], seen["flags_before"]) == ([], seen["flags_after"])


def test_a_backend_that_the_source_tree_lacks_is_named(libraries):
    tree = libraries / "tree"
    fakes.plant_body(tree, fakes.MEGATRON, "with_backend")
    path = tree / (fakes.MEGATRON.replace(".", "/") + ".py")
    path.write_text(path.read_text().replace('("deepgemm", "triton", "te_native")', '("deepgemm", "triton")'))
    reason = modes.get("megatron_te_native").unavailable({**CUDA, "megatron_source": str(tree)})
    assert reason.endswith("has no backend te_native; it has deepgemm, triton")


@pytest.mark.parametrize(
    ("switch", "module", "body", "words"),
    [
        ("megatron_triton", fakes.MEGATRON, "half_way", "failed on the way: ModuleNotFoundError"),
        ("sglang", fakes.SGLANG, "does_nothing", "did not override aten::mm, aten::addmm"),
        ("sglang", fakes.SGLANG, "never_on", "the library does not say that the mode is on"),
    ],
)
def test_a_half_enabled_library_ends_the_process_without_running_the_operator(
    tmp_path, switch, module, body, words
):
    fakes.plant_body(tmp_path, module, body)
    fakes.plant_transformer_engine(tmp_path)
    result = run_cell(switch, CUDA, path=tmp_path, run=False)
    assert result.keys() == {"half_enabled"}  # the last line of output: no exit handler ran after it
    assert words in result["half_enabled"]

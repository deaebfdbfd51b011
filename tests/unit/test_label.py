"""Labels say what an equality is worth, in words. Kernel names are those seen on an H200 with torch 2.11."""

import copy

from workflow_scripts.modes.label import label

SPLIT_K = "cublasLt::splitKreduce_kernel<32,16,int,float> grid 84x1x1"
TABLE = "nvjet_sm90_tst_128x8_64x12_2x1_v_bz_bias_TNT grid 2x66x1"
TABLE_STATIC = "nvjet_sm90_tst_128x8_64x12_2x1_v_ssched_bz_bias_TNT grid 2x66x1"
D_ACT_SPLIT = "nvjet_sm90_tst_192x8_64x8_2x1_v_bz_splitK_NNT grid 2x63x1"
D_ACT = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_NNT grid 4x11x1"
D_WEIGHT = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NTN grid 2x66x1"
TRITON = "matmul_kernel_persistent ptx fbfe1307 grid 132x1x1"
SILU = "vectorized_elementwise_kernel<4,silu_kernel#1#2#1> grid 11x1x1"
FLAG = "cuda.matmul.allow_bf16_reduced_precision_reduction"
MINUS = "\N{MINUS SIGN}"
STATE = {"threads": 16, "interop_threads": 16, "cpu_capability": "AVX512"}


def witness(forward, backward, *, switch=None, overridden=(), flags=None, state=None):
    return {
        "switch": switch,
        "switched": bool(switch),
        "overridden": list(overridden),
        "flags_before": {FLAG: True},
        "flags_after": flags or {FLAG: True},
        "kernels": {"forward": forward, "backward": backward},
        "state": state or STATE,
    }


PLAIN = witness([TABLE, SILU], [D_ACT_SPLIT, D_WEIGHT, SPLIT_K])
TRITON_MODE = witness([TRITON, SILU], [TRITON], switch="sglang", overridden=["aten::addmm", "aten::mm"])


def labels(seen, plain=PLAIN, **siblings):
    found = label(seen, plain, siblings)
    return found["forward"]["label"], found["backward"]["label"]


def reason(seen, direction, plain=PLAIN, siblings=None):
    return label(seen, plain, siblings)[direction]["reason"]


def test_plain_is_the_baseline_and_an_equal_copy_of_it_is_inert():
    assert labels(PLAIN) == ("baseline", "baseline")
    assert labels(copy.deepcopy(PLAIN)) == ("inert", "inert")
    assert reason(copy.deepcopy(PLAIN), "forward") == (
        "same kernels, same flags and same state as plain: its equality says nothing about the mode"
    )


def test_without_a_plain_cell_nothing_is_claimed():
    assert labels(TRITON_MODE, None) == ("unknown", "unknown")


def test_other_kernels_are_named_in_the_direction_where_they_ran():
    seen = witness([TABLE, SILU], [D_ACT, D_WEIGHT], switch="vllm", overridden=["aten::mean.dim"])
    assert labels(seen) == ("inert", "effective")
    assert reason(seen, "backward") == f"other kernels: +{D_ACT} {MINUS}{SPLIT_K} {MINUS}{D_ACT_SPLIT}"
    assert reason(seen, "forward").startswith("the switch overrode aten::mean.dim, but the same kernels ran")


def test_a_kernel_that_is_gone_is_a_difference_too():
    seen = witness([TABLE, SILU], [D_ACT_SPLIT, D_WEIGHT])
    assert reason(seen, "backward") == f"other kernels: {MINUS}{SPLIT_K}"


def test_many_other_kernels_are_counted_beyond_three():
    seen = witness(["a", "b", "c", "d", "e"], PLAIN["kernels"]["backward"])
    assert reason(seen, "forward") == f"other kernels: +a +b +c +2 more {MINUS}{TABLE} {MINUS}{SILU}"


def test_other_flags_or_another_state_are_effective_though_the_kernels_are_the_same():
    kernels = PLAIN["kernels"]
    seen = witness(kernels["forward"], kernels["backward"], switch="vllm", flags={FLAG: False})
    assert labels(seen) == ("effective", "effective")
    assert reason(seen, "forward") == f"other flags: {FLAG} True → False"
    seen = witness(kernels["forward"], kernels["backward"], state={**STATE, "threads": 1})
    assert reason(seen, "backward") == "other state: threads 16 → 1"


def test_a_switch_that_did_nothing_has_no_effect():
    seen = witness(*PLAIN["kernels"].values(), switch="nothing")
    assert labels(seen) == ("inert", "inert")
    assert reason(seen, "backward").startswith("no effect: the switch changed no kernel, no flag, no state")


def test_an_empty_workspace_is_effective_where_another_kernel_ran_and_inert_where_not():
    """megatron_te_native at 4 rows: another kernel in the forward, split-K as before in the backward."""
    seen = witness(
        [TABLE_STATIC, SILU],
        PLAIN["kernels"]["backward"],
        switch="megatron_te_native",
        overridden=["aten::mean.dim"],
    )
    assert labels(seen) == ("effective", "inert")
    assert reason(seen, "forward") == f"other kernels: +{TABLE_STATIC} {MINUS}{TABLE}"


def test_a_sibling_without_a_difference_is_named():
    """sglang_ieee on bf16: Triton compiles the same PTX, so its equality with sglang says nothing."""
    ieee = copy.deepcopy(TRITON_MODE)
    assert labels(ieee, **{"diffusers[sglang]": TRITON_MODE}) == ("effective", "effective")
    assert reason(ieee, "forward", siblings={"diffusers[sglang]": TRITON_MODE}).endswith(
        "; nothing differs from diffusers[sglang], so equality with that says nothing"
    )


def test_triton_kernels_of_one_name_and_other_code_are_told_apart():
    """TRITON_F32_DEFAULT on float32: the name and the grid are the same, the PTX is not."""
    ieee = copy.deepcopy(TRITON_MODE)
    ieee["kernels"]["forward"] = [TRITON.replace("fbfe1307", "00000000"), SILU]
    assert "nothing differs" not in reason(ieee, "forward", siblings={"diffusers[sglang]": TRITON_MODE})


def test_labels_change_neither_witness():
    seen, plain = copy.deepcopy(TRITON_MODE), copy.deepcopy(PLAIN)
    label(seen, plain, {"other": PLAIN})
    assert (seen, plain) == (TRITON_MODE, PLAIN)

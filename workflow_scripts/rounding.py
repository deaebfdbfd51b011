"""Round float64 values once to a narrower type."""

import torch
from torch import Tensor

EXPONENT = 0x7FF0_0000_0000_0000
"""Bits of a float64's exponent: alone they are the largest power of two that is not above it."""


def round_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 `values` rounded once, to nearest with ties to even (IEEE 754-2019, 4.3.1), still as float64.

    torch's own conversion of float64 to bfloat16 rounds twice, first to float32. Here a value is divided by
    the distance between its neighbours in the type, a power of two, rounded to an integer and multiplied
    again: only the rounding is inexact. Beyond the largest number of the type lies infinity.

    Args:
        values: float64, any shape; a value below 2^-1022 counts as 0.
        dtype: bfloat16, float16, float32 or float64.
    """
    if dtype == torch.float64:
        return values
    info = torch.finfo(dtype)
    power = (values.view(torch.int64) & EXPONENT).view(torch.float64)
    distance = power.mul_(info.eps).clamp_(info.smallest_normal * info.eps, info.max)
    rounded = torch.round(values / distance).mul_(distance)
    return rounded.masked_fill_(rounded.abs() > info.max, torch.inf).copysign_(values)

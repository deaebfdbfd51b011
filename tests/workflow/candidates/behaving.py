"""Callables that are right, each in a way of its own."""

import torch
from torch.nn import functional


def expression(temb, w, b):
    """The provider's expression."""
    return functional.linear(functional.silu(temb).to(w.dtype), w, b)


def six_chunks(temb, w, b):
    """The table as six chunks, [3 T, H] each."""
    return expression(temb, w, b).view(-1, w.shape[0] // 3).chunk(6, dim=-1)


def strided_view(temb, w, b):
    """The table as a view into one that is six times as wide."""
    wide = torch.cat([expression(temb, w, b)] * 6, dim=-1)
    return wide[:, w.shape[0] : 2 * w.shape[0]]


def column_major(temb, w, b):
    """The table with its columns one after the other in memory."""
    return expression(temb, w, b).t().contiguous().t()


def written_empty(temb, w, b):
    """Writes every element of memory that it gets unwritten."""
    return _WriteEmpty.apply(expression(temb, w, b))


class _WriteEmpty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table):
        return torch.empty_like(table).copy_(table)

    @staticmethod
    def backward(ctx, grad):
        return torch.empty_like(grad).copy_(grad)


def nan(temb, w, b):
    """A table whose first column is NaN."""
    table = expression(temb, w, b)
    mask = torch.zeros_like(table)
    mask[:, 0] = float("nan")
    return table + mask


def bias_before_rounding(temb, w, b):
    """The bias added in float32, one rounding."""
    act = functional.silu(temb).to(w.dtype)
    return (act.float() @ w.float().t() + b.float()).to(w.dtype)


def bias_after_rounding(temb, w, b):
    """The bias added to a product that is rounded already."""
    act = functional.silu(temb).to(w.dtype)
    return (act.float() @ w.float().t()).to(w.dtype) + b


def bf16_temb(temb, w, b):
    """Hands temb over in bf16."""
    return functional.linear(functional.silu(temb.to(w.dtype)), w, b)


def under_no_mode(temb, w, b):
    """Refuses to run under a dispatch mode, under which torch.compile would run eagerly."""
    if torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        raise RuntimeError("a dispatch mode is active")
    return expression(temb, w, b)

"""Callables that an audit must not take for right."""

import itertools
import os
import sys

import torch

from kernels.adaln_projection import adaln_projection
from tests.workflow.candidates.behaving import expression, six_chunks

_calls = itertools.count()
_buffers = {}


def five_chunks(temb, w, b):
    return six_chunks(temb, w, b)[:5]


def uneven_chunks(temb, w, b):
    """Six chunks that have the right size only together."""
    wide = expression(temb, w, b).view(-1, w.shape[0] // 3)
    hidden = w.shape[0] // 18
    return wide.split([hidden + 1, hidden - 1, *[hidden] * 4], dim=-1)


def none_among_chunks(temb, w, b):
    return (*six_chunks(temb, w, b)[:5], None)


def nothing(temb, w, b):
    return None


def float32_table(temb, w, b):
    return expression(temb, w, b).float()


def too_many_rows(temb, w, b):
    return expression(temb, w, b).repeat(2, 1)


def other_device(temb, w, b):
    return expression(temb, w, b).to("meta")


def no_graph(temb, w, b):
    return expression(temb, w, b).detach()


def without_temb(temb, w, b):
    """An output that does not depend on temb: its gradient is None."""
    return expression(temb.detach(), w, b)


def an_input(temb, w, b):
    """The bias itself, seen as a table: it shares memory with an input."""
    return b.expand(temb.shape[0], -1)


def raises(temb, w, b):
    raise RuntimeError("boom: the kernel\nis not for this machine")


def exits(temb, w, b):
    sys.exit("this library wants a licence")


def dies(temb, w, b):
    os.abort()


def kernel_on_bf16_temb(temb, w, b):
    """Our kernel, fed a rounded temb."""
    return adaln_projection(temb.to(torch.bfloat16), w, b)


def changes_leaf(temb, w, b):
    """Autograd sees this change and refuses it."""
    temb.mul_(2)
    return expression(temb, w, b)


def changes_temb(temb, w, b):
    """Changes an input behind autograd's back, after it was used."""
    table = expression(temb, w, b)
    temb.data[0, 0] += 1
    return table


def changes_grad(temb, w, b):
    """The backward scales the gradient that it is given in place."""
    return _ChangeGrad.apply(expression(temb, w, b))


class _ChangeGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table):
        return table.clone()

    @staticmethod
    def backward(ctx, grad):
        result = grad.clone()
        grad.data.mul_(2)
        return result


class _Shape(torch.autograd.Function):
    """The table as the function of the call makes it; the gradient passes through."""

    @staticmethod
    def forward(ctx, table, make):
        return make(table)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def other_bits_later(temb, w, b):
    """One element is other by an ulp from the second call on."""
    later = next(_calls) > 0

    def make(table):
        made = table.clone()
        made.view(torch.int16)[0, 0] += int(later)
        return made

    return _Shape.apply(expression(temb, w, b), make)


def other_bits_later_in_one_buffer(temb, w, b):
    """As other_bits_later, but every call hands out the same memory."""
    later = next(_calls) > 0

    def make(table):
        buffer = _buffers.setdefault("table", torch.empty_like(table)).copy_(table)
        buffer.view(torch.int16)[0, 0] += int(later)
        return buffer.view_as(buffer)

    return _Shape.apply(expression(temb, w, b), make)


def unwritten_tail(temb, w, b):
    """The last column of the table is never written."""

    def make(table):
        made = torch.empty_like(table)
        made[:, :-1] = table[:, :-1]
        return made

    return _Shape.apply(expression(temb, w, b), make)


def unwritten_gradient(temb, w, b):
    """The backward leaves the last column of its gradient unwritten."""
    return _UnwrittenGradient.apply(expression(temb, w, b))


class _UnwrittenGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table):
        return table.clone()

    @staticmethod
    def backward(ctx, grad):
        made = torch.empty_like(grad)
        made[:, :-1] = grad[:, :-1]
        return made

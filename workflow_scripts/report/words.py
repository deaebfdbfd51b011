"""Small words that every page of the report shares."""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def tensor_name(tensor: str) -> str:
    """Name of a tensor as the report writes it: `out_0` is `out[0]`, `grad_temb` is `grads.temb`."""
    kind, _, rest = tensor.partition("_")
    return f"out[{rest}]" if kind == "out" else f"grads.{rest}"


def direction(tensor: str) -> str:
    """The direction that computes a tensor: `forward` for outputs, `backward` for gradients."""
    return "forward" if tensor.startswith("out_") else "backward"


def listing(items: Iterable[object]) -> str:
    """Items in a sentence: `a, b and c`."""
    words = [str(item) for item in items]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def rows(cases: Iterable[object]) -> str:
    """Cases in a sentence: `1 row`, `4 and 64 rows`."""
    numbers = [str(case) for case in cases]
    return f"{listing(numbers)} {'row' if numbers == ['1'] else 'rows'}"


def places(by_case: dict[str, list[str]], cases: Iterable[object]) -> str:
    """Tensors and the cases in which something holds: `out[0] at 1 and 4 rows; grads.temb at every case`.

    Args:
        by_case: ids of tensors, by case (as a string).
        cases: all cases of the audit.
    """
    every = [str(case) for case in cases]
    tensors = dict.fromkeys(tensor for case in every for tensor in by_case.get(case, []))
    parts = []
    for tensor in tensors:
        where = [case for case in every if tensor in by_case.get(case, [])]
        parts.append(f"{tensor_name(tensor)} at {'every case' if where == every else rows(where)}")
    return "; ".join(parts)


def count(number: int) -> str:
    """A count with its thousands apart: `198,180,864`."""
    return f"{number:,}"


def share(differ: int, numel: int) -> str:
    """Share of elements that differ, in percent."""
    return percent(differ / numel if numel else 0.0)


def percent(fraction: float) -> str:
    """A fraction in percent, never rounded to a misleading 0 or 100."""
    value = 100 * fraction
    if fraction in (0, 1):
        return f"{value:.0f} %"
    if value >= 99.95:
        return "> 99.9 %"
    if value < 0.0001:
        return "< 0.0001 %"
    return f"{float(f'{value:.2g}' if value < 10 else f'{value:.3g}'):.15g} %"

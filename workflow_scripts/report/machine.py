"""Were two cells computed on the same machine and stack? Only then are their bits comparable."""

from typing import Any

_STACK = ("device", "gpu", "capability", "multiprocessors", "mig", "driver", "torch", "cuda", "triton")
_PROCESSOR = ("cpu", "instruction_sets")


def difference(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What differs between two cells' environments, one phrase a fact; empty when they may be compared.

    Compared are the GPU (model, capability, multiprocessors, MIG), the driver, torch, CUDA and triton; of a
    cell on a CPU also the processor and its instruction sets, whose order says nothing. Thread counts and the
    instruction set that a mode makes torch use are not: they are what modes vary.
    """
    on_cpu = "cpu" in (a.get("device"), b.get("device"))
    facts = _STACK + _PROCESSOR if on_cpu else _STACK
    pairs = ((fact, _plain(fact, a.get(fact)), _plain(fact, b.get(fact))) for fact in facts)
    return [f"{fact} {_words(x)} against {_words(y)}" for fact, x, y in pairs if x != y]


def _plain(fact: str, value: Any) -> Any:
    if fact == "instruction_sets" and value is not None:
        return sorted(value)
    return value


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ".".join(map(str, value)) if all(isinstance(n, int) for n in value) else " ".join(value)
    return str(value)

"""CUDA kernel names, cut down to what tells two kernels apart."""

import hashlib
import re

LONGEST = 160

_NAMESPACES = re.compile(r"^void |\b(?:at::native|at::cuda|c10|std)::|\(anonymous namespace\)::")
_CALLS = re.compile(r"::operator\(\)| const\b")
_LAMBDA = re.compile(r"::\{lambda#(\d+)\}")
# How ATen's elementwise kernels get at their operands: the same for every operator.
_OPERANDS = re.compile(r",(?:array<char\*,\d+ul>|TrivialOffsetCalculator<\d+,unsigned int>)(?=[,>])")
_SPACES = re.compile(r"\s+(?=\W|$)|(?<=\W)\s+")
_CUTLASS = re.compile(r"^cutlass::(?:Kernel2?|device_kernel)<(?P<inner>\w+)>$")


def shorten(name: str) -> str:
    """A demangled kernel name without its arguments, namespaces of PyTorch and the word void.

    Template arguments stay: tile sizes, stages, split-K factors and dtypes are among them. Lambdas become
    `#1`. CUTLASS kernels get the name inside the wrapper. What is longer than `LONGEST` characters is cut and
    ends in eight digits of the whole name's SHA-256, so that different kernels keep different names.
    """
    short = _without_parentheses(_CALLS.sub("", _NAMESPACES.sub("", name)))
    short = _OPERANDS.sub("", _LAMBDA.sub(r"#\1", _SPACES.sub("", short)))
    wrapped = _CUTLASS.match(short)
    if wrapped:
        short = wrapped["inner"]
    if len(short) <= LONGEST:
        return short
    return f"{short[: LONGEST - 9]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _without_parentheses(text: str) -> str:
    kept, depth = [], 0
    for character in text:
        depth += character == "("
        if depth == 0:
            kept.append(character)
        depth -= character == ")" and depth > 0
    return "".join(kept)

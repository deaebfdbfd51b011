"""However a configuration is spoilt, it is valid or ends in one AuditError: never in another exception."""

import copy
import json
import os

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workflow_scripts import operators
from workflow_scripts.config import Audit
from workflow_scripts.errors import AuditError
from workflow_scripts.modes.scrub import scrub

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
SOUND = {
    "audit": "small",
    "kind": "fuzzed",
    "rfc": None,
    "results": "results",
    "device": "cpu",
    "operator": {"name": "adaln_projection", "hidden": 32, "dim": 64},
    "cases": [4, 1],
    "seeds": {"weights": 1, "temb": 3, "grad": 4},
    "weights": None,
    "candidates": {
        "diffusers": {"modes": ["plain", "quick"]},
        "mine": {"callable": "package.module:function", "path": ["src"], "modes": ["plain"]},
        "rl_kernel": None,
    },
    "modes": {
        "plain": None,
        "quick": {
            "switch": "no_mkldnn",
            "variables": {"OMP_NUM_THREADS": "1"},
            "needs": {"libraries": ["torch"], "instruction_sets": ["avx2"]},
            "python": "/usr/bin/python3",
            "conda": "envs/torch.yaml",
        },
    },
    "baselines": ["diffusers[plain]", "rl_kernel"],
    "required": ["rl_kernel"],
    "expect": {"diffusers[quick]": {"rows": "invariant", "equal_to": ["rl_kernel"], "repeatable": True}},
    "repeats": 2,
    "threads": 2,
}
# What YAML can hold, among it the words that this configuration uses in other places.
_WORDS = "plain quick diffusers rl_kernel diffusers[plain] all cuda vllm ../.. $(x) 1"
WORDS = st.sampled_from(_WORDS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=3)
    | WORDS
)
KEYS = WORDS | st.text(max_size=6) | st.integers() | st.none() | st.booleans() | st.floats(allow_nan=False)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def places(value, path=()):
    """Every place in a document, as a path of keys and indices."""
    yield path
    entries = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        entries = enumerate(value)
    for key, inner in entries:
        yield from places(inner, (*path, key))


@st.composite
def spoilt(draw):
    config = copy.deepcopy(SOUND)
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from([place for place in places(config) if place]))
        inner = config
        for key in parents:
            inner = inner[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                inner[last] = draw(VALUES)
            case "remove":
                del inner[last]
            case "add" if isinstance(inner, dict):
                inner[draw(KEYS)] = draw(VALUES)
            case _:
                inner.append(draw(VALUES))
    return config


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(spoilt() | st.dictionaries(KEYS, VALUES, max_size=4))
@example(SOUND)
def test_a_configuration_is_valid_or_refused_in_words(config):
    before = repr(config)
    try:
        audit = Audit(config)
        operators.layout(**audit.config["operator"]).shapes(max(audit.cases))
    except AuditError as error:
        head, *faults = str(error).splitlines()
        assert head == "the configuration is not valid:"
        assert faults
        assert all(fault.startswith("  - ") for fault in faults)
    else:
        follow(audit)
    assert repr(config) == before


def follow(audit):
    """All that the rules ask of a valid configuration."""
    json.dumps(audit.document("x.yaml"))
    assert audit.baselines.keys() <= audit.implementations.keys()
    for implementation in (*audit.implementations.values(), audit.control):
        json.dumps([audit.cell(implementation, case) for case in audit.cases])
        scrub({}, audit.variables(implementation))
        assert audit.plugins(implementation)
        assert all(isinstance(folder, str) for folder in audit.path(implementation))

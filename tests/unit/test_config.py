"""Every fault of a configuration is found before any job, and said in words."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from workflow_scripts import candidates, modes, operators
from workflow_scripts.config import Audit
from workflow_scripts.config_schema import schema, suggest
from workflow_scripts.errors import AuditError

CONFIGS = sorted((Path(__file__).parents[2] / "config").glob("*.yaml"))
SMALL = {
    "audit": "small",
    "device": "cpu",
    "operator": {"hidden": 32, "dim": 64},
    "cases": [4, 1],
    "candidates": {"diffusers": {"modes": ["plain", "one_thread"]}, "rl_kernel": None},
    "modes": {"plain": None, "one_thread": {"variables": {"OMP_NUM_THREADS": "1"}}},
    "baselines": ["diffusers[plain]", "rl_kernel"],
}


def changed(path, value):
    """SMALL with one place set; a tuple of keys is the place."""
    config = copy.deepcopy(SMALL)
    *parents, last = path
    inner = config
    for key in parents:
        inner = (
            inner.setdefault(key, {})
            if inner.get(key) is not None
            else inner.__setitem__(key, {}) or inner[key]
        )
    inner[last] = value
    return config


def faults(config):
    with pytest.raises(AuditError) as caught:
        Audit(config)
    head, *lines = str(caught.value).splitlines()
    assert head == "the configuration is not valid:"
    return [line.removeprefix("  - ") for line in lines]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_embedded_configurations_are_valid(path):
    Audit(yaml.safe_load(path.read_text()))


def test_there_are_the_three_embedded_configurations():
    assert {path.stem for path in CONFIGS} >= {"config", "cpu", "cpu_full"}


def test_defaults_are_filled_in():
    config = Audit(SMALL).config
    assert config["seeds"] == {"weights": 1, "temb": 3, "grad": 4}
    assert config["operator"]["name"] == "adaln_projection"
    assert config["modes"]["plain"] == {
        "switch": None,
        "variables": {},
        "needs": {"libraries": [], "instruction_sets": []},
        "conda": None,
        "python": None,
        "path": [],
    }
    assert (config["required"], config["on_error"], config["repeats"]) == ("all", "fail", 2)


def test_the_callers_configuration_is_left_alone():
    before = copy.deepcopy(SMALL)
    Audit(SMALL)
    assert before == SMALL


def test_implementations_are_in_the_configurations_order():
    audit = Audit(SMALL)
    assert {key: i.label for key, i in audit.implementations.items()} == {
        "diffusers.plain": "diffusers[plain]",
        "diffusers.one_thread": "diffusers[one_thread]",
        "rl_kernel": "rl_kernel",
    }
    assert list(audit.baselines) == ["diffusers.plain", "rl_kernel"]
    assert audit.cases == [1, 4]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("audits",), "x", "configuration: unknown key 'audits'; did you mean 'audit'?"),
        (("operator", "width"), 8, "operator: unknown key 'width'"),
        (
            ("modes", "plain", "variable"),
            {},
            "modes.plain: unknown key 'variable'; did you mean 'variables'?",
        ),
        (("modes", "plain", "needs", "library"), [], "modes.plain.needs: unknown key 'library'"),
        (("candidates", "diffusers", "mode"), ["plain"], "candidates.diffusers: unknown key 'mode'"),
        (
            ("expect",),
            {"rl_kernel": {"row": "invariant"}},
            "expect.rl_kernel: unknown key 'row'; did you mean 'rows'?",
        ),
        (("candidates", "diffusers", "modes"), ["plane"], "no mode is named 'plane'; did you mean 'plain'?"),
        (("candidates", "difusers"), {}, "candidates.difusers: is not built in"),
        (("baselines",), ["diffusers[plane]"], "baselines: no implementation is named 'diffusers[plane]'"),
        (("baselines",), ["diffusers"], "baselines: no implementation is named 'diffusers'"),
        (("baselines",), [], "baselines: [] should be non-empty"),
        (
            ("required",),
            ["rl_kernal"],
            "required: no implementation is named 'rl_kernal'; did you mean 'rl_kernel'?",
        ),
        (("required",), "some", "required: 'some' is not valid"),
        (("expect",), {"vllm": {"rows": "invariant"}}, "expect: no implementation is named 'vllm'"),
        (("expect",), {"rl_kernel": {"rows": "steady"}}, "expect.rl_kernel.rows: 'steady' is not one of"),
        (("expect",), {"rl_kernel": {"equal_to": ["rl_kernel"]}}, "'rl_kernel' is not another baseline"),
        (("modes", "one_thread", "switch"), "vlm", "modes.one_thread.switch: 'vlm' is not one of"),
        (("modes", "one_thread", "variables"), {"OMP_NUM_THREAD": "1"}, "did you mean OMP_NUM_THREADS"),
        (("modes", "one_thread", "variables"), {"PATH": "/"}, "PATH is not a variable that changes bits"),
        (
            ("modes", "one_thread", "variables"),
            {"OMP_NUM_THREADS": 1},
            "1 is not of type 'string' (A string: quote",
        ),
        (("modes", "plain", "switch"), "no_mkldnn", "modes.plain: sets nothing"),
        (("modes", "plain", "variables"), {"OMP_NUM_THREADS": "1"}, "modes.plain: sets nothing"),
        (("modes", "control_inert"), {}, "modes.control_inert: the name is taken"),
        (("candidates", "diffusers", "callable"), "a.b:c", "candidates.diffusers: is built in"),
        (("candidates", "mine"), {"callable": "a.b.c"}, "candidates.mine.callable: 'a.b.c' is not valid"),
        (
            ("candidates", "mine"),
            {"callable": "a.b:c", "path": ["no/such/folder"]},
            "there is no folder 'no/such/folder'",
        ),
        (("modes", "one_thread", "path"), ["nowhere"], "modes.one_thread.path: there is no folder 'nowhere'"),
        (("modes", "one_thread", "conda"), "envs/no.yaml", "modes.one_thread.conda: there is no file"),
        (("conda",), "envs/no.yaml", "conda: there is no file 'envs/no.yaml'"),
        (("cases",), [1, 1], "cases: [1, 1] has non-unique elements"),
        (("cases",), [0], "cases.0: 0 is less than the minimum of 1"),
        (("cases",), [1.0, 4], "cases.0: 1.0 is not of type 'integer'"),
        (("cases",), [True], "cases.0: True is not of type 'integer'"),
        (("cases",), ["4"], "cases.0: '4' is not of type 'integer'"),
        (("cases",), 4, "cases: 4 is not of type 'array'"),
        (("cases",), None, "cases: None is not of type 'array'"),
        (("repeats",), 1, "repeats: 1 is less than the minimum of 2"),
        (("repeats",), 2.0, "repeats: 2.0 is not of type 'integer'"),
        (("operator", "dim"), 100, "operator.dim: 100 is not a multiple of 8"),
        (("operator", "name"), "attention", "operator.name: 'attention' is not one of ['adaln_projection']"),
        (("seeds",), {"weights": -1}, "seeds.weights: -1 is less than the minimum of 0"),
        (("device",), "gpu", "device: 'gpu' is not one of ['cpu', 'cuda']"),
        (("modes",), ["plain"], "modes: ['plain'] is not of type 'object'"),
        (
            ("modes", False),
            {},
            "modes: the key False is not a string; write it in quotes",
        ),  # YAML 1.1 reads `no` so
        (("weights",), {"file": "w.safetensors"}, "weights: 'weight' is a required property"),
    ],
)
def test_a_fault_is_named_with_its_place(path, value, expected):
    found = faults(changed(path, value))
    assert any(expected in fault for fault in found), found


@pytest.mark.parametrize("key", ["audit", "device", "operator", "cases", "candidates", "modes", "baselines"])
def test_what_has_no_default_is_required(key):
    config = {k: v for k, v in SMALL.items() if k != key}
    assert faults(config) == [f"configuration: {key!r} is a required property"]


def test_all_faults_are_named_at_once():
    config = changed(("cases",), []) | {"device": "tpu", "extra": 1}
    assert len(faults(config)) == 3


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a'b",
        'a"b',
        "$(touch x)",
        "`x`",
        "..",
        "../x",
        "a/b",
        "A",
        "",
        "1a",
        "a.b",
        "a\n",
        "a[b]",
        "-a",
    ],
)
@pytest.mark.parametrize("place", ["audit", "candidate", "mode"])
def test_names_that_a_shell_or_a_path_could_misread_are_refused(name, place):
    path = {"audit": ("audit",), "candidate": ("candidates", name), "mode": ("modes", name)}[place]
    value = {"audit": name, "candidate": {"callable": "a:b"}, "mode": {}}[place]
    assert any(repr(name) in fault for fault in faults(changed(path, value)))


@pytest.mark.parametrize(
    "path",
    [
        "$(touch x)",
        "`x`",
        'a"b',
        "a'b",
        "{wildcards}",
        "a\\b",
        "-rf",
        "a*",
        "~/x",
        "a:b",
        "a\nb",
        "a\x00",
        "",
    ],
)
@pytest.mark.parametrize(
    "place", ["results", "weights.file", "candidates.path", "modes.python", "modes.conda"]
)
def test_paths_that_a_shell_or_snakemake_could_misread_are_refused(path, place):
    config = {
        "results": (("results",), path),
        "weights.file": (("weights",), {"file": path, "weight": "w", "bias": "b"}),
        "candidates.path": (("candidates", "mine"), {"callable": "a:b", "path": [path]}),
        "modes.python": (("modes", "one_thread", "python"), path),
        "modes.conda": (("modes", "one_thread", "conda"), path),
    }[place]
    assert any(repr(path) in fault for fault in faults(changed(*config)))


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("out dir", "out dir"),
        ("./out//x/", "out/x"),
        ("../out", "../out"),
        ("/data/ou+t, é", "/data/ou+t, é"),
    ],
)
def test_other_paths_are_taken_and_made_normal(path, normal):
    assert Audit(changed(("results",), path)).config["results"] == normal


def test_a_variable_may_hold_anything_printable():
    audit = Audit(
        changed(("modes", "one_thread", "variables"), {"OMP_NUM_THREADS": "$(touch x) 'a' \"b\" {c}"})
    )
    variables = audit.variables(audit.implementations["diffusers.one_thread"])
    assert variables == {"OMP_NUM_THREADS": "$(touch x) 'a' \"b\" {c}"}


def test_the_schemas_switches_are_the_registrys():
    allowed = schema()["properties"]["modes"]["additionalProperties"]["properties"]["switch"]["enum"]
    assert set(allowed) == {*modes.names(), None} - {"none", "nothing"}  # null, and the planted control's


def test_the_schemas_operators_are_the_registrys():
    allowed = schema()["properties"]["operator"]["properties"]["name"]["enum"]
    assert set(allowed) == operators.LAYOUTS.keys() == operators.MODULES.keys()


def test_every_built_in_candidate_has_a_source():
    assert candidates.MODULES.keys() == candidates.SOURCES.keys()


def _keys(node, place=""):
    for key, sub in node.get("properties", {}).items():
        yield f"{place}{key}", sub
        yield from _keys(sub, f"{place}{key}.")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _keys(node["additionalProperties"], f"{place}*.")


def test_every_key_of_the_schema_is_described_and_nothing_unknown_passes():
    for place, sub in _keys(schema()):
        assert sub.get("description"), place
        if sub.get("type") == "object" or "properties" in sub:
            assert "additionalProperties" in sub, place


def test_defaults_are_valid_themselves():
    for place, sub in _keys(schema()):
        if isinstance(sub.get("default"), dict):
            assert sub["default"] == {}, place  # filled from its own keys' defaults


def test_the_control_is_planted_in_a_plain_baseline():
    audit = Audit(SMALL)
    assert (audit.control.key, audit.control.label) == ("diffusers.control_inert", "diffusers[control_inert]")
    assert audit.plain_of_control.label == "diffusers[plain]"
    assert audit.mode(audit.control) == audit.mode(audit.plain_of_control) | {"switch": "nothing"}
    assert audit.implementation("diffusers.control_inert") == audit.control


def test_another_implementation_is_refused_by_name():
    with pytest.raises(AuditError, match=r"no implementation vllm; it has diffusers\.plain, .*, rl_kernel"):
        Audit(SMALL).implementation("vllm")


def test_the_control_is_planted_in_a_plain_process_even_when_a_mode_is_the_baseline():
    config = changed(("baselines",), ["diffusers[one_thread]"])
    assert Audit(config).plain_of_control.label == "diffusers[plain]"


def test_an_audit_without_a_plain_process_is_refused():
    config = changed(("candidates",), {"diffusers": {"modes": ["one_thread"]}})
    config["baselines"] = ["diffusers[one_thread]"]
    assert any("none runs plain" in fault for fault in faults(config))


def test_a_cell_is_decided_by_what_decides_its_bits():
    audit = Audit(SMALL)
    one = audit.implementations["diffusers.one_thread"]
    assert audit.variables(one) == {"OMP_NUM_THREADS": "1"}
    assert audit.variables(audit.implementations["rl_kernel"]) == {"OMP_NUM_THREADS": "2"}
    spec = audit.cell(one, 4)
    assert (spec["implementation"], spec["case"], spec["repeats"]) == ("diffusers[one_thread]", 4, 2)
    other = Audit(SMALL | {"results": "elsewhere", "on_error": "record", "gpus": 3, "keep_dumps": False})
    assert other.cell(one, 4) == spec  # nothing of these changes a bit, so they make no cell stale
    assert Audit(SMALL | {"repeats": 3}).cell(one, 4) != spec


def test_a_cell_depends_on_the_megatron_source_only_under_megatron():
    config = SMALL | {"megatron_source": "/src/megatron"}
    config["modes"] = SMALL["modes"] | {"te": {"switch": "megatron_te_native"}}
    config["candidates"] = {"diffusers": {"modes": ["plain", "one_thread", "te"]}, "rl_kernel": None}
    audit = Audit(config)
    sources = {i.mode: audit.cell(i, 1)["megatron_source"] for i in audit.implementations.values()}
    assert sources == {"plain": None, "one_thread": None, "te": "/src/megatron", None: None}


def test_the_document_is_json_and_names_the_implementations():
    document = json.loads(json.dumps(Audit(SMALL).document("small.yaml")))
    assert [entry["label"] for entry in document["implementations"]] == [
        "diffusers[plain]",
        "diffusers[one_thread]",
        "rl_kernel",
    ]
    assert document["mode_variables"] == {"plain": {}, "one_thread": {"OMP_NUM_THREADS": "1"}}


def test_suggestions_stay_short():
    assert suggest("x", []) == " (there are: none)"
    assert suggest("zzz", [f"name{i}" for i in range(100)]).endswith("name11, ...)")


def test_an_implementation_has_its_modes_environment_or_the_audits():
    config = changed(("conda",), "envs/torch.yaml")
    config["modes"]["one_thread"]["conda"] = "envs/vllm.yaml"
    audit = Audit(config)
    environments = {label: audit.mode(i)["conda"] for label, i in audit.implementations.items()}
    assert environments.pop("diffusers.one_thread") == "envs/vllm.yaml"
    assert set(environments.values()) == {"envs/torch.yaml"}
    assert audit.mode(audit.control)["conda"] == "envs/torch.yaml"

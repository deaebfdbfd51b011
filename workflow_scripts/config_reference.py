"""config/README.md, from the configuration's schema: every key with its type, default and meaning."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from workflow_scripts.config_schema import SCHEMA, schema
from workflow_scripts.errors import AuditError, run_main

README = SCHEMA.parents[1] / "README.md"
Json = dict[str, Any]

HEAD = """\
# Configuration

<!-- Written by `make config-reference` from schemas/config.schema.json: change the descriptions there. -->

One YAML file configures one audit; hand it over with `--configfile`. Unknown keys, wrong types and names that
do not exist are refused before any job starts, all at once. `snakemake` alone takes `config.yaml`.

| file | audit |
|---|---|
| [`cpu.yaml`](cpu.yaml) | the embedded default: a quarter of MiniMax-H3's widths, on a CPU |
| [`cpu_full.yaml`](cpu_full.yaml) | MiniMax-H3's widths on a CPU, up to 64 rows |
| [`config.yaml`](config.yaml) | MiniMax-H3's widths on a GPU, with modes of vLLM, SGLang and Megatron-LM |

The smallest audit, of one candidate in two processes and our kernel:

```yaml
audit: mine
device: cpu
operator: {hidden: 1344, dim: 672}
cases: [1, 64]
candidates:
  diffusers: {modes: [plain, one_thread]}
  rl_kernel:
modes:
  plain:
  one_thread: {variables: {OMP_NUM_THREADS: "1"}}
baselines: ["diffusers[plain]", rl_kernel]
```

`<name>` stands for a name of yours: lower-case letters, digits and underscores, a letter first. A *label*
names an implementation: `candidate[mode]`, or `candidate` alone where it has no modes. A *path* may hold
spaces, but no quotes and none of ``{ } $ ` \\ * ? ~ :``.

| key | type | default | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """The text of config/README.md."""
    return HEAD + "".join(_rows(schema(), ""))


def _rows(node: Json, place: str) -> Iterator[str]:
    for key, entry in node["properties"].items():
        default = _default(entry, required=key in node.get("required", []))
        cells = (f"`{place}{key}`", _type(entry), default, _description(entry))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
        if "properties" in entry:
            yield from _rows(entry, f"{place}{key}.")
        named = entry.get("additionalProperties")
        if isinstance(named, dict) and "properties" in named:
            yield from _rows(named, f"{place}{key}.{'<label>' if key == 'expect' else '<name>'}.")


def _definition(entry: Json) -> Json:
    """The entry, with what its `$ref` points to filled in."""
    if "$ref" not in entry:
        return entry
    found: Json = schema()["$defs"][entry["$ref"].rpartition("/")[2]]
    return {**found, **entry}


def _type(entry: Json) -> str:
    if "oneOf" in entry:
        return " or ".join(_type(each) for each in entry["oneOf"])
    if "$ref" in entry:
        return str(entry["$ref"]).rpartition("/")[2]
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join("null" if value is None else f"`{value}`" for value in entry["enum"])
    types = entry["type"] if isinstance(entry["type"], list) else [entry["type"]]
    return " or ".join(_one_type(kind, entry) for kind in types)


def _one_type(kind: str, entry: Json) -> str:
    if kind == "array":
        return f"list of {_type(entry['items'])}"
    if kind == "object":
        named = entry.get("additionalProperties")
        return f"map to {_type(named)}" if isinstance(named, dict) and "properties" not in named else "map"
    bounds = [f"{sign} {entry[key]}" for key, sign in _BOUNDS.items() if key in entry]
    return " ".join([kind, *([", ".join(bounds)] if bounds else [])])


_BOUNDS = {"minimum": "\u2265", "exclusiveMinimum": ">", "maximum": "\u2264", "multipleOf": "multiple of"}


def _default(entry: Json, *, required: bool) -> str:
    if "default" in entry:
        return f"`{json.dumps(entry['default'])}`"
    return "required" if required else ""


def _description(entry: Json) -> str:
    return str(_definition(entry)["description"])


def main() -> int:
    """Write config/README.md, or with --check say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 2 when the file is out of date")
    if not parser.parse_args().check:
        README.write_text(reference(), encoding="utf-8")
    elif not README.exists() or README.read_text(encoding="utf-8") != reference():
        raise AuditError(f"{README} is out of date: run `make config-reference`")
    return 0


if __name__ == "__main__":
    run_main(main)

"""Explain in words how two implementations differ, or two dumps: exit 0 same, 1 different, 2 trouble.

python -P -m workflow_scripts.explain "diffusers[vllm]" rl_kernel --case 64 --tensor temb
python -P -m workflow_scripts.explain one.safetensors other.safetensors
"""

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from workflow_scripts.compare import compare_tensors, obstacle
from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.modes.label import label
from workflow_scripts.report.diagnosis import facts, headline
from workflow_scripts.report.evidence import read_json
from workflow_scripts.report.words import Json, direction, listing, rows, tensor_name
from workflow_scripts.tensors import bits, manifest
from workflow_scripts.tensors.dump import open_dump

WIDTH = 100  # of a difference's lines, beside the tensor's name


def main() -> int:
    """Explain a pair; 0 same, 1 different, 2 trouble."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", help="an implementation, such as diffusers[vllm], or a dump (*.safetensors)")
    parser.add_argument("b", help="another")
    parser.add_argument("--case", type=int, help="number of rows (default: every case)")
    parser.add_argument("--tensor", help="out, temb, w or b (default: every tensor)")
    parser.add_argument(
        "--results", type=Path, help="folder of the audit (default: the only one in results/)"
    )
    options = parser.parse_args()
    if options.a.endswith(".safetensors") or options.b.endswith(".safetensors"):
        print(f"a: {options.a}\nb: {options.b}")
        found = {"tensor": compare_dumps(Path(options.a), Path(options.b))}
    else:
        audit = options.results or only_audit(Path("results"))
        print(f"a: {options.a}\nb: {options.b}")
        found = dict(compare_cells(audit, (options.a, options.b), options.case, options.tensor))
    differing = [name for name, comparison in found.items() if not comparison["equal"]]
    print(f"\n{_verdict(len(differing), len(found))}")
    return 1 if differing else 0


def _verdict(differing: int, of: int) -> str:
    if differing:
        return f"Different: {differing} of {of} tensors." if of > 1 else "Different."
    return f"The same: {of} tensors, bit for bit." if of > 1 else "The same, bit for bit."


def compare_dumps(a: Path, b: Path) -> Json:
    """Compare two dump files and print the difference; raises CorruptDumpError."""
    first = open_dump(a)
    found = bits.compare(first, open_dump(b)).as_json()
    print("\n".join(describe(found)))
    return found


def compare_cells(
    audit: Path, names: tuple[str, str], case: int | None, tensor: str | None
) -> Iterator[tuple[str, Json]]:
    """Compare cells from their manifests and dumps, and print each difference.

    Args:
        audit: the audit's folder of results.
        names: labels or keys of the two implementations.
        case: the only case to look at, or None.
        tensor: the only tensor to look at, in any of its spellings, or None.

    Yields:
        Name of a tensor at a case, and its comparison.

    Raises:
        AuditError: a cell is not there, is not ok, is damaged, or is of another machine.
    """
    configfile = configured(audit)
    keys = [name.replace("[", ".").rstrip("]") for name in names]
    for each in cases(audit, keys, case):
        paths = [audit / "cells" / key / str(each) / "manifest.json" for key in keys]
        a, b = (manifest.read(path, configfile) for path in paths)
        if fault := obstacle(a, b, []):
            raise AuditError(f"{names[0]} and {names[1]} can't be compared at {rows([each])}: {fault[1]}")
        print(f"\n{rows([each])}")
        for name in chosen(a["tensors"], tensor):
            found = compare_tensors(
                manifest.stored(paths[0], a, name, configfile), manifest.stored(paths[1], b, name, configfile)
            )
            print("\n".join(_indented(tensor_name(name), [*describe(found), *_vacuous(a, b, name, found)])))
            yield f"{name} at {each}", found


def only_audit(results: Path) -> Path:
    """The folder of the only audit below `results`; AuditError when there is none, or more than one."""
    found = sorted(path.parent for path in results.glob("*/cells"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise AuditError(f"no audit has run in {results}/; run one, or name its folder with --results")
    raise AuditError(f"several audits have run: name one with --results ({listing(found)})")


def configured(audit: Path) -> str:
    """The config file of an audit, for messages; CONFIG where that is not known."""
    path = audit / "configuration.json"
    return str(read_json(path)["configfile"]) if path.exists() else "CONFIG"


def cases(audit: Path, keys: list[str], case: int | None) -> list[int]:
    """Cases that both implementations have a manifest of, ascending; AuditError when there are none."""
    there = []
    for key in keys:
        found = {int(path.parent.name) for path in (audit / "cells" / key).glob("*/manifest.json")}
        if not found:
            known = sorted(path.name for path in (audit / "cells").glob("*"))
            raise AuditError(f"{audit} has no cells of {key}; it has {listing(known) or 'none at all'}")
        there.append(found)
    both = sorted(there[0] & there[1])
    if case is not None and case not in both:
        raise AuditError(
            f"case {case} did not run in both; {rows(both)} did" if both else "no case ran in both"
        )
    return both if case is None else [case]


def chosen(tensors: Json, wanted: str | None) -> list[str]:
    """Ids of the tensors to look at; AuditError when the one that is wanted is not there."""
    if wanted is None:
        return list(tensors)
    for tensor in tensors:
        if wanted in (tensor, tensor_name(tensor), tensor.partition("_")[0], tensor.partition("_")[2]):
            return [tensor]
    raise AuditError(f"there is no tensor {wanted}; there are {listing(map(tensor_name, tensors))}")


def describe(found: Json) -> list[str]:
    """A comparison in lines: the kind of difference, then where and how far."""
    lines = [headline(found), *facts(found)]
    if found["detail"]:
        first = found["detail"]["first"]
        a, b = (f"{first[side]!r} ({first[f'{side}_bits']})" for side in "ab")
        lines.append(f"first at {first['index']}: {a} in a, {b} in b")
        if found["detail"]["ulps"]:
            spread = listing(f"{count} by {name}" for name, count in found["detail"]["ulps"].items())
            lines.append(f"units in the last place: {spread}")
    return lines


def _vacuous(a: Json, b: Json, tensor: str, found: Json) -> list[str]:
    """A warning where equality says nothing."""
    same = a["candidate"] == b["candidate"]
    if found["equal"] and same and label(a["witness"], b["witness"])[direction(tensor)]["label"] == "inert":
        return ["vacuous: the same kernels ran in both, under the same flags"]
    return []


def _indented(name: str, lines: list[str]) -> list[str]:
    short = [part for line in lines for part in textwrap.wrap(line, WIDTH)]
    heads = [name, *[""] * (len(short) - 1)]
    return [f"  {head:<11} {line}" for head, line in zip(heads, short, strict=True)]


if __name__ == "__main__":
    run_main(main)

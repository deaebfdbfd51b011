"""The environment that the cells report, and where they disagree."""

from collections import defaultdict

from workflow_scripts.report.evidence import Evidence
from workflow_scripts.report.words import Json, listing

STACK = ("gpu", "capability", "torch", "cuda", "python", "tf32")
MACHINE = (
    "device",
    "multiprocessors",
    "mig",
    "driver",
    "triton",
    "cpu",
    "cpu_capability",
    "instruction_sets",
    "threads",
)
# A mode may set these on purpose: their difference is the mode's doing, and its witness shows it.
SET_BY_MODES = {"threads", "cpu_capability", "tf32"}


def merged(evidence: Evidence) -> Json:
    """One environment for the report.

    Values are those of the first baseline's first cell that ran; where it has none (a library that is
    installed for one mode only), of the first cell that has. `disagreements` names what other cells saw.
    """
    cells = _ordered(evidence)
    seen = [cell["environment"] for cell in cells]
    environment: Json = {key: _first(seen, key) for key in STACK}
    libraries = [env["libraries"] for env in seen]
    names = list(dict.fromkeys(name for versions in libraries for name in versions))
    environment["libraries"] = {name: _first(libraries, name) for name in names}
    environment["mode_environment"] = evidence.audit["mode_variables"]
    environment["machine"] = {key: _first(seen, key) for key in MACHINE}
    environment["disagreements"] = _disagreements([cell for cell in cells if cell["status"] == "ok"])
    return environment


def _ordered(evidence: Evidence) -> list[Json]:
    """Cells that ran before those that did not, baselines first."""
    baselines = evidence.audit["baselines"]

    def rank(key: tuple[str, int]) -> tuple[bool, int, str, int]:
        label, case = key
        place = baselines.index(label) if label in baselines else len(baselines)
        return evidence.cells[key]["status"] != "ok", place, label, case

    return [evidence.cells[key] for key in sorted(evidence.cells, key=rank)]


def _first(documents: list[Json], key: str) -> object:
    return next((value for each in documents if (value := each.get(key)) is not None), None)


def _disagreements(cells: list[Json]) -> list[str]:
    """One sentence a key on which cells saw different values."""
    seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for cell in cells:
        environment = cell["environment"]
        for key, value in {**environment["libraries"], **environment}.items():
            if value is not None and key != "libraries" and key not in SET_BY_MODES:
                words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
                seen[key][words].add(cell["implementation"])
    return [
        f"{key}: " + "; ".join(f"{value} in {listing(sorted(labels))}" for value, labels in sides.items())
        for key, sides in sorted(seen.items())
        if len(sides) > 1
    ]

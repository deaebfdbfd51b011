"""The validated configuration of an audit, and what follows from it: implementations, cells, pairs.

Everything that can be wrong with a configuration is found here, before any job starts.
"""

import copy
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workflow_scripts import candidates as candidate_registry
from workflow_scripts import modes, operators
from workflow_scripts.config_schema import SCHEMA, faults_in, fill_defaults, schema, suggest
from workflow_scripts.errors import AuditError
from workflow_scripts.modes.scrub import variable_problem

CONTROL_MODE = "control_inert"
PLAIN = (None, "plain")
"""Modes that set nothing; the report compares what other modes did with them."""


@dataclass(frozen=True)
class Implementation:
    """A candidate under a mode: `diffusers[vllm]`, or the candidate alone where it has no modes."""

    candidate: str
    mode: str | None

    @property
    def label(self) -> str:
        """The name that people read."""
        return self.candidate if self.mode is None else f"{self.candidate}[{self.mode}]"

    @property
    def key(self) -> str:
        """The name in paths and wildcards."""
        return self.candidate if self.mode is None else f"{self.candidate}.{self.mode}"


class Audit:
    """One audit's configuration, checked and with its defaults filled in."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Check a configuration.

        Args:
            config: the parsed YAML.

        Raises:
            AuditError: with every fault found, each with its place and what to do.
        """
        self.config: dict[str, Any] = copy.deepcopy(dict(config))
        faults = list(faults_in(self.config))
        if not faults:
            fill_defaults(self.config, schema())
            self._fill_empty_entries()
            self.config["results"] = os.path.normpath(self.config["results"])
            faults = list(self._reference_faults())
        if faults:
            raise AuditError("the configuration is not valid:\n" + "\n".join(f"  - {f}" for f in faults))

    def _fill_empty_entries(self) -> None:
        """`plain:` with nothing behind it takes every default, like `plain: {}`."""
        properties = schema()["properties"]
        for section in ("candidates", "modes"):
            for name, entry in self.config[section].items():
                filled = entry or {}
                fill_defaults(filled, properties[section]["additionalProperties"])
                self.config[section][name] = filled

    @cached_property
    def implementations(self) -> dict[str, Implementation]:
        """Every implementation by its key, in the configuration's order."""
        found = [
            Implementation(candidate, mode)
            for candidate, entry in self.config["candidates"].items()
            for mode in entry["modes"] or [None]
        ]
        return {implementation.key: implementation for implementation in found}

    @cached_property
    def baselines(self) -> dict[str, Implementation]:
        """The baselines by key."""
        by_label = {i.label: i for i in self.implementations.values()}
        return {by_label[label].key: by_label[label] for label in self.config["baselines"]}

    @property
    def cases(self) -> list[int]:
        """Numbers of rows, ascending."""
        return sorted(self.config["cases"])

    @property
    def control(self) -> Implementation:
        """The planted implementation whose mode's switch does nothing."""
        return Implementation(self.plain_of_control.candidate, CONTROL_MODE)

    @cached_property
    def plain_of_control(self) -> Implementation:
        """The plain implementation, a baseline if there is one, that the planted one must not differ from."""
        plain = [i for i in self.implementations.values() if i.mode in PLAIN]
        return min(plain, key=lambda i: (i.key not in self.baselines, i.candidate != "diffusers"))

    def implementation(self, key: str) -> Implementation:
        """The implementation of a wildcard's value, the planted one included.

        Raises:
            AuditError: the audit has no such implementation.
        """
        if key == self.control.key:
            return self.control
        if key not in self.implementations:
            raise AuditError(
                f"the audit has no implementation {key}; it has {', '.join(self.implementations)}"
            )
        return self.implementations[key]

    def mode(self, implementation: Implementation) -> dict[str, Any]:
        """The mode's settings; those of an empty mode where the implementation has none.

        `conda` is the audit's environment where the mode has none of its own.
        """
        if implementation == self.control:
            plain = self.mode(self.plain_of_control)
            return {**plain, "switch": "nothing"}
        settings: dict[str, Any] = {}
        if implementation.mode is None:
            fill_defaults(settings, schema()["properties"]["modes"]["additionalProperties"])
        else:
            settings |= self.config["modes"][implementation.mode]
        return settings | {"conda": settings["conda"] or self.config["conda"]}

    def cell(self, implementation: Implementation, case: int) -> dict[str, Any]:
        """All that decides what a cell computes: a change of any part of it makes the cell stale."""
        mode = self.mode(implementation)
        candidate = self.config["candidates"][implementation.candidate]
        return {
            "implementation": implementation.label,
            "candidate": implementation.candidate,
            "callable": candidate["callable"],
            "source": candidate["source"],
            "mode": implementation.mode,
            "switch": mode["switch"],
            "needs": mode["needs"],
            "megatron_source": self.config["megatron_source"]
            if "megatron" in (mode["switch"] or "")
            else None,
            "case": case,
            "device": self.config["device"],
            "operator": self.config["operator"],
            "repeats": self.config["repeats"],
        }

    def variables(self, implementation: Implementation) -> dict[str, str]:
        """Environment variables of a cell: the number of threads, then the mode's own."""
        return {"OMP_NUM_THREADS": str(self.config["threads"]), **self.mode(implementation)["variables"]}

    def path(self, implementation: Implementation) -> list[str]:
        """Folders to put on a cell's PYTHONPATH: the candidate's, then the mode's."""
        return [
            *self.config["candidates"][implementation.candidate]["path"],
            *self.mode(implementation)["path"],
        ]

    def plugins(self, implementation: Implementation) -> list[str]:
        """Our modules that a cell imports by a name from the configuration, below `workflow_scripts`."""
        operator = self.config["operator"]["name"]
        switch = self.mode(implementation)["switch"]
        found = [operators.LAYOUTS[operator], operators.MODULES[operator], modes.module(switch)]
        if implementation.candidate in candidate_registry.MODULES:
            found.append(candidate_registry.MODULES[implementation.candidate])
        return [name.removeprefix("workflow_scripts.") for name in found]

    def document(self, configfile: str) -> dict[str, Any]:
        """What the report needs to know of the configuration, as a JSON document."""
        return {
            **self.config,
            "cases": self.cases,
            "configfile": configfile,
            "implementations": [
                {"key": i.key, "label": i.label, "candidate": i.candidate, "mode": i.mode}
                for i in self.implementations.values()
            ],
            "control": {"key": self.control.key, "label": self.control.label},
            "mode_variables": {name: mode["variables"] for name, mode in self.config["modes"].items()},
        }

    def _reference_faults(self) -> Iterator[str]:
        yield from self._candidate_faults()
        yield from self._mode_faults()
        yield from self._path_faults()
        yield from self._label_faults()

    def _candidate_faults(self) -> Iterator[str]:
        for name, candidate in self.config["candidates"].items():
            for mode in candidate["modes"] or []:
                if mode not in self.config["modes"]:
                    known = self.config["modes"]
                    yield f"candidates.{name}.modes: no mode is named {mode!r}{suggest(mode, known)}"
            if candidate["callable"] is None and name not in candidate_registry.MODULES:
                yield (
                    f"candidates.{name}: is not built in, so it needs `callable: package.module:attribute`"
                    + suggest(name, candidate_registry.MODULES)
                )
            if candidate["callable"] is not None and name in candidate_registry.MODULES:
                yield f"candidates.{name}: is built in; give the callable another name"
        if not any(i.mode in PLAIN for i in self.implementations.values()):
            yield "candidates: none runs plain, so nothing shows what a mode does; give one `modes: [plain]`"

    def _mode_faults(self) -> Iterator[str]:
        if CONTROL_MODE in self.config["modes"]:
            yield f"modes.{CONTROL_MODE}: the name is taken by the planted control; use another"
        for name, mode in self.config["modes"].items():
            for variable in mode["variables"]:
                if problem := variable_problem(variable):
                    yield f"modes.{name}.variables.{variable}: {problem}"
            if name == "plain" and (mode["variables"] or mode["switch"]):
                yield "modes.plain: sets nothing, so it has neither variables nor a switch; use another name"

    def _path_faults(self) -> Iterator[str]:
        for section in ("candidates", "modes"):
            for name, entry in self.config[section].items():
                for folder in entry["path"]:
                    if not Path(folder).is_dir():
                        yield f"{section}.{name}.path: there is no folder {folder!r} (seen from {Path.cwd()})"
        root = SCHEMA.parents[2]
        places = {f"modes.{name}.conda": mode["conda"] for name, mode in self.config["modes"].items()}
        for place, file in {"conda": self.config["conda"], **places}.items():
            if file is not None and not (root / file).is_file():
                yield f"{place}: there is no file {file!r} (seen from {root})"

    def _label_faults(self) -> Iterator[str]:
        labels = [i.label for i in self.implementations.values()]
        lists: dict[str, list[str]] = {
            "baselines": self.config["baselines"],
            "expect": list(self.config["expect"]),
        }
        if self.config["required"] != "all":
            lists["required"] = self.config["required"]
        for place, used in lists.items():
            for label in used:
                if label not in labels:
                    yield f"{place}: no implementation is named {label!r}{suggest(label, labels)}"
        for label, expectation in self.config["expect"].items():
            for key in ("equal_to", "differs_from"):
                for other in expectation.get(key, []):
                    if other not in self.config["baselines"] or other == label:
                        yield f"expect.{label}.{key}: {other!r} is not another baseline"

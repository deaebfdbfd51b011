"""The schema of a configuration: its faults in words, and its defaults filled in."""

import copy
import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = Path(__file__).resolve().parents[1] / "config" / "schemas" / "config.schema.json"

SHOWN = 12  # names that a message lists at the most

# JSON Schema takes 1.0 for an integer; a case of 1.0 rows would be another folder than a case of 1.
_TYPES = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
_VALIDATOR: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, type_checker=_TYPES
)


@cache
def schema() -> dict[str, Any]:
    """The configuration's JSON Schema."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text())
    return found


def fill_defaults(instance: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Add what `instance` leaves out and its schema has a default for, in place."""
    for key, sub in schema.get("properties", {}).items():
        if key not in instance and "default" in sub:
            instance[key] = copy.deepcopy(sub["default"])
        if isinstance(instance.get(key), dict):
            fill_defaults(instance[key], sub)


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that was likely meant, or all that there are."""
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"; did you mean {close[0]!r}?"
    shown = names[:SHOWN] + ["..."] * (len(names) > SHOWN)
    return f" (there are: {', '.join(shown) or 'none'})"


def faults_in(config: Mapping[str, Any]) -> list[str]:
    """What is wrong with a configuration by its schema, each with its place; empty when nothing is."""
    return list(_text_faults(config)) or list(_schema_faults(config))


def printable(key: object) -> str:
    """A key of a document as a part of its place, on one line."""
    return str(key) if str(key).isprintable() else repr(key)


def _text_faults(value: Any, place: str = "") -> Iterator[str]:
    """What the schema can't see: keys that are not strings; a newline, before which a pattern's $ matches."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{place or 'configuration'}: the key {key!r} is not a string; write it in quotes"
                continue
            yield from _text_faults(key, place)
            yield from _text_faults(item, f"{place}.{printable(key)}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from _text_faults(item, place)
    elif isinstance(value, str) and not value.isprintable():
        yield f"{place or 'configuration'}: {value!r} has a newline, or a character that is not printable"


def _schema_faults(config: Mapping[str, Any]) -> Iterator[str]:
    for error in sorted(
        _VALIDATOR(schema()).iter_errors(config), key=lambda e: [str(p) for p in e.absolute_path]
    ):
        place = ".".join(printable(part) for part in error.absolute_path) or "configuration"
        if error.validator == "additionalProperties" and isinstance(error.instance, dict):
            known = error.schema.get("properties", {})
            for key in error.instance:
                if key not in known:
                    yield f"{place}: unknown key {key!r}{suggest(key, known)}"
        elif error.validator == "required":
            yield f"{place}: {error.message}"
        else:
            said = f"{error.instance!r} is not valid" if error.validator == "pattern" else error.message
            meaning = error.schema.get("description") if isinstance(error.schema, dict) else None
            yield f"{place}: {said}" + (f" ({meaning})" if meaning else "")

"""What an implementation's equality is worth: did its mode change anything for this operator?"""

from collections.abc import Iterable, Mapping
from typing import Any

Witness = Mapping[str, Any]
DIRECTIONS = ("forward", "backward")
_SHOWN = 3


def label(
    witness: Witness, plain_witness: Witness | None, siblings: Mapping[str, Witness] | None = None
) -> dict[str, dict[str, str]]:
    """For each direction `{"label": ..., "reason": words}`.

    - `effective`: other kernels, other flags or another state than plain
    - `inert`: the same kernels, flags and state; then an equality with plain says nothing about the library
    - `baseline`: `witness` is the plain witness itself (the same object)
    - `unknown`: there is no plain witness to compare with

    An output depends on the forward direction, a gradient on the backward one. `siblings` are witnesses of
    other modes of the same candidate and case, by label; one without a difference is named in the reason.
    """
    return {direction: _label(direction, witness, plain_witness, siblings or {}) for direction in DIRECTIONS}


def _label(
    direction: str, witness: Witness, plain: Witness | None, siblings: Mapping[str, Witness]
) -> dict[str, str]:
    if plain is witness:
        return {"label": "baseline", "reason": "this is what the others are compared with"}
    if plain is None:
        return {
            "label": "unknown",
            "reason": "no plain cell of this case ran, so there is nothing to compare with",
        }
    differences = _differences(direction, witness, plain)
    if not differences:
        return {"label": "inert", "reason": _inert_reason(witness)}
    same = [name for name, other in siblings.items() if not _differences(direction, witness, other)]
    if same:
        differences.append(f"nothing differs from {', '.join(same)}, so equality with that says nothing")
    return {"label": "effective", "reason": "; ".join(differences)}


def _differences(direction: str, witness: Witness, other: Witness) -> list[str]:
    """What tells two witnesses apart in one direction, in words; empty when nothing does."""
    ours, theirs = witness["kernels"][direction], other["kernels"][direction]
    added, gone = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    words = []
    if added or gone:
        words.append("other kernels: " + " ".join([*_signed("+", added), *_signed("\N{MINUS SIGN}", gone)]))
    for part, title in (("flags_after", "flags"), ("state", "state")):
        mine, yours = witness[part], other[part]
        changed = _changed(mine, yours, mine.keys() | yours.keys())
        if changed:
            words.append(
                f"other {title}: "
                + ", ".join(f"{k} {yours.get(k)} \N{RIGHTWARDS ARROW} {mine.get(k)}" for k in changed)
            )
    return words


def _changed(mine: Mapping[str, Any], yours: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    return sorted(key for key in keys if mine.get(key) != yours.get(key))


def _signed(sign: str, names: list[str]) -> list[str]:
    rest = len(names) - _SHOWN
    return [sign + name for name in names[:_SHOWN]] + ([f"{sign}{rest} more"] if rest > 0 else [])


def _inert_reason(witness: Witness) -> str:
    overridden = witness.get("overridden") or []
    if overridden:
        return (
            f"the switch overrode {', '.join(overridden)}, but the same kernels ran as in plain: "
            "its equality says nothing about the library"
        )
    if witness.get("switch"):
        return (
            "no effect: the switch changed no kernel, no flag, no state; "
            "its equality says nothing about the library"
        )
    return "same kernels, same flags and same state as plain: its equality says nothing about the mode"

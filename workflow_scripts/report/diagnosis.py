"""What kind of difference two tensors have, in words: the thing itself first, then where and how far."""

from workflow_scripts.report.words import Json, count, listing, share


def headline(found: Json) -> str:
    """The kind of a difference in one phrase.

    Args:
        found: a comparison of two tensors, as in compare documents, with its detail.
    """
    if found["equal"]:
        return "equal, bit for bit"
    if found["reason"]:
        return f"another {found['reason']}: the elements were not compared"
    differ, detail = found["differ"], found["detail"]
    if detail["signed_zeros"] == differ:
        return "signed zeros only: +0 on one side, -0 on the other"
    if detail["nans"]["a"] == detail["nans"]["b"] == differ:
        return "NaN payloads only: NaN on both sides, with other bits"
    kinds = [_whole(detail, differ), _distance(detail, differ)]
    return f"differs {', '.join(filter(None, kinds)) or 'in some elements'}"


def _whole(detail: Json, differ: int) -> str | None:
    """Whether the difference fills whole rows or columns."""
    rows, columns = detail["rows"], detail["columns"]
    if rows["of"] * columns["of"] == differ:
        return "in every element"
    if rows["touched"] * columns["of"] == differ and rows["of"] > 1:
        which = (
            listing(rows["first"]) if rows["touched"] <= len(rows["first"]) else f"{rows['touched']} of them"
        )
        return f"in {'a whole row' if rows['touched'] == 1 else 'whole rows'} ({which})"
    if (columns["touched"] or 0) * rows["of"] == differ and rows["of"] > 1:
        return "in a whole column" if columns["touched"] == 1 else f"in {columns['touched']} whole columns"
    return None


def _distance(detail: Json, differ: int) -> str | None:
    """How far apart finite values are, when that is all there is to say."""
    ulps = detail["ulps"]
    if not ulps or sum(ulps.values()) != differ:
        return None
    farthest = list(ulps)[-1]
    if list(ulps) == ["1"]:
        return "by one unit in the last place"
    if farthest.startswith(">"):
        return f"by more than {farthest[1:]} units in the last place at the farthest"
    return f"by at most {farthest.split('-')[-1]} units in the last place"


def facts(found: Json) -> list[str]:
    """Sentences on how much differs, where, and how far; empty for tensors that are equal or unlike."""
    if found["equal"] or found["reason"]:
        return []
    detail = found["detail"]
    rows, columns = detail["rows"], detail["columns"]
    sentences = [f"{count(found['differ'])} of {count(found['numel'])} elements differ ({_share(found)})"]
    first = listing(rows["first"] if rows["touched"] <= len(rows["first"]) else [*rows["first"], "more"])
    if rows["of"] > 1:
        sentences.append(f"in {count(rows['touched'])} of {count(rows['of'])} rows: {first}")
    if columns["touched"] is not None:
        sentences.append(f"in {count(columns['touched'])} of {count(columns['of'])} columns")
    if sum((detail["ulps"] or {}).values()):
        sentences.append(f"largest absolute difference {found['max_abs']!r}")
    if detail["signed_zeros"]:
        sentences.append(f"{count(detail['signed_zeros'])} pairs of +0 and -0")
    for name, sides in (("NaNs", detail["nans"]), ("infinities", detail["infinities"])):
        if sides["a"] or sides["b"]:
            sentences.append(f"{name} among them: {count(sides['a'])} in a, {count(sides['b'])} in b")
    return sentences


def _share(found: Json) -> str:
    return share(found["differ"], found["numel"])

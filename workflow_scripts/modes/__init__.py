"""How a process is set: its environment variables, the library switch that it throws, and the proof of what ran.

The parent module is importable without torch: `scrub` is needed before torch may be loaded.
"""

from workflow_scripts.errors import AuditError
from workflow_scripts.modes.builtin import NoMkldnn, NoSwitch, Nothing
from workflow_scripts.modes.switch import Switch

_SWITCHES: dict[str, type[Switch]] = {switch.name: switch for switch in (NoSwitch, Nothing, NoMkldnn)}


def names() -> list[str]:
    """The names that a mode's `switch:` may have."""
    return list(_SWITCHES)


def get(name: str | None) -> Switch:
    """The switch of this name; None is the switch `none`, for a mode that is its variables alone.

    Raises:
        AuditError: there is no such switch.
    """
    try:
        return _SWITCHES[name or "none"]()
    except KeyError:
        raise AuditError(f"unknown switch {name!r}: choose one of {', '.join(names())}") from None

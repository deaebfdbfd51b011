"""How a process is set: its environment variables, its library switch, and the proof of what ran.

Importable without torch, as `scrub` is needed before torch may be loaded; switches load when asked for.
"""

import importlib

from workflow_scripts.errors import AuditError
from workflow_scripts.modes.switch import HalfEnabledError, Switch, Thrown

__all__ = ["HalfEnabledError", "Switch", "Thrown", "get", "module", "names"]

_SWITCHES = {
    "none": "builtin.NoSwitch",
    "nothing": "builtin.Nothing",
    "no_mkldnn": "builtin.NoMkldnn",
    "vllm": "vllm.Vllm",
    "sglang": "sglang.Sglang",
    "megatron_te_native": "megatron.MegatronTeNative",
    "megatron_triton": "megatron.MegatronTriton",
}


def names() -> list[str]:
    """The names that a mode's `switch` may have."""
    return list(_SWITCHES)


def module(name: str | None) -> str:
    """The dotted name of the module that holds the switch of this name; arguments and errors as in `get`."""
    return f"{__name__}.{_place(name)[0]}"


def get(name: str | None) -> Switch:
    """The switch of this name; None is the switch `none`, for a mode that is its variables alone.

    Raises:
        AuditError: there is no such switch.
    """
    switch: Switch = getattr(importlib.import_module(module(name)), _place(name)[1])()
    return switch


def _place(name: str | None) -> tuple[str, str]:
    try:
        file, _, kind = _SWITCHES[name or "none"].partition(".")
    except KeyError:
        raise AuditError(f"unknown switch {name!r}: choose one of {', '.join(names())}") from None
    return file, kind

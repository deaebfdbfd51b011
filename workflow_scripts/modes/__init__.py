"""How a process is set: its environment variables, its library switch, and the proof of what ran.

Importable without torch, as `scrub` is needed before torch may be loaded; switches load when asked for.
"""

import importlib

from workflow_scripts.errors import AuditError
from workflow_scripts.modes.switch import HalfEnabledError, Switch, Thrown

__all__ = ["HalfEnabledError", "Switch", "Thrown", "get", "names"]

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


def get(name: str | None) -> Switch:
    """The switch of this name; None is the switch `none`, for a mode that is its variables alone.

    Raises:
        AuditError: there is no such switch.
    """
    try:
        module, _, kind = _SWITCHES[name or "none"].partition(".")
    except KeyError:
        raise AuditError(f"unknown switch {name!r}: choose one of {', '.join(names())}") from None
    switch: Switch = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return switch

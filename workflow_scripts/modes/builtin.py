"""Switches that need no library: none at all, one that does nothing (a control), and oneDNN turned off."""

from workflow_scripts.errors import AuditError
from workflow_scripts.modes.switch import (
    Config,
    HalfEnabledError,
    Thrown,
    torch_deviations,
)


class NoSwitch:
    """A mode that is its variables and nothing else, `plain` among them."""

    name = "none"

    def unavailable(self, config: Config) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Always None."""
        return None

    def throw(self, config: Config) -> Thrown:  # noqa: ARG002
        """Nothing is called."""
        return Thrown(None, torch_deviations())


class Nothing(NoSwitch):
    """A planted control: a switch that claims to do something and does nothing. The audit must notice."""

    name = "nothing"

    def throw(self, config: Config) -> Thrown:  # noqa: ARG002
        """Does nothing, on purpose."""
        return Thrown(
            entry_point="workflow_scripts.modes.builtin.Nothing (control)", deviations=torch_deviations()
        )


class NoMkldnn:
    """oneDNN off: matrix products go to MKL, or to ATen's own loops for bf16."""

    name = "no_mkldnn"

    def unavailable(self, config: Config) -> str | None:
        """A reason when torch was built without oneDNN, or when the device is not a CPU."""
        import torch  # noqa: PLC0415 - only a cell needs it

        if config.get("device", "cpu") != "cpu":
            return "no_mkldnn turns off a CPU library, and this audit's device is not cpu"
        if not torch.backends.mkldnn.is_available():
            return f"torch {torch.__version__} was built without oneDNN, so there is nothing to turn off"
        return None

    def throw(self, config: Config) -> Thrown:
        """Set torch.backends.mkldnn.enabled to False, for the whole process."""
        import torch  # noqa: PLC0415

        reason = self.unavailable(config)
        if reason:
            raise AuditError(reason)
        torch.backends.mkldnn.set_flags(_enabled=False)
        if torch.backends.mkldnn.enabled:
            raise HalfEnabledError("torch.backends.mkldnn.set_flags(False) left oneDNN on")
        return Thrown("torch.backends.mkldnn.set_flags(_enabled=False)", torch_deviations())

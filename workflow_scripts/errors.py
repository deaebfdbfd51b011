"""Errors that are written for people, and how an entry point shows them."""

import sys
from collections.abc import Callable


class AuditError(Exception):
    """Something the user can act on: the message says what was wrong, where, and what to do."""


class CorruptDumpError(AuditError):
    """A dump is not the tensor that its manifest describes."""


def run_main(main: Callable[[], int]) -> None:
    """Run an entry point; exit with its status, or with 2 and one message when it raises AuditError."""
    try:
        sys.exit(main())
    except AuditError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

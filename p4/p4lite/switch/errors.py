"""Errors of the switch's program side. `ControlError` and its subclasses map one to one onto gRPC codes."""

from __future__ import annotations

from p4lite.errors import P4liteError


class ProgramError(P4liteError):
    """A BMv2 JSON that cannot be loaded; the message names file and place."""

    code = "bad_program"


class InterpretedOnly(ProgramError):
    """A program of an architecture that the compiled switch has not; the interpreter runs it."""

    code = "interpreted_only"


class BuildError(P4liteError):
    """The C compiler is missing or failed; the message says what to do."""

    code = "build_failed"


class DocumentError(P4liteError, ValueError):
    """A document of the wrong form; the text names the place."""

    code = "bad_document"


class GrantError(P4liteError):
    """A file or interface that the target API may not use (PERMISSION_DENIED)."""

    code = "not_granted"


class TargetError(P4liteError):
    """A refused or failed call of the target API: `code` is the gRPC status code's name, the text the server's
    reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ControlError(P4liteError):
    """A control operation refused; nothing was changed."""

    code = "refused"


class NotFound(ControlError):
    """No such table, entry, member, group, index (NOT_FOUND)."""


class AlreadyExists(ControlError):
    """An entry with that match key (and priority), member or group exists (ALREADY_EXISTS)."""


class InvalidArgument(ControlError):
    """Wrong kind, number or form of keys or arguments (INVALID_ARGUMENT)."""


class OutOfRange(ControlError):
    """A value does not fit its width, or an index its array (OUT_OF_RANGE)."""


class ResourceExhausted(ControlError):
    """Table, profile or value set is full (RESOURCE_EXHAUSTED)."""


class PermissionDenied(ControlError):
    """Const entries or a const default action cannot change (PERMISSION_DENIED)."""

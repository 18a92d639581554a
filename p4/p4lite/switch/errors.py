"""Errors of the switch's program side. `ControlError` and its subclasses map one to one onto gRPC codes."""

from __future__ import annotations


class ProgramError(Exception):
    """A BMv2 JSON that cannot be loaded; the message names file and place."""


class BuildError(Exception):
    """The C compiler is missing or failed; the message says what to do."""


class DocumentError(ValueError):
    """A document of the wrong form; the text names the place."""


class GrantError(Exception):
    """The target API may not touch this file or interface (PERMISSION_DENIED)."""


class ControlError(Exception):
    """A control operation refused; nothing was changed."""


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

"""Checks of configuration values and the errors that they raise."""

from __future__ import annotations

from mrc_topo.base.errors import UsageError


class ConfigError(UsageError, ValueError):
    """A configuration value out of its range; the message names field, value and range."""


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise ConfigError unless `low <= value <= high`."""
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}; allowed: {low} to {high}")

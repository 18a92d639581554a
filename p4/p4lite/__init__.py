"""P4_16 compiler and embedded switch: `p4lite.compile(...)`, `p4lite.Switch(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p4lite.api import Action, CounterValue, MeterConfig, Program, Switch, TableEntry, compile

__all__ = ["Action", "CounterValue", "MeterConfig", "Program", "Switch", "TableEntry", "compile"]


def __getattr__(name: str) -> object:
    """Import the API when it is first asked for: the compiler takes longer to import than a command to start."""
    if name not in __all__:
        raise AttributeError(f"module 'p4lite' has no attribute '{name}'")
    from p4lite import api

    return getattr(api, name)

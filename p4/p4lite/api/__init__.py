"""P4 programs and switches for Python and pytest: `p4lite.compile` and `p4lite.Switch` (docs/howto/p4-tools.md)."""

from p4lite.api.program import Program, compile
from p4lite.api.switch import Switch
from p4lite.api.tables import Action, TableEntry
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig

__all__ = ["Action", "CounterValue", "MeterConfig", "Program", "Switch", "TableEntry", "compile"]

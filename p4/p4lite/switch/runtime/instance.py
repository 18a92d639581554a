"""The state of one switch: tables, profiles, counters, meters, registers, value sets, by name.

Every operation takes the instance's lock (pipeline.h), so it may be called while the fabric core runs packets
in another thread; a packet sees a table before or after an operation. An operation that raises changed nothing.
"""

from __future__ import annotations

from p4lite.switch.runtime.arrays import ArrayControl, CounterValue, MeterConfig
from p4lite.switch.runtime.profiles import Group, ProfileMember
from p4lite.switch.runtime.tables import Entry

__all__ = ["CounterValue", "Entry", "Group", "MeterConfig", "ProfileMember", "ProgramInstance"]


class ProgramInstance(ArrayControl):
    """One switch's state: a `Handle` (handle.py) and what can be done to action profiles (profiles.py), to tables
    (tables.py), and to arrays, those of tables among them (arrays.py), each on top of those before."""

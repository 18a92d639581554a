"""Ledger of the causes of what is broken in a lab, from which the state of every element follows.

A link, carrier or switch may suffer from several failures at once. The ledger keeps each failure in force and, for
every element that any of them touches, what was found there before the first. The state of an element is what was
found, under the effects of all its causes together; so failures may come and go in any order, and when the last is
gone everything is as it was.

The ledger is written before the fabric is changed, and again afterwards. A change that breaks off midway is undone;
where that fails too, its failure stays in the ledger and the elements concerned are marked unsettled: the next change,
or the next `restore`, puts them right.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mrc_topo.base.errors import MrclabError
from mrc_topo.capacity import Capacity
from mrc_topo.topology import Link, Switch, Topology
from mrclab.lab.faults import fabric, kinds
from mrclab.lab.faults.action import Action, Effects, FailureError, together
from mrclab.lab.faults.fabric import FaultTarget, Found, LinkState
from p4lite.switch.fabric.values import SwitchState

#: The number of changes whose times a ledger keeps.
KEPT = 64


@dataclass(frozen=True)
class LedgerChange:
    """A failure that came or went, and when that began and was done, by the lab's clock (ns): the one source of these
    times for the records of runs and for those who only watch. The clock of a real lab is the machine's monotonic one,
    which all processes share. The changes of a lab are numbered from 1; 0: the ledger has no such change."""

    action: Action
    began_ns: int
    done_ns: int
    number: int = 0


@dataclass(frozen=True)
class LedgerState:
    """The content of a ledger: the failures in force, the states found before them, elements in doubt, and the latest
    `KEPT` changes, oldest first."""

    causes: Sequence[Action] = ()
    found: Mapping[str, Found] = field(default_factory=dict)
    unsettled: Sequence[str] = ()
    changes: Sequence[LedgerChange] = field(default=(), compare=False)


class UnsettledError(MrclabError):
    """A change that was interrupted and could not be undone; the text says which elements are in doubt and what repairs
    them."""


class LedgerRecord(Protocol):
    """The stored ledger, by which another process can undo what this one did."""

    def read(self) -> LedgerState:
        """Read the state that was written last; it is empty at first."""

    def exclusive(self) -> contextlib.AbstractContextManager[Callable[[LedgerState], None]]:
        """Exclude other writers while the context lasts; yield the function that writes."""


class MemoryRecord:
    """A stored ledger for a lab that lives in one process."""

    def __init__(self) -> None:
        self.state = LedgerState()

    def read(self) -> LedgerState:
        return self.state

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Callable[[LedgerState], None]]:
        yield self._write

    def _write(self, state: LedgerState) -> None:
        self.state = state


class FaultLedger:
    """The failures of a lab.

    Args:
        topology: that of the lab.
        refill: fills a switch's tables (by name) after a reboot.
        record: stores the ledger.
        ready: called before a failure begins; raises FailureError where it cannot begin.
        clock: returns the time of the lab's clock, ns.
    """

    def __init__(
        self,
        topology: Topology,
        refill: Callable[[str], object],
        record: LedgerRecord | None = None,
        ready: Callable[[Action], object] = lambda action: None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.topology = topology
        self.refill = refill
        self.ready = ready
        self.clock = clock
        self.record: LedgerRecord = MemoryRecord() if record is None else record
        self._causes: list[Action] = []
        self._found: dict[str, Found] = {}
        self._unsettled: set[str] = set()
        self._own: list[Action] = []
        self._changes: list[LedgerChange] = []
        self._capacity = Capacity(topology)
        self.reload()

    # --- what is in force --------------------------------------------------------------------------------

    @property
    def causes(self) -> Sequence[Action]:
        """The failures in force when this ledger last looked, oldest first."""
        return tuple(self._causes)

    @property
    def changes(self) -> Sequence[LedgerChange]:
        """The latest `KEPT` changes when this ledger last looked, oldest first."""
        return tuple(self._changes)

    @property
    def latest(self) -> int:
        """The number of the latest change when this ledger last looked; 0: there was none."""
        return self._changes[-1].number if self._changes else 0

    def changed_ns(self, action: Action) -> tuple[int, int]:
        """Return when a failure last came, or when a target's failure (of a kind, if the action has one) last went:
        when that began and was done. Of a change that is still under way, or is no longer kept, both are now."""
        for change in reversed(self._changes):
            done = change.action
            same_kind = done.kind == action.kind or (action.verb == "restore" and not action.kind)
            if (done.verb, done.target) == (action.verb, action.target) and same_kind:
                return change.began_ns, change.done_ns
        now = self.clock()
        return now, now

    @property
    def broken(self) -> dict[str, str]:
        """The targets of the failures in force, each with a description of its failure."""
        found: dict[str, str] = {}
        for cause in self._causes:
            found[cause.target] = ", ".join(filter(None, (found.get(cause.target), cause.describe())))
        return found

    @property
    def unsettled(self) -> list[str]:
        """The elements whose change was interrupted and could not be undone yet."""
        return sorted(self._unsettled)

    def effects(self) -> Effects:
        """Return the combined effects of all failures in force."""
        return self._together(self._causes)

    def expected_loss(self, hosts: Sequence[int] | None = None, causes: Sequence[Action] | None = None) -> float:
        """Return the share of capacity that the most affected host (of these) loses by failures (default: those in
        force), if endpoints avoid them; see `mrc_topo.capacity` and `Effects.rates`."""
        rates = self._together(self._causes if causes is None else causes).rates(self.topology)
        if hosts is None:
            return self._capacity.worst_lost(rates)
        return max((self._capacity.lost(host, rates) for host in hosts), default=0.0)

    def reload(self) -> None:
        """Read the recorded state again."""
        state = self.record.read()
        self._causes, self._found, self._unsettled = list(state.causes), dict(state.found), set(state.unsettled)
        self._changes = list(state.changes)

    def _state(self) -> LedgerState:
        return LedgerState(list(self._causes), dict(self._found), self.unsettled, list(self._changes))

    def _together(self, causes: Iterable[Action]) -> Effects:
        return together(kinds.effects_of(self.topology, each) for each in causes)

    # --- changes -----------------------------------------------------------------------------------------

    def check(self, action: Action) -> Action:
        """Return the action with its kind and its target's canonical name, checked against the topology but not carried
        out.

        Raises:
            FailureError: the kind or a setting is unknown, or the target does not fit.
            UnknownElement: the topology has no such target.
        """
        return kinds.check(self.topology, action)

    def perform(self, lab: FaultTarget, action: Action) -> Sequence[LedgerChange]:
        """Carry an action out; return the changes that it made.

        Raises:
            FailureError: as `check`; the target has this failure already, or has no failure to restore.
            UnsettledError: the change was interrupted, and could not be undone.
        """
        if action.verb == "fail":
            return self.fail(lab, action)
        return self.restore(lab, action.target, action.kind)

    def fail(self, lab: FaultTarget, action: Action) -> Sequence[LedgerChange]:
        """Inject a failure; see `perform`."""
        action = self.check(action)
        with self._alone() as write:
            for cause in self._causes:
                if (cause.target, cause.kind) == (action.target, action.kind):
                    raise FailureError(f"{action.target} is broken already ({cause.describe()}); restore it first")
            self.ready(action)
            made = self._change(lab, write, gone=[], come=[action])
            self._own.append(action)
            return made

    def restore(self, lab: FaultTarget, target: str, kind: str = "") -> Sequence[LedgerChange]:
        """Restore a target's failures (or the one of a kind); effects of other failures on its elements stay.

        Raises:
            FailureError: the target has no failure.
            UnsettledError: as `perform`.
        """
        action = self.check(Action("restore", target, kind))
        with self._alone() as write:
            gone = [each for each in self._causes if each.target == action.target and kind in ("", each.kind)]
            if not gone:
                now = "; ".join(each.describe() for each in self._causes) or "nothing is"
                raise FailureError(f"{action.target} is not broken{f' by {kind}' if kind else ''}; broken: {now}")
            return self._change(lab, write, gone, come=[])

    def restore_all(self, lab: FaultTarget) -> list[str]:
        """Restore all failures, latest first, and settle what is unsettled; return the targets.

        Continues after a failure that cannot be restored, and raises the first error at the end.
        """
        with self._alone() as write:
            return self._restore_each(lab, write, list(self._causes))

    def restore_own(self, lab: FaultTarget) -> list[str]:
        """Restore the failures that this ledger injected and that are still in force, and leave all others; as
        `restore_all`."""
        with self._alone() as write:
            return self._restore_each(lab, write, [each for each in self._causes if each in self._own])

    def _restore_each(self, lab: FaultTarget, write: Callable[[LedgerState], None], causes: list[Action]) -> list[str]:
        problems: list[Exception] = []
        restored: list[str] = []
        for cause in reversed(causes):
            try:
                self._change(lab, write, [cause], come=[])
                restored.append(cause.target)
            except Exception as problem:  # noqa: BLE001 - the others must be restored first
                problems.append(problem)
        if problems:
            raise problems[0]
        return list(dict.fromkeys(restored))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[Callable[[LedgerState], None]]:
        with self.record.exclusive() as write:
            self.reload()
            yield write

    def _change(
        self, lab: FaultTarget, write: Callable[[LedgerState], None], gone: Sequence[Action], come: Sequence[Action]
    ) -> Sequence[LedgerChange]:
        """Remove and add causes in both the ledger and the lab, or in neither; return the changes."""
        before = list(self._causes)
        after = [each for each in before if each not in gone] + list(come)
        was, will = self._together(before), self._together(after)
        touched = self._together((*gone, *come)).touched()
        if self._unsettled:
            self._settle(lab)
        doubtful = self._unsettled & touched
        fresh = fabric.look(self.topology, lab, touched - set(self._found)) if touched - set(self._found) else {}
        # Until the change is done, the record has the causes of before and after: a later command can undo either.
        self._found |= fresh
        self._causes = before + list(come)
        self._unsettled |= touched
        began_ns = self.clock()
        write(self._state())
        undone = False
        try:
            self._put(lab, touched, will, was, doubtful, was.emptied - will.emptied)
        except BaseException as problem:
            try:
                self._put(lab, touched, was, was, touched, frozenset())
                undone = True
            except Exception as second:  # noqa: BLE001 - what went wrong first is what counts
                raise UnsettledError(
                    f"{problem}; nor could it be undone ({second}): {', '.join(sorted(touched))} may be in any state, "
                    "which the next `mrclab restore` or `mrclab fail` puts right"
                ) from problem
            finally:
                if undone:
                    self._settled(before, touched)
                write(self._state())
            raise
        self._settled(after, touched)
        done_ns = self.clock()
        actions = [Action("restore", each.target, each.kind) for each in gone] + list(come)
        made = [LedgerChange(each, began_ns, done_ns, at) for at, each in enumerate(actions, self.latest + 1)]
        self._changes = [*self._changes, *made][-KEPT:]
        write(self._state())
        return made

    def _settled(self, causes: list[Action], names: Iterable[str]) -> None:
        """Record that these failures are in force and that these elements are in this state; keep the states found
        before as long as they are needed."""
        self._causes = causes
        self._unsettled -= set(names)
        needed = self._together(causes).touched() | self._unsettled
        self._found = {name: found for name, found in self._found.items() if name in needed}

    def _settle(self, lab: FaultTarget) -> None:
        """Complete or undo an earlier change that was interrupted, as far as possible."""
        effects = self.effects()
        for name in self.unsettled:
            with contextlib.suppress(Exception):
                self._put(lab, {name}, effects, effects, {name}, frozenset())
                self._settled(self._causes, {name})

    def _put(
        self,
        lab: FaultTarget,
        names: Iterable[str],
        will: Effects,
        was: Effects,
        doubtful: Iterable[str],
        empty: frozenset[str],
    ) -> None:
        """Change elements to the state that effects give them: only what differs from `was`, but everything of doubtful
        elements. Switches in `empty` lose their tables and get them again."""
        names, doubtful = sorted(names), set(doubtful)
        carriers = self.effects().carriers  # carriers of other ports are not ours, even in doubt
        links = [element for element in map(self.topology.element, names) if isinstance(element, Link)]
        switches = [element for element in map(self.topology.element, names) if isinstance(element, Switch)]
        for link in links:
            found = self._found[link.name]
            assert isinstance(found, LinkState)
            now = None if link.name in doubtful else fabric.wanted(link.name, found, was)
            fabric.put_link(self.topology, lab, link, now, fabric.wanted(link.name, found, will))
        for switch in switches:
            state = self._found[switch.name]
            assert isinstance(state, SwitchState)
            if switch.name in empty:
                lab.fabric.restart(switch.device_id, disconnect=False)
                self.refill(switch.name)
            then = will.switches.get(switch.name, state)
            # A restart leaves a switch running, even if another failure keeps it frozen or stopped.
            unsure = switch.name in doubtful or switch.name in empty
            if unsure or was.switches.get(switch.name, state) is not then:
                lab.fabric.set_state(switch.device_id, then)
        for link in links:
            off = link.name in will.carriers
            if link.name in carriers and (link.name in doubtful or (link.name in was.carriers) != off):
                fabric.put_carrier(lab, link, not off)

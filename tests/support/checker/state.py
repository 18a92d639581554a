"""The state of an endpoint: saved and restored in place, and encoded so that equal encodings behave alike.

The walk begins at some roots and visits each object once. Objects get numbers in the order of the visit, so that the
encoding does not depend on addresses. Restoring writes the saved contents back into the same objects, which works with
compiled classes, closures and bound methods; objects that were made since are no longer referred to.

What is left out of the encoding, and why it may be: counters that nothing but statistics reads; the clock, since times
are encoded as their distance from now; the configuration, which does not change; the generators, which are frozen after
connecting (`ends.FrozenRandom`).
"""

from __future__ import annotations

import hashlib
import marshal
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from mrc_host.proto.reliability.scoreboard import Outstanding
from mrc_host.proto.timers import TimerQueue

#: Times beyond are marks, such as "never". So are 0 and less: a run begins later than any period that is compared.
_FAR: Final = 1 << 60
_UNSET: Final = object()
_CONTAINERS: Final = frozenset({list, dict, deque, Counter, defaultdict, OrderedDict, set})

#: Attributes that never change while a scenario runs, by class; they are neither saved nor encoded.
CONSTANT: Final[dict[str, set[str]]] = {
    "Endpoint": {"config", "_universes", "_faults", "_memory", "_cqs", "_next_cq", "taken", "_events"},
    "RoceEndpoint": {"config", "_rng", "_codec", "_memory", "_cqs", "_next_cq", "taken", "_counters", "_drops",
                     "_next_qpn", "_tc_data", "_tc_control", "_events"},
    "EndpointContext": {"config", "codec", "rng", "trace", "instance", "drops", "counters", "memory", "events",
                "tc_control", "tc_data", "tc_no_trim", "tc_probe", "tc_retx"},
    "CompletionQueue": {"users", "number", "depth"},
    "Association": {"context", "ev_config", "fail", "number"},
    "QueuePair": {"context", "reliability", "cc_config", "number", "_gone"},
    "Peer": {"context", "_prober", "addresses", "addresses_in", "text"},
    "Route": {"_prober", "universe", "paths", "outer_bytes"},
    "Qpcc": {"config"},
    "EvSet": {"universe", "observer", "_rng"},
    "Nonces": {"_rng"},
    "NodeOperations": {"_context", "_peers"},
    "RoceQueuePair": {"codec", "_timed", "_overflowed"},
    "Dcqcn": {"config"},
    "FlowControl": {"_timers"},
    "Recovery": {"_has_data", "_wake", "_probe", "_repeat_last"},
    "Prober": {"_proven"},
    "WriteRequest": {"view"},
    "RoceRequest": {"view"},
    "MemoryRegion": {"view", "memory"},
}  # fmt: skip
#: Attributes that are saved but not encoded, because they have no effect on what an endpoint does.
WITHOUT_EFFECT: Final[dict[str, set[str]]] = {
    "EndpointContext": {"now"},
    "RoceEndpoint": {"_now"},
    "Scoreboard": {"progress_ns"},
    "WriteRequest": {"posted_ns"},
    "RoceQueuePair": {"progress_ns", "sent_packets", "retransmitted"},
    "Nonces": {"_boxes", "_count"},
    "NodeOperations": {"_next_token"},
    "ReverseEv": {"number"},
    "Endpoint": {"_recent"},
    "Responder": {"_layout"},
    "Nscc": {"case"},
}
#: Counters with an effect: saved, and encoded by `SPECIAL`. All others of their classes are neither.
USED_COUNTERS: Final[dict[str, tuple[str, ...]]] = {
    "RequestorCounters": ("packets_sent", "sacks_received", "acks_received"),
    "ResponderCounters": ("messages_completed", "packets_placed"),
    "EndpointCounters": (),
    "PortTable": ("_first", "mask", "ports", "status"),
    "Port": ("up", "carrier", "enabled", "control", "probes_until"),
}
#: Attributes that are times of the endpoint's clock; lists of such, too.
TIMES: Final[dict[str, set[str]]] = {
    "Transmission": {"sent_ns", "since_ns"},
    "Scoreboard": {"newest_ns"},
    "Recovery": {"heard_ns"},
    "Route": {"inbound_ns"},
    "ReverseEv": {"proven_ns", "doubted_ns"},
    "PendingProbe": {"sent_ns"},
    "NodeProbe": {"sent_ns", "deadline"},
    "PlaneBalance": {"_since", "_last_block"},
    "Nscc": {"_adjusted_at", "_decreased_at", "_qa_end"},
    "LossDetector": {"_recovery_ns"},
    "RoceQueuePair": {"deadline", "cnp_at"},
    "Dcqcn": {"deadline", "_alpha_at"},
}
#: Times that matter only while they lie ahead.
DEADLINES: Final[dict[str, set[str]]] = {
    "Recovery": {"hold_ns"},
    "Port": {"probes_until"},
    "RoceQueuePair": {"paced_until", "not_before"},
}


def _progress(recovery: Any, now: int) -> object:
    """Whether anything was sent or received since the tail timer looked last: it compares sums of counters."""
    counters = recovery._counters
    return recovery._progress == counters.sacks_received + counters.packets_sent + counters.acks_received


def _held(responder: Any, now: int) -> object:
    held = responder._held
    if held is None:
        return None
    psn, entropy, stamp, flags, port, arrived = held
    return psn, entropy, stamp if stamp < 0 else ((now >> 7) - stamp) & 0xFFFF, flags, port, now - arrived


def _guessed(board: Any, now: int) -> object:
    return tuple((psn, now - sent, plane, ev) for psn, (sent, plane, ev) in board.guessed.items())


#: Attributes that are encoded by a function of the object and the time.
SPECIAL: Final[dict[str, dict[str, Callable[[Any, int], object]]]] = {
    "Recovery": {"_progress": _progress},
    "Responder": {"_held": _held},
    "Scoreboard": {"guessed": _guessed},
    "ResponderCounters": {"messages_completed": lambda counters, now: counters.messages_completed > 0},
    "RequestorCounters": dict.fromkeys(USED_COUNTERS["RequestorCounters"], lambda counters, now: None),
}
#: Values that are taken as they are, whatever is inside.
OPAQUE: Final = frozenset({"MemoryTable", "Codec", "RoceCodec", "EvUniverse", "Universes", "Faults", "Random"})
PACKAGES: Final = ("mrc_host.proto.", "support.checker.")

_VALUE, _TIME, _DEADLINE, _SILENT, _FUNCTION = range(5)
_ATTRIBUTES, _SLICES, _DEQUE, _DICT, _SET = range(5)


class Plan(NamedTuple):
    """How objects of one class are walked: the attributes that are saved, and how each is encoded."""

    name: str
    attributes: tuple[str, ...]
    modes: tuple[int, ...]
    functions: dict[str, Callable[[Any, int], object]]


#: One object with its kind of contents, and these.
Saved = tuple[Any, int, Any]


class Snapshot(NamedTuple):
    """All that can change, and the encoding of it."""

    saved: list[Saved]
    digest: bytes


def _names(kind: type, value: Any) -> list[str]:
    """Return the names of all attributes, of interpreted and compiled classes."""
    names: list[str] = []
    for base in kind.__mro__:
        compiled = base.__dict__.get("__mypyc_attrs__")
        slots = base.__dict__.get("__slots__", ()) if compiled is None else compiled
        names.extend((slots,) if isinstance(slots, str) else slots)
    names.extend(getattr(value, "__dict__", ()))
    return sorted(set(names) - {"__dict__", "__weakref__"})


class Walker:
    """Saves and encodes what is reachable from some roots."""

    def __init__(self) -> None:
        self._plans: dict[type, Plan | None] = {}

    def _plan(self, value: Any) -> Plan | None:
        kind = type(value)
        name = kind.__name__
        if not kind.__module__.startswith(PACKAGES) or name in OPAQUE or isinstance(value, type):
            self._plans[kind] = None
            return None
        names = USED_COUNTERS.get(name)
        if names is None:
            names = tuple(each for each in _names(kind, value) if each not in CONSTANT.get(name, ()))
        modes = []
        for each in names:
            mode = _VALUE
            if each in TIMES.get(name, ()):
                mode = _TIME
            elif each in DEADLINES.get(name, ()):
                mode = _DEADLINE
            elif each in WITHOUT_EFFECT.get(name, ()):
                mode = _SILENT
            elif each in SPECIAL.get(name, {}):
                mode = _FUNCTION
            modes.append(mode)
        plan = self._plans[kind] = Plan(name, names, tuple(modes), SPECIAL.get(name, {}))
        return plan

    def walk(self, roots: Iterable[Any], now: int, before: Snapshot | None = None) -> Snapshot:
        """Return the state of everything reachable from `roots`; contents equal to those of `before` are shared."""
        return _Walk(self._plans, self._plan, now, before).run(roots)


def _equal(kind: int, one: Any, other: Any) -> bool:
    """Return whether contents are the same; of attributes, containers are the same that are one object."""
    if one != other or kind != _ATTRIBUTES:
        return bool(one == other)
    return all(a is b or type(a) not in _CONTAINERS for a, b in zip(one[1], other[1], strict=True))


class _Walk:
    """One walk."""

    def __init__(
        self,
        plans: dict[type, Plan | None],
        plan: Callable[[Any], Plan | None],
        now: int,
        before: Snapshot | None,
    ) -> None:
        self._plans, self._plan, self._now = plans, plan, now
        self._saved: list[Saved] = []
        self._tokens: list[object] = []
        self._seen: dict[int, int] = {}
        self._known = {id(each[0]): each for each in before.saved} if before is not None else {}

    def run(self, roots: Iterable[Any]) -> Snapshot:
        for root in roots:
            self._visit(root)
        digest = hashlib.blake2b(marshal.dumps(self._tokens, 2), digest_size=16).digest()
        return Snapshot(self._saved, digest)

    def _save(self, value: Any, kind: int, contents: Any) -> None:
        known = self._known.get(id(value))
        if known is None or known[0] is not value or not _equal(kind, known[2], contents):
            known = (value, kind, contents)
        self._saved.append(known)

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind is int or kind is bool or value is None or kind is bytes or kind is str or kind is float:
            self._tokens.append(value)
            return
        if isinstance(value, Enum):
            self._tokens.append(value.name)
            return
        if isinstance(value, tuple):
            self._tuple(value)
            return
        number = self._seen.get(id(value))
        if number is not None:
            self._tokens.append(("again", number))
            return
        if kind is list or kind is array or kind is bytearray or kind is deque:
            self._sequence(value, kind)
        elif kind in (dict, Counter, defaultdict, OrderedDict):
            self._seen[id(value)] = len(self._seen)
            self._save(value, _DICT, dict(value))
            self._tokens.append(("dict", len(value)))
            for key, item in value.items():
                self._visit(key)
                self._visit(item)
        elif kind is set:
            self._seen[id(value)] = len(self._seen)
            self._save(value, _SET, set(value))
            self._tokens.append(("set", *sorted(value)))
        elif kind is TimerQueue:
            self._timers(value)
        elif kind is Outstanding:
            self._outstanding(value)
        else:
            self._object(value)

    def _sequence(self, value: Any, kind: type) -> None:
        self._seen[id(value)] = len(self._seen)
        if kind is bytearray:
            self._save(value, _SLICES, value[:])
            self._tokens.append(bytes(value))
            return
        self._save(value, _DEQUE if kind is deque else _SLICES, list(value) if kind is deque else value[:])
        self._tokens.append(("list", len(value)))
        for item in value:
            self._visit(item)

    def _tuple(self, value: Any) -> None:
        self._tokens.append(("tuple", len(value)))
        times = TIMES.get(type(value).__name__)
        if times is None:
            for item in value:
                self._visit(item)
            return
        for name, item in zip(value._fields, value, strict=True):
            self._visit(item - self._now if name in times else item)

    def _object(self, value: Any) -> None:
        kind = type(value)
        plan = self._plans[kind] if kind in self._plans else self._plan(value)
        if plan is None:
            self._tokens.append("opaque")
            return
        self._seen[id(value)] = len(self._seen)
        contents = tuple([getattr(value, name, _UNSET) for name in plan.attributes])
        self._save(value, _ATTRIBUTES, (plan.attributes, contents))
        tokens, now = self._tokens, self._now
        tokens.append(plan.name)
        for name, mode, item in zip(plan.attributes, plan.modes, contents, strict=True):
            if mode == _VALUE:
                self._visit(item)
            elif mode == _TIME:
                self._time(item)
            elif mode == _DEADLINE:
                tokens.append(_ahead(item, now))
            elif mode == _FUNCTION:
                tokens.append(plan.functions[name](value, now))
                if isinstance(item, dict):
                    self._save(item, _DICT, dict(item))
            elif isinstance(item, list):
                self._save(item, _SLICES, item[:])

    def _time(self, item: Any) -> None:
        if isinstance(item, list):
            self._save(item, _SLICES, item[:])
            self._tokens.append([each if each <= 0 else each - self._now for each in item])
        elif item is None or item <= 0 or item >= _FAR:
            self._tokens.append(item)
        else:
            self._tokens.append(item - self._now)

    def _outstanding(self, held: Any) -> None:
        """Encode the transmissions by PSN; how many places there are for them has no effect."""
        self._seen[id(held)] = len(self._seen)
        names = ("_places", "_mask", "count")
        self._save(held, _ATTRIBUTES, (names, tuple(getattr(held, name) for name in names)))
        self._save(held._places, _SLICES, held._places[:])
        self._tokens.append(("outstanding", held.count))
        for sent in held.values():
            self._visit(sent)

    def _timers(self, queue: Any) -> None:
        """Encode the timers that are pending, in the order in which they are due."""
        self._seen[id(queue)] = len(self._seen)
        names = ("_heap", "_live", "_armed", "_serial", "_first", "_known")
        self._save(queue, _ATTRIBUTES, (names, tuple(getattr(queue, name) for name in names)))
        self._save(queue._heap, _SLICES, queue._heap[:])
        self._save(queue._live, _DICT, dict(queue._live))
        self._save(queue._armed, _DICT, dict(queue._armed))
        for (kind, owner), (deadline, _) in sorted(queue._armed.items(), key=lambda entry: entry[1]):
            self._tokens.append((deadline - self._now, kind.name))
            self._visit(owner)


def _ahead(deadline: Any, now: int) -> int:
    return deadline if deadline >= _FAR else max(deadline - now, 0)


def restore(snapshot: Snapshot) -> None:
    """Put every object back into the state that it had."""
    for value, kind, contents in snapshot.saved:
        if kind == _ATTRIBUTES:
            for name, item in zip(*contents, strict=True):
                if item is not _UNSET:
                    setattr(value, name, item)
        elif kind == _SLICES:
            value[:] = contents
        elif kind == _DEQUE:
            value.clear()
            value.extend(contents)
        else:
            value.clear()
            value.update(contents)

"""Stand-ins for a learner's classes in the process that simulates, which ask the other process (`player`).

Everything that reaches the simulation comes through here, so the file, the memory and the faults of a submission stay
where they are. What comes back is checked as `mrc_host.policy` checks a policy in one's own process, for the checks
there are controlled by the author of the submission.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import yaml

from mrc_host.policy import (
    KINDS,
    CcConfig,
    CongestionControl,
    EvInput,
    EvSet,
    EvUniverse,
    LossDetector,
    PolicyError,
    Rtt,
    Scoreboard,
    Transmission,
)
from mrc_host.proto.config import EvConfig
from mrc_host.proto.limits import ConfigError
from mrc_topo.topology import Topology
from mrc_workshop.mirrors import INPUTS
from mrc_workshop.wire import PeerGone, Wire, WireError
from mrclab.lab.management.clustermapper import Finding, Views

MAX_DRAWN_BITS = 4096
#: The limit of bits that the learner's code receives from a generator. The state of Python's generator has 19937 bits,
#: each received bit is a linear equation of it, and the values of EVs reveal some more. An endpoint with few peers
#: draws some thousand bits in a run.
MAX_TOLD_BITS = 8192
MAX_TEXT = 4000
#: The part of a profile that a policy can see. Values and fields are sent as the EVs that they make.
SETTINGS = ("fmt", "count", "active", "resolver", "values", "fields", "format_widths", "mode")
#: The causes that an answer to a probe can have.
ANSWERED = (EvInput.REVIVED, EvInput.REVIVED_SKIP, EvInput.ALWAYS_SKIP)
Observer = Callable[[int, int, int, EvInput, int], None]


class LearnerProcess:
    """The learner's process, as a `mrc_host.policy.Supplier` of stand-ins for the classes in it."""

    def __init__(self, wire: Wire, learner: pathlib.Path, edit: Sequence[str]) -> None:
        self._wire = wire
        self._learner = learner
        self._edit = edit
        #: By endpoint's generator: the number of its bits that were sent, and the generator used after `MAX_TOLD_BITS`.
        self._told_bits: dict[random.Random, int] = {}
        self._instead: dict[random.Random, random.Random] = {}

    def greeted(self) -> dict[str, bool]:
        """Return the restrictions of the other process, which reports them before it receives any of the learner's
        files."""
        try:
            word, isolation = self._wire.receive()
        except (WireError, ValueError):
            return {}
        return dict(isolation) if word == "hello" else {}

    def begin(self, lab: str) -> None:
        """Begin another run: drop the last one's state, and send the lab without its seed and `overrides`."""
        document = yaml.safe_load(lab)
        # The seed may have decided how links differ, so the learner's class must not see that.
        for key in ("policies", "program", "overrides"):
            document.pop(key, None)
        self._told_bits.clear()
        self._instead.clear()
        document["seed"] = 1
        self.ask(["fresh", yaml.safe_dump(document, sort_keys=False)], "")

    def __call__(self, reference: str, kind: str) -> Callable[..., Any]:
        """Return the stand-in of a learner's class. Raises ConfigError if the class is not of that kind."""
        file, _, name = reference.rpartition(":")
        path = pathlib.Path(file)
        if path.parent != self._learner or path.name not in self._edit:
            raise ConfigError(f"{reference}: is in none of the files to edit: {', '.join(self._edit)}")
        where = f"{path.name}: {name}"
        (number,) = self.ask(["load", kind, path.name, name], where)
        if kind == "localiser":
            return lambda: LocaliserStandIn(self, number, where)
        kinds: dict[str, Callable[..., Any]] = {"congestion": Window, "ev": EvsStandIn, "loss": Detector}
        make = kinds[kind]
        return lambda *given: make(self, number, where, *given)

    def ask(self, message: list[Any], where: str, rng: random.Random | None = None) -> list[Any]:
        """Return the answer to a question, without its first word.

        Args:
            where: file, class and method, for messages.
            rng: the generator that the answer may use.

        Raises:
            PolicyError: the learner's code made a mistake, or its process is gone.
            ConfigError: the class cannot be loaded.
        """
        try:
            self._wire.send(message)
            while True:
                word, *rest = self._wire.receive()
                if word != "draw" or rng is None:
                    break
                bits = int(rest[0])
                if not 0 < bits <= MAX_DRAWN_BITS:
                    raise PolicyError(f"{where}: draws {bits} random bits at a time")
                self._wire.send([self._draw(rng, bits)])
        except PeerGone:
            raise PolicyError(f"{where}: its process ended before it had answered, in the middle of the run") from None
        except (WireError, TypeError, ValueError, IndexError) as error:
            raise PolicyError(f"{where}: its process answered with nonsense: {error}"[:MAX_TEXT]) from None
        if word == "ok":
            return rest
        text = str(rest[0])[:MAX_TEXT] if rest else "nothing"
        raise ConfigError(text) if word == "config" else PolicyError(text)

    def _draw(self, rng: random.Random, bits: int) -> int:
        """Draw for the learner's class. The endpoint's generator is used, as in the endpoint's own process, while too
        few of its bits are known to compute its state and so the seed; then another, from which the first cannot be
        derived."""
        told = self._told_bits[rng] = self._told_bits.get(rng, 0) + bits
        if told <= MAX_TOLD_BITS:
            return rng.getrandbits(bits)
        if rng not in self._instead:
            self._instead[rng] = random.Random(hashlib.sha256(repr(rng.getstate()).encode()).hexdigest())
        return self._instead[rng].getrandbits(bits)


def _checked(kind: str, method: str, where: str, policy: Any, given: tuple[Any, ...], result: Any) -> None:
    wrong = KINDS[kind][1][method](policy, given, result)
    if wrong:
        raise PolicyError(f"{where}.{method}: {wrong}")


class Window(CongestionControl):
    """Stands in for a congestion controller."""

    def __init__(self, players: LearnerProcess, number: int, where: str, config: CcConfig, mtu: int) -> None:
        super().__init__(mtu, config.base_rtt_ns, float(mtu), float(mtu))
        self._players, self._where = players, where
        settings = [config.algorithm, dataclasses.asdict(config), mtu]
        self._number, told = players.ask(["make", number, settings], f"{where}.__init__")
        self._take("__init__", told)

    def _take(self, method: str, told: Any) -> None:
        try:
            self.cwnd, self.max_wnd, *integers = told
            self.base_rtt_ns, self.rtt_ns, self.srtt_ns, self.mtu = _numbers(integers, 4)
            if not self.mtu:
                raise ValueError("mtu is 0")
            _checked("congestion", method, self._where, self, (), None)
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{self._where}.{method}: {error}"[:MAX_TEXT]) from None

    def _call(self, method: str, *given: Any) -> None:
        message = ["call", self._number, method, given, self.inflight]
        _, told = self._players.ask(message, f"{self._where}.{method}")
        self._take(method, told)

    def on_sack(
        self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool, whole: bool = True
    ) -> None:
        """See `CongestionControl`."""
        self._call("on_sack", now, newly, rtt_ns, ce, penalty, restore, whole)

    def on_trim(self, now: int, size: int) -> None:
        """See `CongestionControl`."""
        self._call("on_trim", now, size)

    def on_loss(self, now: int, size: int) -> None:
        """See `CongestionControl`."""
        self._call("on_loss", now, size)


class EvsStandIn(EvSet):
    """Stands in for the EVs of a queue pair."""

    def __init__(  # the base's is not called, because it draws
        self,
        players: LearnerProcess,
        number: int,
        where: str,
        universe: EvUniverse,
        rng: random.Random,
        observer: Observer,
    ) -> None:
        self._players, self._where = players, where
        self.universe, self.observer, self._rng = universe, observer, rng
        self.rescan_rounds = universe.config.rescan_rounds
        self._rounds = [0] * len(universe.by_plane)
        self._turns: list[list[int]] | None = None  # None: those of `order`
        self.now_ns, self.listens = 0, False
        self.state = [0] * len(universe.values)
        values = [[universe.values[ev] for ev in plane] for plane in universe.by_plane]
        message = ["make", number, [_settings(universe.config), values]]
        self._number, told = players.ask(message, f"{where}.__init__", rng)
        self._take("__init__", told)

    def _call(self, method: str, *given: Any, causes: Sequence[EvInput] = ()) -> Any:
        message = ["call", self._number, method, given, [self.cursor, self.now_ns]]
        result, told = self._players.ask(message, f"{self._where}.{method}", self._rng)
        self._take(method, told, causes)
        return result

    def _take(self, method: str, told: Any, causes: Sequence[EvInput] = ()) -> None:
        """Take over the changes of the other process, and report changes of states to the observer.

        Args:
            causes: the possible causes of the changes; the first replaces a reported cause that is not among them.
        """
        count, planes = len(self.universe.values), len(self.universe.by_plane)
        before = bytes(self.state)
        try:
            if "state" in told:
                state = bytes.fromhex(told["state"])
                if len(state) != count or max(state, default=0) > 3:
                    raise ValueError("left states that are not GOOD, SKIP, ASSUMED_BAD or DENIED")
                self.state = list(state)
            if "order" in told:
                self.order = _sets(told["order"], count, planes)
            if "backup" in told:
                self.backup = _sets(told["backup"], count, planes)
            if "ready" in told:
                self._turns = None if told["ready"] is None else _sets(told["ready"], count, planes)
            self.ready = self.order if self._turns is None else self._turns
            if "cursor" in told:
                self.cursor = _numbers(told["cursor"], planes)
            if "streak" in told:
                self.streak = {_number(ev, count): _number(value) for ev, value in told["streak"]}
            if "losses" in told:
                self.losses = {_number(ev, count): _number(value) for ev, value in told["losses"]}
            if "numbers" in told:
                numbers = _numbers(told["numbers"], 5)
                self.usable, self.floor, self.probes_to_revive, self.target, listens = numbers
                self.listens = bool(listens)
            moves = [_numbers(move, 5) for move in told.get("moves", ())]
            _follow(before, bytes(self.state), moves)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
            raise PolicyError(f"{self._where}.{method}: {error}"[:MAX_TEXT]) from None
        for ev, old, new, item, losses in moves:
            cause = INPUTS[item]
            self.observer(ev, old, new, causes[0] if causes and cause not in causes else cause, losses)

    def choose(self, plane: int, avoid: int = -1) -> int:
        """See `EvSet`."""
        ev = self._call("choose", plane, avoid, causes=(EvInput.TURN,))
        _checked("ev", "choose", self._where, self, (plane, avoid), ev)
        return int(ev)

    def apply(self, ev: int, item: EvInput) -> bool:
        """See `EvSet`."""
        changed = self._call("apply", ev, INPUTS.index(item), causes=(item,))
        _checked("ev", "apply", self._where, self, (), changed)
        return bool(changed)

    def answered(self, ev: int, mark: int, now: int) -> None:
        """See `EvSet`."""
        self._call("answered", ev, mark, now)

    def probe_answered(self, ev: int, mark: int) -> bool:
        """See `EvSet`."""
        changed = self._call("probe_answered", ev, mark, causes=ANSWERED)
        _checked("ev", "probe_answered", self._where, self, (), changed)
        return bool(changed)

    def usable_planes(self, ours: int, theirs: int) -> int:
        """See `EvSet`."""
        mask = self._call("usable_planes", ours, theirs)
        _checked("ev", "usable_planes", self._where, self, (), mask)
        return int(mask)

    def set_usable(self, mask: int) -> None:
        """See `EvSet`."""
        self._call("set_usable", mask)

    def retune(self, config: EvConfig) -> None:
        """See `EvSet`."""
        self._call("retune", _settings(config))

    def reset(self, ev: int) -> None:
        """See `EvSet`."""
        self._call("reset", ev, self.universe.values[ev])


def _settings(config: EvConfig) -> dict[str, Any]:
    names = [each.name for each in dataclasses.fields(config) if each.name not in SETTINGS]
    return {name: getattr(config, name) for name in names} | {"count": config.count, "active": config.active}


def _number(value: Any, below: int = 1 << 62) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise ValueError(f"left {str(value)[:60]!r} where a number below {below} belongs")
    return value


def _numbers(values: Any, count: int) -> list[int]:
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"left {str(values)[:60]!r} where {count} numbers belong")
    return [_number(value) for value in values]


def _sets(values: Any, count: int, planes: int) -> list[list[int]]:
    if not isinstance(values, list) or len(values) != planes:
        raise ValueError(f"left {str(values)[:60]!r} where a set of EVs for each of {planes} planes belongs")
    return [[_number(value, count) for value in each] for each in values]


def _follow(before: bytes, after: bytes, moves: Sequence[Sequence[int]]) -> None:
    """Check the changes of EV states against the state. Raises ValueError for a change that did not take place."""
    now: dict[int, int] = {}
    for ev, old, new, item, _ in moves:
        if now.get(ev, before[ev]) != old or old == new or new > 3 or item >= len(INPUTS):
            raise ValueError(f"told of a change of EV {ev} from {old} to {new} that did not take place")
        now[ev] = new
    for ev, state in now.items():
        if after[ev] != state:
            raise ValueError(f"told of a change of EV {ev} to {state}, and left it in {after[ev]}")


class Detector(LossDetector):
    """Stands in for a loss detector. Every call sends the changes of the board since the last one."""

    def __init__(
        self, players: LearnerProcess, number: int, where: str, board: Scoreboard, rtt: Rtt, same_ev: bool, rack: bool
    ) -> None:
        super().__init__(board, rtt, same_ev, rack)
        self._players, self._where = players, where
        self._known: dict[int, tuple[Transmission, int]] = {}  # by PSN, with the numbers under which they are sent
        self._states: dict[int, int] = {}  # by number
        self._count = 0
        self._latest: list[Transmission | None] = [None] * len(board.orders)
        given = [board.timeout_ns, board.linear, len(board.orders), len(board.last_on_ev), same_ev, rack]
        self._number, _ = players.ask(["make", number, given], f"{where}.__init__")

    def infer(
        self, acked: list[Transmission], overtaken: list[Transmission] | None, base_rtt_ns: int, now: int
    ) -> list[Transmission] | None:
        """See `LossDetector`."""
        changes, numbers = self._changes(acked)
        known = self._known
        before = None if overtaken is None else [known[sent.psn][1] for sent in overtaken if sent.psn in known]
        given = [[numbers[id(sent)] for sent in acked], before, base_rtt_ns, now]
        answer = self._asked("infer", given, changes)
        if answer is None:
            return None
        by_number = {number: sent for sent, number in known.values()}
        try:
            lost = [by_number[number] for number in answer]
        except (TypeError, KeyError):
            text = "named something lost that is not in flight"
            raise PolicyError(f"{self._where}.infer: {text}") from None
        _checked("loss", "infer", self._where, self, (), lost)
        return lost

    def arrived_late(self, behind_ns: int, now: int) -> None:
        """See `LossDetector`."""
        changes, _ = self._changes(())
        self._asked("arrived_late", [behind_ns, now], changes)

    def _asked(self, method: str, given: list[Any], changes: list[Any]) -> Any:
        message = ["call", self._number, method, given, changes]
        return self._players.ask(message, f"{self._where}.{method}")[0]

    def _changes(self, acked: Sequence[Transmission]) -> tuple[list[Any], Mapping[int, int]]:  # noqa: C901 - one pass over what the board holds
        """Return the changes for `mirrors.LossMirror`, and the numbers of the acknowledged packets, by id."""
        board, known, states = self.board, self._known, self._states
        outstanding = board.outstanding
        fresh: list[list[Any]] = []
        gone: list[int] = []
        numbers: dict[int, int] = {}
        arrived = {id(sent) for sent in acked}

        def tell(sent: Transmission) -> None:
            self._count += 1
            waits = outstanding.get(sent.psn) is sent
            fields = (sent.psn, sent.sent_ns, sent.ev, sent.plane, sent.size, sent.offset, sent.count, sent.failures)
            fresh.append([self._count, waits, *fields, sent.state])
            if waits:
                before = known.get(sent.psn)
                if before is not None:
                    del states[before[1]]
                known[sent.psn] = (sent, self._count)
                states[self._count] = sent.state
            else:
                numbers[id(sent)] = self._count
                gone.append(self._count)

        newest: list[Transmission] = []
        for plane, order in enumerate(board.orders):
            latest = self._latest[plane]
            left = latest is not None and latest.later is None and latest is not order.last
            unknown = order.first if latest is None or left else latest.later
            while unknown is not None:
                newest.append(unknown)
                self._latest[plane], unknown = unknown, unknown.later
        for sent in sorted(newest, key=attrgetter("sent_ns")):  # in the order of sending, over all planes
            entry = known.get(sent.psn)
            if (entry is None or entry[0] is not sent) and (outstanding.get(sent.psn) is sent or id(sent) in arrived):
                tell(sent)
        for sent in acked:
            entry = known.get(sent.psn)
            if entry is not None and entry[0] is sent:
                numbers[id(sent)] = entry[1]
            elif id(sent) not in numbers:
                tell(sent)
        changed: list[list[int]] = []
        for sent in outstanding.values():
            entry = known.get(sent.psn)
            if entry is None or entry[0] is not sent:
                tell(sent)
            elif states[entry[1]] != sent.state:
                states[entry[1]] = sent.state
                changed.append([entry[1], sent.state])
        if len(known) > len(outstanding):
            for psn in [psn for psn in known if outstanding.get(psn) is None]:
                _, number = known.pop(psn)
                del states[number]
                gone.append(number)
        slow = [known[psn][1] for psn, sent in board.slow.items() if psn in known and known[psn][0] is sent]
        rtt = self.rtt
        told = [board.una, board.nxt, board.newest_ns, board.progress_ns, f"{board.sacked:x}"]
        told += [rtt.srtt_ns, rtt.var_ns, rtt.least_ns, rtt.windows]
        return [fresh, gone, changed, slow, told, self.adaptive], numbers


class LocaliserStandIn:
    """Stands in for a localiser."""

    def __init__(self, players: LearnerProcess, number: int, where: str) -> None:
        self._players, self._number, self._where = players, number, where

    def locate(self, topology: Topology, views: Views) -> list[Finding]:
        """See `Localiser`. The lab is the one of the run (`LearnerProcess.begin`)."""
        (found,) = self._players.ask(["locate", self._number, views], f"{self._where}.locate")
        try:
            return [Finding(str(element), str(state), tuple(map(str, names))) for element, state, names in found]
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{self._where}.locate: {error}"[:MAX_TEXT]) from None

"""Route of packets of one EV profile to one peer: reverse EVs and encapsulation (`mrc-protocol.md §6, §7`)."""

from __future__ import annotations

from typing import Final, Protocol

from mypy_extensions import i64

from mrc_host.proto.config import EvMode, Srv6Path
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.paths.member import Member
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.wire.encap import outer_header, wrapped

_MAX_OUTERS: Final = 4096  # an EV universe is smaller
_LONG_AGO: Final = 64  # RTTs; questions at the tail of a message come sooner
_PATH_SHIFT: Final = 16  # fabrics route by the upper half of an EV, in the flow label; the lower is the UDP port


class Destination(Protocol):
    """Where routes lead: a peer."""

    context: EndpointContext
    addresses: bytes  # ours and its, 16 + 16 bytes

    @property
    def address(self) -> bytes:
        """Its IPv6 address."""

    def next_plane(self) -> int:
        """Return the next usable plane in turn, -1 when there is none."""

    def denies(self, value: int) -> bool:
        """Return whether a controller has denied an EV towards it."""


class ReverseProber(Protocol):
    """Sends the probes by which routes look for reverse EVs (`node_ops.NodeOperations`)."""

    def may_probe(self) -> bool:
        """Return whether another probe may be under way."""

    def probe_route(self, route: Route, ev: int, plane: int, now: int, deadline: int) -> None:
        """Send an EV probe on a route; an answer before `deadline` proves the EV (its value) good."""


class ReverseEv:
    """The EV of control packets in one plane: its `value`, and its `number` in the profile (-1: not known).

    `proven_ns`: when it last proved good; `doubted_ns`: when it was last redrawn; -1: never.
    """

    __slots__ = ("doubted_ns", "number", "proven_ns", "value")
    value: i64
    number: i64
    proven_ns: i64
    doubted_ns: i64

    def __init__(self, value: int) -> None:
        self.take(value)
        self.proven_ns = self.doubted_ns = -1

    def take(self, value: int, number: int = -1) -> None:
        """Use another EV."""
        self.value = value
        self.number = number


class Route(Timed):
    """See the module's docstring. The queue pairs to one peer that use the same EV profile share it."""

    __slots__ = (
        "_by_number", "_mirrors", "_outers", "_prober", "guessed", "inbound_ns", "outer_bytes", "peer", "qps",
        "reverse", "universe",
    )  # fmt: skip

    def __init__(self, peer: Destination, universe: EvUniverse, prober: ReverseProber) -> None:
        """Raise ConfigError when an EV of the profile has no path to the peer."""
        self._prober = prober
        self.peer = peer
        self.universe = universe
        self.qps: list[Member] = []
        self.inbound_ns = -1
        #: By EV (its value), what goes around packets on its path; empty where they go as they are.
        self._outers: dict[int, bytes] = {}
        #: The same by the number of the EV, where it was asked for; empty before anything was.
        self._by_number: list[bytes | None] = []
        self.outer_bytes = self._outer_bytes()
        # One known-good EV per plane for control packets; random until one proves good.
        choice = peer.context.rng.choice
        self.reverse = [ReverseEv(universe.values[choice(members)]) for members in universe.by_plane]
        self.guessed = (1 << len(self.reverse)) - 1  # planes where nothing says that the reverse EV is good
        self._mirrors = 0  # planes whose reverse EV was redrawn after the path of a packet that arrived

    def prove(self, ev: int, plane: int, now: int, number: int = -1) -> None:
        """Use an EV (its value) that has carried something to the peer for control packets from now on."""
        reverse = self.reverse[plane]
        reverse.take(ev, number)
        reverse.proven_ns = now
        self.guessed &= ~(1 << plane)

    def interval(self) -> int:
        """Return how long a proof of a reverse EV holds: one smoothed RTT, unless the profile says otherwise."""
        cc = self.qps[0].qpcc.cc
        return self.universe.config.reverse_probe_ns or cc.srtt_ns or cc.base_rtt_ns

    def suspect_reverse_ev(self, plane: int, now: int, arrived: int = -1) -> None:
        """Take another reverse EV, since the peer repeats what was answered, unless this one proved good just now.

        Where the reverse EVs of both ends fail at once, neither end receives a SACK or an answer to a probe, so nothing
        else would ever replace them. A burst of repetitions counts once: the first answer on the new EV needs its time.

        `arrived`: the EV on which the repetition came (its value). The first new EV is one of the same path, because
        most failures are of both directions; where only the way back is dead, the next one is any.
        """
        interval = self.interval()
        reverse = self.reverse[plane]
        proven, doubted = reverse.proven_ns, reverse.doubted_ns
        if proven >= 0 and now < proven + 2 * len(self.reverse) * interval:
            return
        if doubted >= 0 and now < doubted + interval:
            return
        reverse.doubted_ns = now
        reverse.proven_ns = -1
        if arrived >= 0:
            self._mirrors ^= 1 << plane
        mirror = arrived >= 0 and self._mirrors >> plane & 1
        reverse.take(self._like(plane, arrived) if mirror else self.any_ev(plane))

    def follow(self, plane: int, arrived: int) -> None:
        """Take a reverse EV of the path on which a packet arrived, in the place of a guessed one.

        A flow's last packets may be all that arrives: a SACK lost on a guessed EV then costs a probe's silence.
        """
        self.guessed &= ~(1 << plane)
        self.reverse[plane].take(self._like(plane, arrived))

    def on_idle_probe(self, plane: int, now: int, arrived: int) -> None:
        """Take another reverse EV if none has proved good for long, as a probe that comes while nothing else does may
        be one in a row whose answers are lost. `arrived`: the EV on which it came (its value)."""
        proven = self.reverse[plane].proven_ns
        if proven < 0 or now - proven > _LONG_AGO * self.interval():
            self.suspect_reverse_ev(plane, now, arrived)

    def on_inbound(self, now: int) -> None:
        """Start looking for reverse EVs to a peer that became active."""
        self.peer.context.timers.arm(TimerKind.REVERSE_PROBE, self, now + self.interval())

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Probe a random EV of the next plane, while data arrives and our own data does not prove reverse EVs."""
        interval = self.interval()
        if now - self.inbound_ns > 2 * interval:
            self.inbound_ns = -1  # idle; the next packet starts it again
            return
        peer = self.peer
        if max([reverse.proven_ns for reverse in self.reverse]) < now - interval and self._prober.may_probe():
            plane = peer.next_plane()
            if plane >= 0:
                ev = self.any_ev(plane)
                if not peer.denies(ev):
                    deadline = now + max(4 * interval, self.universe.config.probe_timeout_ns)
                    self._prober.probe_route(self, ev, plane, now, deadline)
        peer.context.timers.arm(TimerKind.REVERSE_PROBE, self, now + interval)

    def _outer_bytes(self) -> int:
        """Return the bytes that the encapsulation adds, the most of any EV; 0 without one."""
        universe = self.universe
        # Generated addresses all have one shape. A resolver is called for each EV, which also checks that it has paths.
        shape_only = universe.config.resolver is None and universe.config.mode is EvMode.GENERATED
        longest = 0
        for value in universe.values[:1] if shape_only else universe.values:
            outer = self.outer(value)
            if not outer:
                return 0
            longest = max(longest, len(outer))
        return longest

    def outer(self, ev: int) -> bytes:
        """Return what goes around a packet on an EV (its value), see `encap.outer_header`; empty for nothing."""
        outer = self._outers.get(ev)
        return outer if outer is not None else self._new_outer(ev)

    def outer_of(self, number: int) -> bytes:
        """Return `outer` of the EV with this number in the profile, which every packet of data asks for."""
        if not self._by_number:
            self._by_number = [None] * len(self.universe.values)
        outer = self._by_number[number]
        if outer is None:
            outer = self._by_number[number] = self.outer(self.universe.values[number])
        return outer

    def outer_of_control(self, reverse: ReverseEv) -> bytes:
        """Return `outer` of a reverse EV."""
        if reverse.number < 0:
            reverse.number = self.universe.index.get(reverse.value, -1)
        return self.outer_of(reverse.number) if reverse.number >= 0 else self.outer(reverse.value)

    def _new_outer(self, ev: int) -> bytes:
        addresses = self.peer.addresses
        path = path_to(self.universe, ev, addresses)
        if len(self._outers) >= _MAX_OUTERS:
            self._outers.clear()
        outer = b"" if path is None else outer_header(path.source or addresses[:16], path.destination, path.segments)
        self._outers[ev] = outer
        return outer

    def send(self, packet: bytes, ev: int, plane: int) -> None:
        """Queue a control packet that was encoded with `ev` on the port of `plane`."""
        if self.outer_bytes:
            packet = wrapped(self.outer(ev), packet)
        self.peer.context.ports.enqueue(plane, packet)

    def any_ev(self, plane: int) -> int:
        """Return a random EV of a plane (its value), one that is not denied if there is one."""
        universe = self.universe
        choice = self.peer.context.rng.choice
        value = universe.values[choice(universe.by_plane[plane])]
        if not self.peer.denies(value):
            return value
        denied = self.peer.context.denied_towards(self.peer.address)
        values = [universe.values[ev] for ev in universe.by_plane[plane]]
        return choice([value for value in values if value not in denied] or values)

    def _like(self, plane: int, ev: int) -> int:
        """Return a random EV of a plane that has the path of `ev`, as far as its upper half tells; else any."""
        values = [self.universe.values[number] for number in self.universe.by_plane[plane]]
        alike = [value for value in values if value >> _PATH_SHIFT == ev >> _PATH_SHIFT and not self.peer.denies(value)]
        return self.peer.context.rng.choice(alike) if alike else self.any_ev(plane)

    def replaced(self, old: int, new: int) -> None:
        """Forget a value of the profile that was replaced."""
        self._outers.pop(old, None)
        self._by_number = []
        for reverse in self.reverse:
            if reverse.value == old:
                reverse.take(new)


def path_to(universe: EvUniverse, ev: int, addresses: bytes) -> Srv6Path | None:
    """Return the SRv6 path of an EV between two addresses (16 + 16 bytes), None for formats without one.

    There is none to the own address, either: such packets reach no switch.

    Raises:
        ConfigError: the profile has no path on this EV to this destination.
    """
    destination = addresses[16:]
    if destination == addresses[:16]:
        return None
    try:
        return universe.path(ev, destination)
    except LookupError:
        where = destination.hex(":", 2)
        raise ConfigError(f"EV {ev:08x} of the profile has no path to {where}") from None

"""What is explored: the transport, the messages, the settings of the endpoints, and which faults may happen."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

MRC: Final = "mrc"
ROCE: Final = "roce"
MTU: Final = 64  # the least that a path may have: a packet of payload
#: Time in ns that a packet takes to the other end. No timer of the scenarios is due at a multiple of it.
LATENCY_NS: Final = 5_120


class FaultKind(Enum):
    """What the network or the machine may do to a run; each costs one fault."""

    DROP = "drop"  # a packet is lost
    DUPLICATE = "duplicate"  # a packet comes a second time, at any time
    LATE = "late"  # a packet comes after what it would have preceded, at any later time
    TRIM = "trim"  # a switch cuts the payload of a data packet
    LASTHOP = "lasthop"  # the same at the port to the receiver
    MARK = "mark"  # a data packet is marked with ECN CE
    LINK = "link"  # a port of an end loses its link, and gets it back at any time or never
    DISABLE = "disable"  # a port is disabled, which does not stop what arrives there
    CUT = "cut"  # nothing arrives any more
    MUTE = "mute"  # nothing arrives any more at the end that posted


#: Faults of single packets, after which every request must succeed.
REPAIRABLE: Final = (FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.LATE, FaultKind.TRIM, FaultKind.LASTHOP,
                     FaultKind.MARK)  # fmt: skip
KINDS: Final[dict[str, tuple[FaultKind, ...]]] = {
    MRC: (FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.LATE, FaultKind.TRIM),
    ROCE: (FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.LATE),
}


class Message(NamedTuple):
    """A request of `size` bytes, with an immediate or without, of end `sender` on its queue pair number `pair`."""

    size: int
    immediate: bool
    pair: int = 0
    sender: int = 0

    @classmethod
    def parse(cls, text: str) -> Message:
        """Read `3` (a WRITE of three full packets), `2i` (with immediate) or `b10` (10 bytes); then `<` if it goes from
        end 1 to end 0, and `@1` on the second queue pair.

        Raises:
            ValueError: it is none of these, or longer than three packets.
        """
        found = re.fullmatch(r"(b?)(\d+)(i?)(<?)(?:@([0-3]))?", text)
        if found is None:
            raise ValueError(f"message {text!r} is none of 3, 2i, b10, 1<, 1@1 and their combinations, such as b10i<@1")
        in_bytes, number, immediate, back, pair = found.groups()
        size = int(number) * (1 if in_bytes else MTU)
        if size > 3 * MTU:
            raise ValueError(f"message {text!r} has {size} bytes; at most three packets of {MTU} bytes are explored")
        return cls(size, bool(immediate), int(pair or 0), int(bool(back)))


@dataclass(frozen=True)
class Scenario:
    """One exploration. `messages` are written in this order by their ends (Message).

    `faults` is how many may happen in one run, of `kinds`. `post_any_time`: requests after the first are posted at any
    time, else all at the beginning. `late_receives`: the same for receives, of which there are `receives` (None: one
    for each immediate). `window_bytes`: of congestion control, 0 for a window that is never closed; `nscc` instead has
    the algorithm. `stays_rtr`: the responder stays in RTR.
    """

    transport: str = MRC
    messages: tuple[str, ...] = ("3",)
    faults: int = 1
    kinds: tuple[FaultKind, ...] = KINDS[MRC]
    post_any_time: bool = False
    late_receives: bool = False
    receives: int | None = None
    planes: int = 1
    evs: int = 2  # of each plane
    window_bytes: int = 0
    nscc: bool = False
    timeout: int = 6  # local ACK timeout: 1.024 us * 2**timeout
    linear: int = 2  # retries with it, and then doubled ones; both together the retries of RoCE
    doubled: int = 2
    sack_every: int = 1
    rack: bool = True  # loss rule (c)
    ack_every: int = 2
    selective: bool = False
    stays_rtr: bool = False
    probe_interval_ns: int = 400_000  # of EVs that are ASSUMED_BAD

    def __post_init__(self) -> None:
        for text in self.messages:
            Message.parse(text)
        if self.transport not in (MRC, ROCE):
            raise ValueError(f"transport is {self.transport!r}; known: {MRC}, {ROCE}")

    @property
    def requests(self) -> list[Message]:
        """The messages."""
        return [Message.parse(text) for text in self.messages]

    @property
    def pairs(self) -> int:
        """The number of queue pairs between the two ends."""
        return 1 + max(each.pair for each in self.requests)

    def own(self, end: int) -> list[int]:
        """Return the numbers of the messages that an end posts."""
        return [number for number, each in enumerate(self.requests) if each.sender == end]

    def receive_pairs(self, end: int) -> list[int]:
        """Return the queue pairs of the receives that an end posts, in order."""
        pairs = [each.pair for each in self.requests if each.immediate and each.sender != end]
        return pairs if self.receives is None else pairs[: self.receives]

    @property
    def budget(self) -> int:
        """How often a packet is repeated before its queue pair fails."""
        return self.linear + self.doubled

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, as JSON has them."""
        found: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                found[field.name] = [each.value for each in value] if field.name == "kinds" else value
        return found

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Scenario:
        """Read what `to_dict` made. Raises ValueError for what it could not have made."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := document.keys() - known:
            raise ValueError(f"scenario has {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
        fields = dict(document)
        if "kinds" in fields:
            fields["kinds"] = tuple(FaultKind(each) for each in fields["kinds"])
        if "messages" in fields:
            fields["messages"] = tuple(fields["messages"])
        return cls(**fields)

    def __str__(self) -> str:
        return json.dumps(self.to_dict())

"""Events that `Endpoint.next_event` reports: plain records, in the order in which things happened."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class QpState(Enum):
    """States of a queue pair (`mrc-protocol.md §4`)."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    ERROR = "ERROR"

    # Enum's own `__hash__` is Python code, and every packet looks up the state of its queue pair.
    __hash__ = object.__hash__


class ErrorReason(Enum):
    """Why a queue pair went to ERROR."""

    RETRY_EXCEEDED = "retry counter exceeded"
    REMOTE_ACCESS = "remote access error"
    REMOTE_INVALID_REQUEST = "remote invalid request"
    REMOTE_OPERATION = "remote operation error"
    LOCAL_ACCESS = "access refused to the peer"
    LOCAL_INVALID_REQUEST = "invalid request from the peer"
    LOCAL_MEMORY = "memory of the program is gone"
    NO_RECEIVE_POSTED = "no receive posted for an immediate"
    WIMM_LIMIT = "more WriteIMM in flight than max_wimm"
    RNR_RETRY_EXCEEDED = "the peer had no receive posted, and retries are spent"
    LOCAL_LENGTH = "a message was longer than its receive"
    LOCAL_PROTECTION = "memory of a work request cannot be reached"
    CQ_OVERFLOW = "completion queue overflow"
    PEER_RESTARTED = "the peer's endpoint has started again since"
    CONTRADICTION = "the peer takes back what it acknowledged"
    INTERNAL = "internal fault, see the event log"
    REQUESTED = "requested by the application"


class QpError(Exception):
    """The queue pair's state or attributes do not allow the verb; the text says which, and what would."""


class EvState(Enum):
    """States of an entropy value (`mrc-protocol.md §7`)."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3


class QpStateChanged(NamedTuple):
    """A queue pair changed its state; `reason` is set when the new state is ERROR."""

    qpn: int
    old: QpState
    new: QpState
    reason: ErrorReason | None


class CompletionsReady(NamedTuple):
    """The completion queue `cq` went from empty to non-empty."""

    cq: int


class SrqLimitReached(NamedTuple):
    """Fewer receives are left in a shared receive queue than its limit, which is 0 from then on."""

    srq: int


class LastReceiveTaken(NamedTuple):
    """A queue pair with a shared receive queue went to ERROR, and takes no more receives from it."""

    qpn: int


class EvChanged(NamedTuple):
    """An EV of a queue pair became or ceased to be usable; `losses` counts its inferred losses.

    Reported for ASSUMED_BAD, DENIED and the return to GOOD from either, which a controller needs (`mrc-protocol.md
    §10`); the frequent GOOD/SKIP changes are only in the trace.
    """

    qpn: int
    ev: int
    plane: int
    old: EvState
    new: EvState
    cause: str
    losses: int


class PortChanged(NamedTuple):
    """A local port changed its state (`peer` is None), or a peer announced a change of its port."""

    port: int
    up: bool
    peer: bytes | None


class ProbeResult(NamedTuple):
    """An EV probe that was requested by `Endpoint.probe_ev` ended; `rtt_ns` None: no answer in time, else one came on
    `port`.
    """

    token: int
    peer: bytes
    ev: int
    plane: int
    rtt_ns: int | None
    port: int | None = None


class Fault(NamedTuple):
    """The endpoint met an internal error and closed the peer that it concerned, if any. Reported once per place in the
    code.

    `where` names the part that was running, `error` is the exception's text, `detail` its traceback.
    """

    where: str
    peer: bytes | None
    error: str
    detail: str


Event = (
    QpStateChanged
    | CompletionsReady
    | SrqLimitReached
    | LastReceiveTaken
    | EvChanged
    | PortChanged
    | ProbeResult
    | Fault
)

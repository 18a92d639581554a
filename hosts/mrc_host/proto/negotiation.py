"""Negotiation between the two ends of a queue pair: attributes, and the document that is exchanged out of band
(`mrc-protocol.md §4`).
"""

from __future__ import annotations

import ipaddress
from typing import Final, cast

from mrc_host.proto.config import ReliabilityConfig
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import QpError, QpState
from mrc_host.proto.qp_document import QpDocument

DOCUMENT: Final = "mrc-qp/2"
_FOR_EVER: Final = 25  # exp_cnt
_LONGEST_TIMEOUT_NS: Final = 1024 << 24
# Attributes that a transition needs (`mrc-protocol.md §4`); INIT takes its profiles from `create_qp`.
REQUIRED: Final[dict[QpState, tuple[str, ...]]] = {
    QpState.RTR: ("remote_number", "remote_address", "rq_psn", "mtu", "max_wimm_dest", "mpr_dest"),
    QpState.RTS: ("sq_psn", "max_wimm", "mpr", "timeout", "linear_cnt", "exp_cnt"),
}

_ATTRIBUTES: Final = (
    "adaptive_reordering",
    "always_skip_after",
    "dynamic_mpr",
    "exp_cnt",
    "hole_cycle",
    "linear_cnt",
    "max_wimm",
    "max_wimm_dest",
    "mpr",
    "mpr_dest",
    "mtu",
    "peer_service_time",
    "peer_trim_nack",
    "rack_inference",
    "sack_delay_ns",
    "sack_every",
    "same_ev_inference",
    "service_time",
    "tail_probe",
    "timeout",
    "trim_nack",
)


class NegotiatedAttributes:
    """Negotiated attributes. Those with `peer_` belong to the peer's responder, the others to ours or to both."""

    __slots__ = _ATTRIBUTES

    def __init__(self, reliability: ReliabilityConfig, mtu: int) -> None:
        self.mtu = mtu
        self.peer_trim_nack = True
        self.peer_service_time = False
        for name in _ATTRIBUTES:
            if hasattr(reliability, name):
                setattr(self, name, getattr(reliability, name))

    adaptive_reordering: bool
    always_skip_after: int
    dynamic_mpr: bool
    exp_cnt: int
    hole_cycle: int
    linear_cnt: int
    max_wimm: int
    max_wimm_dest: int
    mpr: int
    mpr_dest: int
    rack_inference: bool
    sack_delay_ns: int
    sack_every: int
    same_ev_inference: bool
    service_time: bool
    tail_probe: bool
    timeout: int
    trim_nack: bool

    def take_capabilities(self, remote: QpDocument) -> None:
        """Take over the capabilities in the peer's document."""
        self.peer_trim_nack = remote["trim_nack"]
        self.peer_service_time = remote["service_time"]
        self.dynamic_mpr = self.dynamic_mpr and remote["dynamic_mpr"]

    def for_rtr(self, remote: QpDocument, address: bytes) -> dict[str, int | bytes]:
        """Return the attributes of the transition to RTR that our offer and the peer's document agree on."""
        return {
            "remote_number": remote["qpn"],
            "remote_address": address,
            "rq_psn": remote["psn"],
            "mtu": min(self.mtu, remote["mtu"]),
            "max_wimm_dest": self.max_wimm_dest,
            "mpr_dest": self.mpr_dest,
        }

    def for_rts(self, remote: QpDocument, sq_psn: int) -> dict[str, int]:
        """Return the same for the transition to RTS."""
        return {
            "sq_psn": sq_psn,
            "max_wimm": min(self.max_wimm, remote["max_wimm_dest"]),
            "mpr": min(self.mpr, remote["mpr_dest"]),
            "timeout": self.timeout,
            "linear_cnt": self.linear_cnt,
            "exp_cnt": self.exp_cnt,
        }

    def repeat_ns(self, count: int) -> int:
        """Return how long a packet waits for an answer after it was sent for the `count`th time, counted from 0."""
        base = 1024 << self.timeout
        doubled = min(max(count - self.linear_cnt, 0), self.exp_cnt)
        return max(base, min(base << doubled, _LONGEST_TIMEOUT_NS))

    def patience_ns(self) -> int | None:
        """Return how long the retries of one packet last in a silent network (`mrc-protocol.md §4`); None: for ever."""
        if self.exp_cnt >= _FOR_EVER:
            return None
        base = 1024 << self.timeout
        doubled = [max(base, min(base << step, _LONGEST_TIMEOUT_NS)) for step in range(1, self.exp_cnt + 1)]
        return base * (self.linear_cnt + 1) + sum(doubled)


def local_document(context: EndpointContext, number: int, sq_psn: int, attributes: NegotiatedAttributes) -> QpDocument:
    """See `Endpoint.local_attributes`."""
    wire = context.config.wire
    return {
        "format": DOCUMENT,
        "address": str(ipaddress.IPv6Address(context.config.address)),
        "qpn": number,
        "psn": sq_psn,
        "mtu": wire.mtu,
        "p_key": wire.p_key,
        "udp_port": wire.udp_port,
        "ports": context.config.ports.count,
        "ports_up": context.ports.mask,
        "port_status": context.ports.status,
        "instance": context.instance,
        "mpr_dest": attributes.mpr_dest,
        "max_wimm_dest": attributes.max_wimm_dest,
        "dynamic_mpr": attributes.dynamic_mpr,
        "trim_nack": attributes.trim_nack,
        "service_time": attributes.service_time,
    }


_TYPES: Final[dict[str, tuple[type[int], int, int]]] = {
    "qpn": (int, 0, 0xFFFFFF),
    "psn": (int, 0, 0xFFFFFF),
    "mtu": (int, 64, 9000),
    "p_key": (int, 0, 0xFFFF),
    "udp_port": (int, 1, 0xFFFF),
    "ports": (int, 1, 32),
    "ports_up": (int, 0, 0xFFFFFFFF),
    "port_status": (int, 0, (1 << 62) - 1),
    "instance": (int, 0, (1 << 48) - 1),
    "mpr_dest": (int, 1, 255),
    "max_wimm_dest": (int, 1, 32767),
    "dynamic_mpr": (bool, 0, 1),
    "trim_nack": (bool, 0, 1),
    "service_time": (bool, 0, 1),
}


def check_document(context: EndpointContext, remote: object) -> tuple[QpDocument, bytes]:
    """Check a peer's document against our configuration; return it with the peer's 16-byte address. Raises QpError."""
    if not isinstance(remote, dict):
        raise QpError(f"remote attributes: {remote!r:.60} is not an object, expected one of format {DOCUMENT!r}")
    if remote.get("format") != DOCUMENT:
        raise QpError(f"remote attributes: format is {remote.get('format')!r}, expected {DOCUMENT!r}")
    for name, (kind, low, high) in _TYPES.items():
        value = remote.get(name)
        if type(value) is not kind or not low <= value <= high:
            raise QpError(f"remote attributes: {name} is {value!r}, expected {kind.__name__} in {low}..{high}")
    try:
        address = ipaddress.IPv6Address(remote.get("address", "")).packed
    except (ipaddress.AddressValueError, TypeError) as error:
        raise QpError(f"remote attributes: address: {error}") from None
    config = context.config
    ours = {"p_key": config.wire.p_key, "udp_port": config.wire.udp_port, "ports": config.ports.count}
    for name, value in ours.items():
        if value != remote[name]:
            raise QpError(f"remote attributes: {name} is {remote[name]}, ours is {value}; they must agree")
    return cast("QpDocument", remote), address

"""Negotiation between the two ends of a queue pair: attributes, and the document that is exchanged out of band
(`mrc-protocol.md §4`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import fields
from typing import Any, Final, cast

from mrc_host.proto.config import QP_ATTRIBUTES, ReliabilityConfig
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import QpError, QpState
from mrc_host.proto.qp_document import QpDocument

DOCUMENT: Final = "mrc-qp/2"
_FOR_EVER: Final = 25  # exp_cnt
_LONGEST_TIMEOUT_NS: Final = 1024 << 24
_ARGUMENTS: Final = {
    state: tuple(
        name
        for name, attribute in QP_ATTRIBUTES.items()
        if attribute.before is state and type(getattr(ReliabilityConfig(), name)) is int
    )
    for state in (QpState.RTR, QpState.RTS)
}
# Arguments of a transition (`mrc-protocol.md §4`); INIT takes its profiles from `create_qp`.
REQUIRED: Final[dict[QpState, tuple[str, ...]]] = {
    QpState.RTR: ("remote_number", "remote_address", "rq_psn", "mtu", *_ARGUMENTS[QpState.RTR]),
    QpState.RTS: ("sq_psn", *_ARGUMENTS[QpState.RTS]),
}
_OFFERED: Final = [name for name, attribute in QP_ATTRIBUTES.items() if attribute.offered]


class NegotiatedAttributes:
    """Negotiated attributes. Those with `peer_` belong to the peer's responder, the others to ours or to both."""

    def __init__(self, reliability: ReliabilityConfig, mtu: int) -> None:
        self.mtu = mtu
        self.peer_trim_nack = True
        self.peer_service_time = False
        for field in fields(reliability):
            setattr(self, field.name, getattr(reliability, field.name))

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

    def arguments(self, state: QpState) -> dict[str, Any]:
        """Return those of our attributes that the transition to a state takes."""
        return {name: getattr(self, name) for name in _ARGUMENTS[state]}

    def for_rtr(self, remote: QpDocument, address: bytes) -> dict[str, Any]:
        """Return the attributes of the transition to RTR that our offer and the peer's document agree on."""
        return {
            "remote_number": remote["qpn"],
            "remote_address": address,
            "rq_psn": remote["psn"],
            "mtu": min(self.mtu, remote["mtu"]),
            **self.arguments(QpState.RTR),
        }

    def for_rts(self, remote: QpDocument, sq_psn: int) -> dict[str, Any]:
        """Return the same for the transition to RTS."""
        bounded = {"max_wimm": min(self.max_wimm, remote["max_wimm_dest"]), "mpr": min(self.mpr, remote["mpr_dest"])}
        return {"sq_psn": sq_psn, **self.arguments(QpState.RTS), **bounded}

    def take_arguments(self, state: QpState, arguments: dict[str, Any]) -> None:
        """Take over the arguments of the transition to a state."""
        for name in _ARGUMENTS[state]:
            setattr(self, name, arguments[name])

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
    document = {
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
        **{name: getattr(attributes, name) for name in _OFFERED},
    }
    return cast("QpDocument", document)


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
    **{name: (type(getattr(ReliabilityConfig(), name)), *QP_ATTRIBUTES[name][:2]) for name in _OFFERED},
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

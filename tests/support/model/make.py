"""Endpoints of a set-up, and the few places where the two transports' interfaces differ."""

from __future__ import annotations

import random
from typing import Any, Final

from mrc_host.proto.config import EndpointConfig, EvConfig, EvFormat, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.dcqcn import DcqcnConfig
from mrc_host.proto.congestion.fixed import FixedConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import QpState
from mrc_host.proto.roce.endpoint import RoceConfig, RoceEndpoint
from support.model.scenario import ROCE, Setup

_NET: Final = bytes.fromhex("fd00000000000000000000000000")
_MSN: Final = 0xFFFFFD  # ends its 16 and its 24 bits soon
_UNITS: Final = 0xFFFFF0  # of 256 bytes: 24 bits of units, 32 of bytes


def address(number: int) -> bytes:
    """Return the IPv6 address of a host."""
    return _NET + (number + 1).to_bytes(2, "big")


def profiles(setup: Setup) -> tuple[EvConfig, CcConfig]:
    """Return the second EV and CC profile, for queue pairs that do not use the endpoint's own."""
    line = setup.rate_bps * setup.planes
    cc = FixedConfig(line_rate_bps=line, base_rtt_ns=setup.base_rtt_ns, fixed_window_bytes=setup.window_bytes)
    ev = EvConfig(
        count=2 * setup.planes,
        active=setup.planes,
        fmt=EvFormat.UDP16,
        ev_min_active=1,
        probe_interval_ns=setup.probe_interval_ns,
        probe_timeout_ns=2 * setup.base_rtt_ns,
    )
    return ev, cc


def pause(quanta: int) -> bytes:
    """Return a frame of priority flow control (IEEE 802.1Qbb) for priority 0, without Ethernet header."""
    return bytes.fromhex("01010001") + quanta.to_bytes(2, "big") + bytes(14 + 26)


def endpoint(setup: Setup, number: int, life: int) -> Any:
    """Return the endpoint of a host in one of its lives."""
    rng = random.Random(f"{setup.seed} {number} {life}")
    psn = None if setup.psn < 0 else setup.psn
    ports = PortsConfig(count=setup.planes)
    if setup.transport == ROCE:
        return RoceEndpoint(
            RoceConfig(
                address=address(number),
                wire=WireConfig(mtu=setup.mtu),
                ports=ports,
                dcqcn=DcqcnConfig(enabled=setup.dcqcn),
                line_rate_bps=setup.rate_bps * setup.planes,
                timeout=setup.timeout,
                retry_cnt=setup.retry_cnt,
                ack_every=setup.ack_every,
                max_inflight_packets=setup.max_inflight,
                min_rnr_timer=1 + setup.seed % 7,  # 10 to 120 us
                initial_psn=psn,
                selective_repeat=setup.selective,
            ),
            rng,
        )
    return Endpoint(
        EndpointConfig(
            address=address(number),
            wire=WireConfig(mtu=setup.mtu, timestamps=setup.timestamps),
            reliability=ReliabilityConfig(
                timeout=setup.timeout,
                linear_cnt=setup.linear_cnt,
                exp_cnt=setup.exp_cnt,
                mpr=setup.mpr,
                mpr_dest=setup.mpr,
                dynamic_mpr=setup.dynamic_mpr,
                max_wimm=setup.max_wimm,
                max_wimm_dest=setup.max_wimm,
                trim_nack=setup.trim_nack,
                service_time=setup.service_time,
                sack_every=setup.sack_every,
                sack_delay_ns=setup.sack_delay_ns,
                always_skip_after=setup.always_skip_after,
                same_ev_inference=setup.same_ev,
                rack_inference=setup.rack,
                adaptive_reordering=setup.adaptive,
                tail_probe=setup.tail_probe,
            ),
            ev=EvConfig(
                count=setup.ev_count,
                active=setup.ev_active,
                fmt=EvFormat.STEV32 if setup.wide_evs else EvFormat.UDP16,
                probe_interval_ns=setup.probe_interval_ns,
                probe_timeout_ns=2 * setup.base_rtt_ns,
            ),
            cc=_window(setup),
            ports=ports,
            initial_psn=psn,
        ),
        rng,
    )


def _window(setup: Setup) -> CcConfig:
    line = setup.rate_bps * setup.planes
    if setup.window == "fixed":
        return FixedConfig(line_rate_bps=line, base_rtt_ns=setup.base_rtt_ns, fixed_window_bytes=setup.window_bytes)
    return NsccConfig(line_rate_bps=line, base_rtt_ns=setup.base_rtt_ns, max_wnd_bytes=setup.window_bytes)


def fail(setup: Setup, endpoint: Any, qp: Any, now: int) -> None:
    """Move a queue pair to ERROR as its user."""
    if setup.transport == ROCE:
        endpoint.fail_qp(qp)
    else:
        endpoint.modify(qp, QpState.ERROR, now)


def near_wraps(setup: Setup, qp: Any) -> None:
    """Let the counters of a fresh connection begin close to their ends, at both ends alike.

    There is no verb for it, so they are set in place; a connection begins with none of them used.
    """
    if setup.transport == ROCE:
        qp.msn = _MSN
        return
    work, account, responder = qp.requestor.work, qp.requestor.account, qp.responder
    work.msn = work.rqmsn = _MSN
    responder._acked_msn = _MSN
    responder._expected_rqmsn = _MSN + 1
    account._sent = account.acknowledged = _UNITS << 8
    account._units = _UNITS
    responder.rcvd_bytes = _UNITS << 8


def tables(setup: Setup, endpoint: Any) -> dict[str, int]:
    """How much an endpoint holds that belongs to connections; all of it 0 when there are none."""
    if setup.transport == ROCE:
        ports, lanes = endpoint._ports.ports, endpoint._lanes
        return {
            "queue pairs": len(endpoint._qps),
            "timers": 0 if endpoint.next_timer() is None else 1,
            "ring": sum(len(lane.ring) for lane in lanes),
            "control packets": sum(len(port.control) for port in ports),
            "events": len(endpoint._events),
        }
    context = endpoint.context
    return {
        "queue pairs": len(endpoint._qps),
        "closed queue pairs": len(endpoint._closed),
        "peers": len(endpoint.peers),
        "timers": len(context.timers._live),
        "probes": len(endpoint._node.pending),
        "senders": len(context.ring.senders),
        "control packets": sum(len(port.control) for port in context.ports.ports),
        "events": len(context.events),
        "denied EVs": len(context.denied),
        "EV profiles": len(endpoint._universes.by_profile) - 1,
    }

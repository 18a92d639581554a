"""Our own endpoint on a virtual clock: exact times, every knob (the sans-IO core, `mrc_host.proto`)."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence

from mrc_conform.device import (
    Control,
    DeviceError,
    EvEntry,
    Local,
    Need,
    PairState,
    PathState,
    Remote,
    Settings,
)
from mrc_conform.devices.core import ADDRESS, CoreDevice
from mrc_host.proto.config import EndpointConfig, EvConfig, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvState, QpError, QpState
from mrc_host.proto.memory import ProcessMemory, ProcessPiece
from mrc_host.proto.qp_document import QpDocument
from mrc_host.proto.wire.fields import NackReason


def document(remote: Remote) -> QpDocument:
    """Return the kit's document in the form that our endpoints exchange (`mrc-protocol.md §4`)."""
    return {
        "format": "mrc-qp/2",
        "address": str(ipaddress.IPv6Address(remote.address)),
        "qpn": remote.number,
        "psn": remote.psn,
        "mtu": remote.mtu,
        "p_key": remote.p_key,
        "udp_port": 4791,
        "ports": remote.ports,
        "ports_up": remote.ports_up,
        "port_status": remote.port_status,
        "instance": remote.instance,
        "mpr_dest": remote.mpr_dest,
        "max_wimm_dest": remote.max_wimm_dest,
        "dynamic_mpr": remote.dynamic_mpr,
        "trim_nack": remote.trim_nack,
        "service_time": remote.service_time,
    }


def reliability(settings: Settings, timeout: int) -> ReliabilityConfig:
    """Return the attributes of a queue pair that a case asks for."""
    return ReliabilityConfig(
        timeout=timeout if settings.timeout is None else settings.timeout,
        linear_cnt=settings.linear_cnt,
        exp_cnt=settings.exp_cnt,
        mpr=settings.mpr,
        mpr_dest=settings.mpr_dest,
        dynamic_mpr=settings.dynamic_mpr,
        max_wimm=settings.max_wimm,
        max_wimm_dest=settings.max_wimm_dest,
        trim_nack=settings.trim_nack,
        service_time=settings.service_time,
        sack_every=settings.sack_every,
        sack_delay_ns=settings.sack_delay_ns,
        hole_cycle=settings.hole_cycle,
        always_skip_after=settings.always_skip_after,
        same_ev_inference=settings.same_ev_inference,
        rack_inference=settings.rack_inference,
        adaptive_reordering=settings.adaptive_reordering,
        tail_probe=settings.tail_probe,
    )


def congestion(settings: Settings) -> CcConfig:
    """Return the congestion control that a case asks for."""
    rate, rtt, trims = settings.line_rate_bps, settings.base_rtt_ns, settings.fabric_trims
    if settings.control is Control.FIXED:
        return FixedConfig(rate, rtt, trims, fixed_window_bytes=settings.window)
    return NsccConfig(rate, rtt, trims, **settings.nscc)  # type: ignore[arg-type]


def endpoint_config(settings: Settings, timeout: int, address: bytes = ADDRESS) -> EndpointConfig:
    """Return the configuration of an endpoint for a case."""
    return EndpointConfig(
        address=address,
        wire=WireConfig(
            mtu=settings.mtu, p_key=settings.p_key, timestamps=settings.timestamps, fabric_trims=settings.fabric_trims
        ),
        reliability=reliability(settings, timeout),
        ev=EvConfig(
            count=settings.ev_count,
            active=settings.ev_active,
            ev_min_active=settings.ev_min_active,
            probe_interval_ns=settings.probe_interval_ns,
            probe_timeout_ns=settings.probe_timeout_ns,
            probe_jitter=0.0,
            probes_to_revive=settings.probes_to_revive,
            probe_burst=settings.probe_burst,
            reverse_probes=settings.reverse_probes,
            rescan_rounds=settings.rescan_rounds,
        ),
        cc=congestion(settings),
        ports=PortsConfig(
            count=settings.planes,
            status_repeat_ns=settings.status_repeat_ns,
            balance_slack_packets=settings.balance_slack,
            balance_patience_ns=settings.balance_patience_ns,
        ),
        initial_psn=settings.first_psn,
    )


class _Program(ProcessMemory):
    """The memory of a program, from address 0 on."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, address: int, size: int) -> bytes:
        """See `ProcessMemory`."""
        return self._data[address : address + size]


class VirtualMrc(CoreDevice):
    """See the module's docstring."""

    name = "our MRC endpoint, virtual clock"
    offers = frozenset(Need)
    psn_name = "psn"

    def document(self, remote: Remote) -> object:
        """See `CoreDevice`."""
        return document(remote)

    def start(self, settings: Settings, seed: int) -> None:
        """See `Device`."""
        self._begin(Endpoint(endpoint_config(settings, self.timeout), random.Random(seed)), settings.planes)
        self._program = settings.program_memory

    def source(self, data: bytes) -> object:
        """See `CoreDevice`."""
        if not self._program:
            return super().source(data)
        return ProcessPiece(_Program(data), 0, len(data), memoryview(b""), 0)

    def modify(self, local: Local, state: PairState) -> None:
        """See `Device`."""
        try:
            self._core.modify(self._pairs[local.number][0], QpState(state.value), self._now)
        except QpError as error:
            raise DeviceError(str(error)) from None
        self._collect()

    def evs(self, local: Local) -> Sequence[EvEntry]:
        """See `Device`."""
        rows = self._core.query_evs(self._pairs[local.number][0])
        return [EvEntry(row.ev, row.plane, PathState(row.state.value), row.active) for row in rows]

    def deny(self, local: Local, ev: int, denied: bool) -> None:
        """See `Device`."""
        state = EvState.DENIED if denied else EvState.GOOD
        self._core.set_ev_state(self._pairs[local.number][0], ev, state, self._now)

    def replace_ev(self, local: Local, old: int, new: int) -> None:
        """See `Device`."""
        self._core.replace_ev(self._pairs[local.number][0], old, new, self._now)

    def set_pressure(self, penalty: int, *, restore: bool = False, refuse: int | None = None) -> None:
        """See `Device`."""
        self._core.set_receive_pressure(penalty, restore=restore, refuse=None if refuse is None else NackReason(refuse))

    def set_mpr(self, local: Local, units: int) -> None:
        """See `Device`."""
        self._core.set_mpr(self._pairs[local.number][0], units)

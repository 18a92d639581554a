"""Documents that the two ends of a queue pair exchange out of band (`mrc-protocol.md §4`), as plain JSON values."""

from __future__ import annotations

from typing import TypedDict


class QpDocument(TypedDict):
    """The document of an MRC queue pair. `ports_up`: bit p for port p; `port_status` and `instance` order documents."""

    format: str
    address: str
    qpn: int
    psn: int
    mtu: int
    p_key: int
    udp_port: int
    ports: int
    ports_up: int
    port_status: int
    instance: int
    mpr_dest: int
    max_wimm_dest: int
    dynamic_mpr: bool
    trim_nack: bool
    service_time: bool


class RoceQpDocument(TypedDict):
    """Of a queue pair of RoCE; `address` in hexadecimal digits."""

    transport: str
    qpn: int
    address: str
    initial_psn: int
    mtu: int

"""The description of a fabric, from which `p4lite.switch.server` builds a process (docs/control.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from p4lite.switch.documents import IntegerRange, Mac, Number32, PortNumber
from p4lite.switch.fabric.values import CreditSettings, LinkSettings, PfcSettings, QueueLimits

#: A port of a switch.
End = Annotated[tuple[int, int], "[device_id, port]"]
Patch = Annotated[tuple[PortNumber, PortNumber], "[port, port]"]
#: What captures and traces may take, bytes.
DEFAULT_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True)
class TunnelDescription:
    """A port whose link leads to another machine: see `TunnelSettings`."""

    local: str
    peer: str
    key_file: str
    end: Number32
    peer_end: Number32
    socket: Annotated[int, IntegerRange(3)] | None = None


@dataclass(frozen=True)
class PortDescription:
    """A port, its link outside, and by priority its queues, flow control and credits."""

    port: PortNumber
    interface: str | None = None
    tunnel: TunnelDescription | None = None
    name: str | None = None
    to_host: LinkSettings | None = None
    to_switch: LinkSettings | None = None
    pcap: str | None = None
    queue: QueueLimits | None = None
    queues: dict[int, QueueLimits] = field(default_factory=dict)
    buffer: QueueLimits | None = None
    pfc: dict[int, PfcSettings] = field(default_factory=dict)
    credits: dict[int, CreditSettings] = field(default_factory=dict)
    mac: Mac = 0


@dataclass(frozen=True)
class SwitchDescription:
    """A switch; None stands for the default of `Fabric.add_switch`. `patches`: pairs of ports joined without a
    program."""

    device_id: int
    name: str | None = None
    program: str | None = None
    p4info: str | None = None
    include_dirs: tuple[str, ...] = ()
    defines: dict[str, str] = field(default_factory=dict)
    priority_queues: PortNumber | None = None
    drop_port: PortNumber | None = None
    cpu_port: PortNumber | None = None
    loop_limit: PortNumber | None = None
    ports: tuple[PortDescription, ...] = ()
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True)
class LinkDescription:
    """A cable between two ports, each as (device_id, port); `back` (b to a) is like `settings` unless given."""

    a: End
    b: End
    settings: LinkSettings | None = None
    back: LinkSettings | None = None


@dataclass(frozen=True)
class FabricDescription:
    """A fabric; relative paths start at the file's folder, or at a folder of the reader's choice."""

    clock: Literal["real", "virtual"] = "real"
    grpc_server_addr: str | None = None
    seed: int = 0
    busy_poll_us: int = 0
    round_us: Annotated[int, IntegerRange(0, 100_000)] = 0
    realtime: bool = False
    pcap_dir: str | None = None
    trace: str | None = None
    files: str | None = None
    files_limit: int = DEFAULT_LIMIT_BYTES
    interfaces: tuple[str, ...] = ()
    switches: tuple[SwitchDescription, ...] = ()
    links: tuple[LinkDescription, ...] = ()

"""Verbs: the interface for programs on a host. The host's agent is their NIC (docs/reference/verbs.md).

Importing this loads nothing of the protocol.
"""

from mrc_host.access import Access
from mrc_host.verbs.completion import CompletionChannel, CompletionQueue, WorkCompletion, status_text
from mrc_host.verbs.connection import DeviceLostError, VerbsError
from mrc_host.verbs.device import (
    AsyncEvent,
    Context,
    Version,
    Versions,
    open_device,
    query_version,
)
from mrc_host.verbs.layout import (
    DeviceCap,
    EventType,
    QpState,
    RingOpcode,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
)
from mrc_host.verbs.memory import MemoryRegion, ProtectionDomain, RemoteMemory, Sge
from mrc_host.verbs.queue_pair import QpAttributes, QpCap, QpHint, QueuePair, SendRequest
from mrc_host.verbs.rendezvous import Rendezvous, exchange
from mrc_host.verbs.requests import DeviceAttributes, Ev, PortAttributes, RemoteQp, Wire
from mrc_host.verbs.shared_receive import SharedReceiveQueue

__all__ = [
    "Access",
    "AsyncEvent",
    "CompletionChannel",
    "CompletionQueue",
    "Context",
    "DeviceAttributes",
    "DeviceCap",
    "DeviceLostError",
    "Ev",
    "EventType",
    "MemoryRegion",
    "PortAttributes",
    "ProtectionDomain",
    "QpAttributes",
    "QpCap",
    "QpHint",
    "QpState",
    "QueuePair",
    "RemoteMemory",
    "RemoteQp",
    "Rendezvous",
    "RingOpcode",
    "SendFlags",
    "SendRequest",
    "Sge",
    "SharedReceiveQueue",
    "VerbsError",
    "Version",
    "Versions",
    "WcFlags",
    "WcOpcode",
    "WcStatus",
    "Wire",
    "WorkCompletion",
    "exchange",
    "open_device",
    "query_version",
    "status_text",
]

"""Verbs: the interface for programs on a host. The host's agent is their NIC (docs/reference/verbs.md).

Importing this loads nothing of the protocol.
"""

from mrc_host.access import Access
from mrc_host.verbs.completion import CompletionChannel, CompletionQueue, WorkCompletion, status_text
from mrc_host.verbs.connection import DeviceLostError, Rendezvous, VerbsError, exchange
from mrc_host.verbs.device import (
    AsyncEvent,
    Context,
    MemoryRegion,
    ProtectionDomain,
    RemoteMemory,
    Sge,
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
from mrc_host.verbs.queue_pair import QpAttributes, QpCap, QpHint, QueuePair, SendRequest, SharedReceiveQueue
from mrc_host.verbs.requests import DeviceAttributes, Ev, PortAttributes, RemoteQp, Wire

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

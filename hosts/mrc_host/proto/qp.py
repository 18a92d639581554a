"""The queue pair: its state table, attributes, and the requestor and responder it holds (`mrc-protocol.md §4`)."""

from __future__ import annotations

from mrc_host.proto.events import QpState


class QpError(Exception):
    """A verb that the queue pair's state or attributes do not allow; the text says which and what would."""


class QueuePair:
    """Handle of a queue pair. `number` is the 24-bit QP number, `state` its `QpState`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = QpState.RESET

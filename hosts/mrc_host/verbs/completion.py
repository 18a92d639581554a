"""Completion queues, and channels to wait for them."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, NamedTuple

from mrc_host.ordering import WEAK, fence
from mrc_host.verbs import layout, requests
from mrc_host.verbs.connection import VerbsError, map_file
from mrc_host.verbs.device import Context
from mrc_host.verbs.layout import TAIL, Consumer, WcOpcode, WcStatus

_STATUS = {int(status): status for status in WcStatus}
_OPCODE = {int(opcode): opcode for opcode in WcOpcode}
#: A program that polls without end asks this seldom whether the agent is still there.
_POLLS_PER_CHECK = 4096


class WorkCompletion(NamedTuple):
    """How a work request ended (`ibv_wc`). `imm_data` counts if `wc_flags` has WITH_IMM, `byte_len` on success."""

    wr_id: int
    status: WcStatus
    opcode: WcOpcode
    qp_num: int
    byte_len: int
    imm_data: int
    wc_flags: int


class CompletionChannel:
    """Notifies of completions by a file descriptor, which is readable while notifications wait."""

    def __init__(self, context: Context) -> None:
        self.context = context
        answer, files = context.ask_files(requests.CreateChannel())
        self.number: int = answer.channel
        self.fd: int = files[0]
        self.queues: list[CompletionQueue] = []
        context.channels.append(self)

    def fileno(self) -> int:
        """Return the file descriptor, for `select` and similar calls."""
        return self.fd

    def get_cq_event(self, timeout: float | None = None) -> CompletionQueue | None:
        """Return the queue of the next notification, which is to be acknowledged; None when none comes in `timeout`
        seconds (None: for ever).

        Raises:
            DeviceLostError: the agent is gone.
        """
        if not self.context.wait(self.fd, timeout):
            return None
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return None  # another thread took it
        for queue in self.queues:
            if queue.take_event():
                return queue
        return None

    def destroy(self) -> None:
        """Destroy the channel. Raises VerbsError while completion queues use it."""
        self.context.ask(requests.DestroyChannel(self.number))
        self.context.channels.remove(self)
        self.close()

    def close(self) -> None:
        """Close the file descriptor; the context does that when it is closed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class CompletionQueue:
    """Where work requests report that they have ended.

    Args:
        context: the device.
        cqe: how many completions it must hold; `cqe` says how many it does. One more than that ends the queue pairs
            that use it.
        channel: where notifications go.
        user: whatever the program likes; `cq_context` of the C library.
    """

    def __init__(
        self, context: Context, cqe: int = 256, channel: CompletionChannel | None = None, user: Any = None
    ) -> None:
        self.context = context
        self.channel = channel
        self.user = user
        number = channel.number if channel is not None else None
        answer, files = context.ask_files(requests.CreateCq(cqe, number))
        self.number: int = answer.cq
        self.cqe: int = answer.cqe
        self._ring = Consumer(
            map_file(files[0], layout.ring_bytes(self.cqe, layout.COMPLETION_BYTES)), self.cqe, layout.COMPLETION_BYTES
        )
        self._events_taken = 0
        self._events_acked = 0
        self._empty_polls = 0
        context.queues.add(self)
        if channel is not None:
            channel.queues.append(self)

    def poll(self, limit: int = 16) -> list[WorkCompletion]:
        """Take up to `limit` completions, oldest first; one thread at a time.

        Raises:
            DeviceLostError: there are none, and the agent is gone (looked for once in a while).
        """
        ring = self._ring
        head = ring.head
        count = ring.words[TAIL] - head
        if count <= 0:
            self._empty_polls += 1
            if self._empty_polls >= _POLLS_PER_CHECK:
                self._empty_polls = 0
                self.context.check()
            return []
        if WEAK:  # Acquire: no completion is read before the counter that says that it is there.
            fence()
        found: list[WorkCompletion] = []
        unpack, buffer, at, pairs = layout.COMPLETION.unpack_from, ring.buffer, ring.at, self.context.queue_pairs
        for _ in range(min(count, limit)):
            wr_id, status, opcode, number, nbytes, immediate, flags, ended = unpack(buffer, at(head))
            head += 1
            pair = pairs.get(number)
            if pair is not None:
                pair.ended(opcode, ended)
            found.append(WorkCompletion(wr_id, _STATUS[status], _OPCODE[opcode], number, nbytes, immediate, flags))
        ring.head = head
        ring.release()
        return found

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one notification at the channel, of the next completion (or the next that is solicited or failed).

        Completions that are there already do not count: poll once more after this call.
        """
        if self.channel is None:
            raise VerbsError(errno.EINVAL, "the completion queue was created without a channel")
        self.context.request_notify(self.number, self._ring.words[TAIL], solicited_only)

    def forget(self, ring: Any) -> None:
        """Drop the ring of a context that is closed."""
        self._ring = ring

    def take_event(self) -> bool:
        """Return whether a notification of this queue waits; it is taken."""
        if self._ring.noted() > self._events_taken:
            self._events_taken += 1
            return True
        return False

    def ack_events(self, count: int = 1) -> None:
        """Acknowledge notifications that `get_cq_event` returned."""
        if count < 0 or self._events_acked + count > self._events_taken:
            raise VerbsError(errno.EINVAL, f"{count} events are more than were taken and not acknowledged")
        self._events_acked += count

    def wait(self, timeout: float | None = None, limit: int = 16) -> list[WorkCompletion]:
        """Return completions as `poll` does, waiting for the first one; an empty list after `timeout` seconds (None:
        for ever).

        The queue needs a channel that no other queue uses.
        """
        found = self.poll(limit)
        if found:
            return found
        self.req_notify()
        found = self.poll(limit)
        if not found and self.channel is not None:
            while not found:
                queue = self.channel.get_cq_event(timeout)
                if queue is None:
                    return []
                queue.ack_events()
                found = self.poll(limit)
                if not found:
                    self.req_notify()
                    found = self.poll(limit)
        return found

    def destroy(self) -> None:
        """Destroy the queue. Raises VerbsError while queue pairs use it, or events are not acknowledged."""
        left = self._events_taken - self._events_acked
        if left:
            raise VerbsError(errno.EBUSY, f"{left} notifications are not acknowledged; `ack_events` first")
        self.context.check_acked(False, self.number)
        self.context.ask(requests.DestroyCq(self.number))
        if self.channel is not None:
            self.channel.queues.remove(self)
            with contextlib.suppress(BlockingIOError):
                while self._events_taken < self._ring.noted():
                    os.eventfd_read(self.channel.fd)
                    self._events_taken += 1


def status_text(status: WcStatus) -> str:
    """Return the text of a status (`ibv_wc_status_str`)."""
    return _TEXTS.get(status, status.name)


_TEXTS = {
    WcStatus.SUCCESS: "success",
    WcStatus.LOC_LEN_ERR: "local length error",
    WcStatus.LOC_QP_OP_ERR: "local queue pair operation error",
    WcStatus.LOC_PROT_ERR: "local protection error",
    WcStatus.WR_FLUSH_ERR: "work request flushed",
    WcStatus.REM_INV_REQ_ERR: "remote invalid request",
    WcStatus.REM_ACCESS_ERR: "remote access error",
    WcStatus.REM_OP_ERR: "remote operation error",
    WcStatus.RETRY_EXC_ERR: "transport retry counter exceeded",
    WcStatus.RNR_RETRY_EXC_ERR: "receiver-not-ready retry counter exceeded",
    WcStatus.FATAL_ERR: "fatal error",
}

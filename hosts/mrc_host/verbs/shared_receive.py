"""Receives into memory, and queues of them that several queue pairs share."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from typing import Final

from mrc_host.verbs import layout, requests
from mrc_host.verbs.connection import VerbsError
from mrc_host.verbs.device import Context
from mrc_host.verbs.layout import RingOpcode
from mrc_host.verbs.memory import ProtectionDomain, Sge

_MASK: Final = 0xFFFFFFFF


def receive_into(
    context: Context, opcode: RingOpcode, target: int, wr_id: int, local: Sge | Sequence[Sge], most: int
) -> None:
    """Write an entry of a receive with elements; under the context's lock, and followed by `submit`.

    Raises:
        VerbsError: more than `most` elements, or a number out of range.
    """
    pieces = [local] if isinstance(local, Sge) else list(local)
    if len(pieces) > most:
        raise VerbsError(errno.EINVAL, f"{len(pieces)} elements; at most {most}")
    at = context.place()
    where = at + layout.ELEMENTS_AT
    try:
        for each in pieces:
            layout.ELEMENT.pack_into(context.entries, where, each.addr, each.length, each.lkey)
            where += layout.ELEMENT.size
        layout.REQUEST.pack_into(context.entries, at, opcode, 0, len(pieces), target, wr_id, 0, 0, 0, 0)
    except struct.error as error:
        raise VerbsError(errno.EINVAL, f"a number of the receive is out of range: {error}") from None


class SharedReceiveQueue:
    """Receives that several queue pairs of RoCE take from (`ibv_srq`).

    Args:
        domain: whose memory the receives name.
        max_wr: how many receives it can hold.
        max_sge: elements of a receive.
        limit: an event SRQ_LIMIT_REACHED comes once when fewer receives are left; 0: never.
    """

    def __init__(
        self, domain: ProtectionDomain, max_wr: int = 128, max_sge: int = layout.MAX_SGE, limit: int = 0
    ) -> None:
        self.domain = domain
        self.context = domain.context
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.number = self.context.ask(requests.CreateSrq(domain.number, max_wr, max_sge, limit)).srq
        self._posted = self._ended = 0

    def post_recv(self, local: Sge | Sequence[Sge] = (), *, wr_id: int = 0) -> None:
        """Post a receive into the memory that `local` names.

        Raises:
            VerbsError: the queue is full (ENOMEM), or the receive is not valid.
        """
        with self.context.lock:
            if (self._posted - self._ended) & _MASK >= self.max_wr:
                raise VerbsError(
                    errno.ENOMEM, f"shared receive queue {self.number}: no more than {self.max_wr} receives at once"
                )
            receive_into(self.context, RingOpcode.SRQ_RECV, self.number, wr_id, local, self.max_sge)
            self._posted += 1
            self.context.submit()

    def query(self) -> requests.SrqDocument:
        """Return its size, its limit, and how many receives wait in it."""
        return self.context.ask(requests.QuerySrq(self.number))

    def modify(self, limit: int) -> None:
        """Set the limit (`IBV_SRQ_LIMIT`)."""
        self.context.ask(requests.ModifySrq(self.number, limit))

    def ended(self, count: int) -> None:
        """Record how many receives have ended so far (modulo 2^32), at each completion of one."""
        self._ended = count

    def destroy(self) -> None:
        """Destroy the queue and the receives in it. Raises VerbsError while queue pairs use it."""
        self.context.ask(requests.DestroySrq(self.number))

"""Work requests of a RoCE queue pair, numbered by the PSNs that they take, and their queue.

A READ takes as many PSNs as its response has packets, an atomic operation one (IBTA vol. 1 rel. 1.4, chapter 9).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mrc_host.proto.completion import CompletionKind
from mrc_host.proto.memory import Source
from mrc_host.proto.receive import Scatter

ATOMIC_BYTES: Final = 8
NOTHING: Final = memoryview(b"")
_ANSWERED: Final = (CompletionKind.READ, CompletionKind.COMPARE_SWAP, CompletionKind.FETCH_ADD)


class RoceRequest:
    """One posted request. `first` and `last` are its PSNs.

    `view` is what is sent, `target` where the answer of a READ or atomic operation goes. `answers`: it completes by
    such an answer, which may have come (`answered`) before those of earlier requests. A `fence` waits for all of these.
    """

    __slots__ = (
        "answered", "answers", "compare", "fence", "first", "immediate", "is_imm", "kind", "last", "length", "rkey",
        "solicited", "swap_or_add", "target", "va", "view", "wr_id",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - the fields of a work request
        self,
        kind: CompletionKind,
        wr_id: int,
        length: int,
        *,
        view: Source = NOTHING,
        target: Scatter | None = None,
        va: int = 0,
        rkey: int = 0,
        immediate: int | None = None,
        solicited: bool = False,
        fence: bool = False,
        swap_or_add: int = 0,
        compare: int = 0,
    ) -> None:
        self.kind = kind
        self.wr_id = wr_id
        self.length = length
        self.view = view
        self.target = target
        self.va = va
        self.rkey = rkey
        self.is_imm = immediate is not None
        self.immediate = immediate or 0
        self.solicited = solicited
        self.fence = fence
        self.swap_or_add = swap_or_add
        self.compare = compare
        self.answers = kind in _ANSWERED
        self.answered = False
        self.first = self.last = 0


class RoceWork:
    """The requests of one queue pair in posting order: those to be sent, and those that have not completed.

    `current` is being sent; `unacked` are all that have not completed, the current one among them. `answering` counts
    those of them that complete by an answer, `fences` those with a fence.
    """

    __slots__ = ("_mtu", "_queue", "answering", "current", "end", "fences", "unacked")

    def __init__(self, first_psn: int, mtu: int) -> None:
        """Create an empty queue whose first request has this PSN; `mtu` is that of the path."""
        self.unacked: deque[RoceRequest] = deque()
        self._queue: deque[RoceRequest] = deque()
        self.current: RoceRequest | None = None
        self.end = first_psn  # PSN at which the next request to be posted begins
        self._mtu = mtu
        self.answering = self.fences = 0

    def post(self, request: RoceRequest) -> None:
        """Queue a request with the next number."""
        packets = 1 if request.kind in _ANSWERED[1:] else -(-request.length // self._mtu) or 1
        request.first = self.end
        request.last = request.first + packets - 1
        self.end = request.last + 1
        self.answering += request.answers
        self.fences += request.fence
        self.unacked.append(request)
        if self.current is None:
            self.current = request
        else:
            self._queue.append(request)

    def next_request(self) -> None:
        """Go to the next request, since all of the current one has been sent."""
        self.current = self._queue.popleft() if self._queue else None

    def rewind(self, psn: int) -> None:
        """Go back to the request that has this PSN."""
        self._queue = deque(each for each in self.unacked if each.last >= psn)
        self.next_request()

    def at(self, psn: int) -> RoceRequest | None:
        """Return the request that has this PSN; None if it has completed."""
        for request in self.unacked:
            if request.last >= psn:
                return request if request.first <= psn else None
        return None

    def take_complete(self, psn: int) -> RoceRequest | None:
        """Return the oldest request, if all up to `psn` has been answered and it ends there; call until there is
        none."""
        unacked = self.unacked
        if not unacked or unacked[0].last > psn:
            return None
        request = unacked.popleft()
        self.answering -= request.answers
        self.fences -= request.fence
        return request

    def flush(self) -> list[RoceRequest]:
        """Forget and return all that have not completed."""
        self._queue.clear()
        self.current = None
        self.answering = self.fences = 0
        requests = list(self.unacked)
        self.unacked.clear()
        return requests

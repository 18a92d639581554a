"""A group of ranks with a queue pair between any two: operations in order, messages between ranks, deaths.

One thread per group takes completions, and another one looks at the time, so that neither holds up the other; what
users want to be called runs in threads for callbacks (`callbacks`). The thread that starts an
operation posts its first writes.
Collective operations are generators (`algorithms`), done one after the other as they were called; messages between two
ranks do not wait for them. While anything is under way, a peer that has been silent for `PING_AFTER_S` is written to:
its host answers, or not. The first error ends the group: all that is under way and all that comes later ends with it,
and every other rank hears which rank is to blame.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from mrc_host import verbs
from mrc_host.verbs import VerbsError, WcOpcode, WcStatus
from mrc_torch import devices
from mrc_torch.callbacks import CALLBACKS
from mrc_torch.errors import ClosedError, CollectiveError, RankDeadError, RankSilentError
from mrc_torch.link import (
    AREA_BYTES,
    CAP,
    MAX_RANKS,
    RECEIVES,
    SLOT_BYTES,
    SLOTS,
    ControlWord,
    Link,
    LinkTransfer,
    Receive,
    Send,
    Sink,
)
from mrc_torch.silence import PeerQuery
from mrc_torch.stores import Store
from mrc_torch.work import Work

PING_AFTER_S: Final = 0.5
TICK_S: Final = 0.1
CLOSE_S: Final = 5.0
FORMAT: Final = 2
_BATCH: Final = 64
#: Begins the value that a rank that has failed stores instead of the one that others wait for.
_FAILED: Final = "failed: "
_MESSAGE_KEYS: Final = 1 << 63
#: The agent's reasons why a queue pair of ours went to ERR, and what each means about the peer.
_WHY: Final = {
    "remote operation error": "its program has ended",
    "retry counter exceeded": "its host does not answer: the agent is gone, or no path is left",
    "the peer's endpoint has started again since": "the agent of its host has started again",
}

#: What an operation waits for: transfers that must be done.
Steps = Generator[Iterable[LinkTransfer], None, None]


class _Task:
    """A collective operation that has been called."""

    def __init__(self, work: Work, steps: Steps) -> None:
        self.work = work
        self.steps = steps
        self.waiting: list[LinkTransfer] = []
        self.began = 0.0  # when it was its turn


class Group:
    """See the module's docstring.

    Args:
        store: where its ranks meet; no other group may use the same keys.
        rank: this one's number, from 0.
        size: how many there are.
        device: a host's name or the path of its agent's socket; None: `MRC_DEVICE` of the environment.
        timeout: seconds that an operation may take from its turn on, and that a rank may take to come.

    Raises:
        CollectiveError: not all ranks came in time.
        VerbsError: the device refuses something.
    """

    def __init__(
        self, store: Store, rank: int, size: int, *, device: str | None = None, timeout: float = 1800.0
    ) -> None:
        if not 0 <= rank < size <= MAX_RANKS:
            raise ValueError(f"rank {rank} of {size}: ranks count from 0, and a group has at most {MAX_RANKS}")
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.error: BaseException | None = None
        self.host = ""
        self._lock = threading.RLock()
        self._tasks: deque[_Task] = deque()
        self._transfers: set[LinkTransfer] = set()  # between ranks, with a work of their own
        self._began: dict[LinkTransfer, float] = {}
        self._anyone: dict[int, deque[Receive]] = {}
        self._finished: list[tuple[Work, BaseException | None]] = []
        self._count = 0  # of collective operations
        self._closing = False
        self._stopped = False
        self.links: dict[int, Link] = {}
        self._by_qp: dict[int, Link] = {}
        self._context: verbs.Context | None = None
        self._threads: list[threading.Thread] = []
        self._ending = threading.Event()
        self._inquiry: PeerQuery | None = None
        if size > 1:
            try:
                self._context = devices.acquire(device)
                self._connect(self._context, store)
            except BaseException as error:
                self._release()
                said = f"{_FAILED}{str(error) or type(error).__name__}"
                for key in (f"mrc/{rank}", f"mrc/{rank}/ready"):
                    with contextlib.suppress(Exception):  # no other rank need wait for this one
                        store.set(key, said)
                raise
            for name, work in (("group", self._run), ("time of group", self._watch)):
                thread = threading.Thread(target=work, name=f"mrc {name} {rank}/{size}", daemon=True)
                self._threads.append(thread)
                thread.start()
        _OPEN.add(self)

    # -- beginning and end ---------------------------------------------------------------------------------------

    def _connect(self, context: verbs.Context, store: Store) -> None:
        self.host = context.host
        others = [rank for rank in range(self.size) if rank != self.rank]
        self._domain = verbs.ProtectionDomain(context)
        self._channel = verbs.CompletionChannel(context)
        entries = len(others) * (CAP.max_send_wr + CAP.max_recv_wr)
        self._cq = verbs.CompletionQueue(context, entries, self._channel)
        self._region = verbs.MemoryRegion(self._domain, 2 * AREA_BYTES * len(others))
        documents: dict[int, object] = {}
        for index, rank in enumerate(others):
            qp = verbs.QueuePair(self._domain, self._cq, cap=CAP)
            at = 2 * AREA_BYTES * index
            link = Link(rank, qp, self._region, at, at + AREA_BYTES, self._ended, self._from_anyone)
            self.links[rank] = self._by_qp[qp.qp_num] = link
            documents[rank] = {"qp": qp.document(), "slots": [self._region.addr + link.receive_at, self._region.rkey]}
        own = {"format": [FORMAT, SLOTS, SLOT_BYTES], "host": self.host, "size": self.size, "ranks": documents}
        store.set(f"mrc/{self.rank}", json.dumps(own))
        for rank, link in self.links.items():
            theirs = json.loads(self._come(store, f"mrc/{rank}", rank))
            if theirs["format"] != own["format"] or theirs["size"] != self.size:
                raise CollectiveError(f"rank {rank} has another version of this package, or of the group's size")
            document = theirs["ranks"][str(self.rank)]
            link.host = theirs["host"]
            link.remote_addr, link.rkey = document["slots"]
            link.qp.connect(document["qp"])
            link.qp.post_recv(0, RECEIVES)
        store.set(f"mrc/{self.rank}/ready", "1")
        for rank in others:
            self._come(store, f"mrc/{rank}/ready", rank)
        now = time.monotonic()
        for link in self.links.values():
            link.heard = now

    def _come(self, store: Store, key: str, rank: int) -> bytes:
        try:
            said = store.get(key)
        except (RuntimeError, OSError) as error:  # torch's stores have errors of their own, which are RuntimeErrors
            raise CollectiveError(f"rank {rank} of {self.size} has not come to the group: {error}") from error
        if said.startswith(_FAILED.encode()):
            raise CollectiveError(f"rank {rank} of {self.size} cannot join the group: {said[len(_FAILED) :].decode()}")
        return said

    def close(self, timeout: float = CLOSE_S) -> None:
        """Leave the group: sends are waited for, for at most `timeout` seconds; other operations are given up."""
        _OPEN.discard(self)
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self.error is None:
                self._give_up(ClosedError(f"rank {self.rank} has left the group"))
                for link in self._living():
                    link.say(ControlWord.BYE)
        deadline = time.monotonic() + timeout
        while self._threads and time.monotonic() < deadline:
            with self._lock:
                if self._stopped or all(link.idle for link in self._living()):
                    break
            time.sleep(0.001)
        self._stopped = True
        self._ending.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._flush()
        self._release()

    def after_fork_in_child(self) -> None:
        """Mark the group as unusable in a forked child, which must not touch anything of it."""
        self._lock = threading.RLock()
        self._closing = self._stopped = True
        self.error = ClosedError(f"rank {self.rank} is the parent of this process; a group is not inherited")

    def _release(self) -> None:
        context, self._context = self._context, None
        if context is None:
            return
        with contextlib.suppress(VerbsError, AttributeError):  # the agent may be gone; the rest may not be made yet
            for link in self.links.values():
                link.qp.destroy()
            self._cq.destroy()
            self._channel.destroy()
            self._region.destroy()
            self._domain.destroy()
        devices.release(context)

    def _living(self) -> list[Link]:
        return [link for link in self.links.values() if not link.dead and not link.left]

    # -- operations ----------------------------------------------------------------------------------------------

    def run(self, name: str, steps: Callable[[int], Steps]) -> Work:
        """Call a collective operation: `steps(number)` is its generator, with the number that its keys are made of."""
        with self._lock:
            self._count += 1
            work = Work(f"{name} (operation {self._count} of rank {self.rank})")
            if self._usable(work):
                self._tasks.append(_Task(work, steps(self._count)))
                with self._posting():
                    self._advance()
        self._flush()
        return work

    def message(self, name: str, rank: int | None, tag: int, data: memoryview | tuple[int, Sink]) -> Work:
        """Send bytes to a rank, or receive as many into a sink, from one or (None) from any rank."""
        if rank is not None and (rank not in self.links):
            raise ValueError(f"{name}: rank {rank} is no other rank of a group of {self.size}")
        key = _MESSAGE_KEYS | tag & _MESSAGE_KEYS - 1
        with self._lock:
            work = Work(f"{name} (tag {tag})")
            if self._usable(work):
                transfer: LinkTransfer
                with self._posting():
                    if isinstance(data, memoryview):
                        assert rank is not None
                        transfer = Send(self.links[rank], key, data, work)
                        self._note(transfer)
                        self._guarded(self.links[rank].send, transfer)
                    elif rank is not None:
                        transfer = Receive(self.links[rank], key, *data, work)
                        self._note(transfer)
                        self._guarded(self.links[rank].receive, transfer)
                    else:
                        transfer = Receive(None, key, *data, work)
                        self._note(transfer)
                        self._guarded(self._receive_from_anyone, transfer)
                    self._advance()
        self._flush()
        return work

    def _usable(self, work: Work) -> bool:
        if self.error is not None:
            self._finished.append((work, self.error))
        return self.error is None

    def _note(self, transfer: LinkTransfer) -> None:
        self._transfers.add(transfer)
        self._began[transfer] = time.monotonic()

    def _receive_from_anyone(self, transfer: Receive) -> None:
        if not any(link.claim(transfer) for link in self.links.values()):
            self._anyone.setdefault(transfer.key, deque()).append(transfer)
        for link in self.links.values():
            link.empty()
            link.pump()

    def _from_anyone(self, key: int) -> Receive | None:
        posted = self._anyone.get(key)
        return posted.popleft() if posted else None

    @property
    def count(self) -> int:
        """How many collective operations this rank has called."""
        return self._count

    def give_up(self, error: CollectiveError) -> None:
        """End the group with an error, here and at all other ranks."""
        with self._lock, self._posting():
            self._fail(error)
        self._flush()

    # -- what generators use; the lock is held ----------------------------------------------------------------------

    def send(self, number: int, step: int, rank: int, view: memoryview) -> Send:
        """Send a message of an operation."""
        transfer = Send(self.links[rank], number << 16 | step, view)
        self.links[rank].send(transfer)
        return transfer

    def receive(self, number: int, step: int, rank: int, size: int, sink: Sink) -> Receive:
        """Receive a message of an operation."""
        transfer = Receive(self.links[rank], number << 16 | step, size, sink)
        self.links[rank].receive(transfer)
        return transfer

    # -- progress; the lock is held ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _posting(self) -> Iterator[None]:
        """Wake the agent once for all that is posted in the context; an error of the device ends the group."""
        try:
            assert self._context is not None or not self.links
            if self._context is None:
                yield
            else:
                with self._context.batch():
                    yield
        except OSError as error:
            self._fail(self._own(error))

    def _guarded(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except (CollectiveError, ValueError) as error:
            self._fail(error)

    def _ended(self, transfer: LinkTransfer) -> None:
        transfer.done = True
        if transfer.work is not None:
            self._transfers.discard(transfer)
            self._began.pop(transfer, None)
            transfer.work.source = transfer.link.rank if transfer.link is not None else None
            self._finished.append((transfer.work, None))

    def _advance(self) -> None:
        """Let the oldest operation go on, and those after it."""
        while self._tasks and self.error is None:
            task = self._tasks[0]
            if not task.began:
                task.began = time.monotonic()
            if not all(each.done for each in task.waiting):
                return
            try:
                task.waiting = list(next(task.steps))
            except StopIteration:
                self._tasks.popleft()
                self._finished.append((task.work, None))
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks wait for this one
                self._fail(error)

    def _flush(self) -> None:
        """Notify those who wait; without the lock, because their callbacks may call the group."""
        while True:
            with self._lock:
                if not self._finished:
                    return
                work, error = self._finished.pop(0)
            work.finish(error)

    # -- errors; the lock is held -----------------------------------------------------------------------------------

    def _own(self, error: OSError) -> CollectiveError:
        return RankDeadError(self.rank, f"rank {self.rank} (this one, host {self.host}): {error}")

    def _give_up(self, error: BaseException) -> None:
        """End all that is under way and all that comes later with an error."""
        if self.error is not None:
            return
        self.error = error
        works = [task.work for task in self._tasks]
        works += [transfer.work for transfer in self._transfers if transfer.work is not None]
        for task in self._tasks:
            task.steps.close()
        self._tasks.clear()
        self._transfers.clear()
        self._began.clear()
        self._anyone.clear()
        for link in self.links.values():
            link.give_up()
            if not isinstance(error, ClosedError):
                link.outgoing.clear()
        self._finished += [(work, error) for work in works]

    def _fail(self, error: BaseException, blamed: int | None = None) -> None:
        """Do as `_give_up`, and notify the other ranks."""
        if self.error is not None:
            return
        self._give_up(error)
        word = ControlWord.DEAD if isinstance(error, RankDeadError) else ControlWord.GAVE_UP
        if isinstance(error, RankDeadError | RankSilentError):
            blamed = error.rank
        for link in self._living():
            with contextlib.suppress(OSError):
                link.say(word, self.rank if blamed is None else blamed)

    def _lost(self, link: Link, status: WcStatus) -> None:
        """Handle a queue pair that is in ERR."""
        if link.dead:
            return
        link.dead = True
        if link.left and not link.awaited:
            return
        try:
            why = link.qp.query().why
        except VerbsError as error:
            self._fail(self._own(error))
            return
        reason = _WHY.get(why, why or verbs.status_text(status))
        self._fail(RankDeadError(link.rank, f"rank {link.rank} (host {link.host}) is dead: {reason}"))

    def _heard(self, link: Link, word: ControlWord, rank: int) -> None:
        if word is ControlWord.DEAD:
            text = f"rank {rank} (host {self._host(rank)}) is dead: rank {link.rank} says so"
            self._fail(RankDeadError(rank, text))
        elif word is ControlWord.GAVE_UP:
            text = f"rank {link.rank} (host {link.host}) has given up"
            if rank == link.rank:
                self._fail(CollectiveError(f"{text}; its own error says why"))
            else:
                self._fail(
                    RankSilentError(rank, f"{text} because of rank {rank} (host {self._host(rank)}), which is silent")
                )
        elif word is ControlWord.WHOM:
            link.say(ControlWord.WAITS, self._awaited())
        elif word is ControlWord.WAITS and self._inquiry is not None:
            self._inquiry.answered(link.rank, rank, time.monotonic())
        elif word is ControlWord.BYE:
            link.left = True

    def _host(self, rank: int) -> str:
        return self.links[rank].host if rank in self.links else self.host

    def _awaited(self) -> int:
        """Return the rank that this one waits for; its own number if it waits for none."""
        waiting = self._tasks[0].waiting if self._tasks else list(self._began)
        link = _awaited_link([each for each in waiting if not each.done])
        return self.rank if link is None else link.rank

    def _check_left(self) -> None:
        for link in self.links.values():
            if link.left and link.awaited and self.error is None:
                self._fail(CollectiveError(f"rank {link.rank} (host {link.host}) has left the group"))

    # -- the threads ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            try:
                done = self._cq.wait(TICK_S, _BATCH)
            except OSError as error:
                with self._lock:
                    self._stopped = True
                    self._fail(self._own(error))
                self._flush()
                return
            with self._lock, self._posting():
                try:
                    for completion in done:
                        self._completed(completion)
                    self._advance()
                    self._check_left()
                except OSError:
                    raise
                except Exception as error:  # noqa: BLE001 - the other ranks wait for this one
                    self._fail(error)
            self._flush()

    def _watch(self) -> None:
        """Check the timeouts, whatever the other thread does."""
        while not self._ending.wait(TICK_S):
            with self._lock:
                if self._stopped:
                    return
                with self._posting():
                    self._tick()
            self._flush()

    def _completed(self, completion: verbs.WorkCompletion) -> None:
        link = self._by_qp[completion.qp_num]
        if completion.status is not WcStatus.SUCCESS:
            self._lost(link, completion.status)
            return
        link.heard = time.monotonic()
        if completion.opcode is WcOpcode.RDMA_WRITE:
            link.written(completion.wr_id)
        elif not link.dead:
            try:
                self._heard(link, *link.heard_word(completion.imm_data, completion.byte_len))
            except (CollectiveError, ValueError) as error:
                self._fail(error)

    def _tick(self) -> None:
        """Ask whether the silent ones live, and end what takes too long."""
        if self.error is not None or not (self._tasks or self._transfers):
            return
        now = time.monotonic()
        since = min([self._tasks[0].began] if self._tasks else self._began.values())
        for link in self._living():
            if now - max(link.heard, since) > PING_AFTER_S:
                link.ping()
        if self._tasks and now - self._tasks[0].began > self.timeout:
            self._late(self._tasks[0].work, [each for each in self._tasks[0].waiting if not each.done])
            return
        transfer, began = next(iter(self._began.items()), (None, now))  # the oldest
        if transfer is not None and transfer.work is not None and now - began > self.timeout:
            self._late(transfer.work, [transfer])

    def _late(self, work: Work, waiting: list[LinkTransfer]) -> None:
        """Find the rank that blocks an operation; when it is found, the group ends."""
        now = time.monotonic()
        text = f"{work.name} has not ended within {self.timeout:g} s"
        link = _awaited_link(waiting)
        if link is None:
            self._fail(CollectiveError(f"{text}: no rank has sent anything"))
            return
        if self._inquiry is None or self._inquiry.work is not work:
            self._inquiry = PeerQuery(
                work, self.rank, link.rank, lambda rank: self.links[rank].say(ControlWord.WHOM), now
            )
        error = self._inquiry.verdict(text, self._host, now)
        if error is not None:
            self._fail(error)


def _awaited_link(waiting: Iterable[LinkTransfer]) -> Link | None:
    """Return the link to the rank that transfers wait for: a sender before a receiver that takes nothing."""
    links = [(isinstance(each, Receive), each.link) for each in waiting if each.link is not None]
    return max(links, key=lambda each: each[0])[1] if links else None


_OPEN: Final[weakref.WeakSet[Group]] = weakref.WeakSet()


def _close_all() -> None:
    """Wait until all sends have arrived, also for a program that ends without closing."""
    for group in list(_OPEN):
        with contextlib.suppress(Exception):
            group.close()
    CALLBACKS.drain(CLOSE_S)


atexit.register(_close_all)


def _forget_all() -> None:
    """Forget all groups in a forked child: rings, queue pairs and the thread that held the lock are the parent's."""
    for group in list(_OPEN):
        group.after_fork_in_child()
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget_all)

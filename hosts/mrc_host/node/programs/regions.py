"""Memory of one program: its protection domains, its regions, and what it shares with the agent."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mrc_host.access import Access
from mrc_host.node.programs.objects import ExchangedMemory, Region
from mrc_host.node.programs.shared import Memory, Resources, Wires
from mrc_host.node.stacks import Limits, RefusedError, wanted
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.transport import Pair
from mrc_host.verbs import layout, requests
from mrc_topo.base.rpc import Done, Verbs

P = TypeVar("P", bound=Pair)
Answer = tuple[object, list[int]]


def _check_access(access: Access) -> None:
    if access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC) and Access.LOCAL_WRITE not in access:
        raise RefusedError(errno.EINVAL, "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE, as in ibv_reg_mr")


class ProgramMemory(Generic[P]):
    """See the module's docstring.

    Attributes:
        used: bytes of memory that the agent has made for the program.
        regions: by L_Key, which is the R_Key.
        domains: protection domains, with the number of objects in each.
    """

    def __init__(self, wires: Wires, limits: Limits, resources: Resources, new_domain: Callable[[], int]) -> None:
        self.of: Any = wires.first
        self.limits = limits
        self.resources = resources
        self.used = 0
        self.regions: dict[int, Region] = {}
        self.domains: dict[int, int] = {}
        self._exchanged: dict[int, ExchangedMemory] = {}
        self._next = 1
        self._new_domain = new_domain

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the requests that concern memory."""
        verbs.add(requests.AllocPd, self._alloc_pd)
        verbs.add(requests.DeallocPd, self._dealloc_pd)
        verbs.add(requests.RegMr, self._reg_mr)
        verbs.add(requests.RegUserMr, self._reg_user_mr)
        verbs.add(requests.DeregMr, self._dereg_mr)

    def close(self) -> None:
        """Release all of it."""
        for region in self.regions.values():
            self.of.endpoint.deregister_memory(region.region)
            if region.memory is not None:
                region.memory.close()
        for exchanged in self._exchanged.values():
            exchanged.memory.close()
        if self.resources.process is not None:
            self.resources.process.close()
        self.regions.clear()
        self.domains.clear()
        self._exchanged.clear()

    # -- memory that the agent makes ----------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        """Return memory that counts for the program.

        Raises:
            RefusedError: there is none, or it is more than the program may have.
        """
        if self.used + nbytes > self.limits.memory:
            raise RefusedError(
                errno.ENOMEM,
                f"{nbytes} bytes of memory, and {self.used} are in use; this host allows {self.limits.memory} to a "
                "program (`agents.verbs.memory`)",
            )
        try:
            memory = self.resources.memory(nbytes)
        except OSError as error:
            raise RefusedError(error.errno or errno.ENOMEM, f"{nbytes} bytes of memory: {error.strerror}") from error
        self.used += nbytes
        return memory

    def free(self, memory: Memory) -> None:
        """Let go of memory of `allocate`."""
        self.used -= len(memory.buffer)
        memory.close()

    # -- protection domains -------------------------------------------------------------------------------------

    def domain(self, number: int) -> int:
        """Return the number of a protection domain. Raises RefusedError for one that the program does not have."""
        if number not in self.domains:
            raise RefusedError(errno.EINVAL, f"no protection domain {number} of this program")
        return number

    def _alloc_pd(self, request: requests.AllocPd, now: int) -> Answer:
        wanted("protection domains", len(self.domains) + 1, self.limits.regions, "regions")
        number = self._new_domain()
        self.domains[number] = 0
        return requests.DomainNumber(number), []

    def _dealloc_pd(self, request: requests.DeallocPd, now: int) -> Answer:
        number = self.domain(request.pd)
        if self.domains[number]:
            raise RefusedError(
                errno.EBUSY, f"{self.domains[number]} objects are in the protection domain; they go first"
            )
        del self.domains[number]
        return Done(), []

    # -- regions ------------------------------------------------------------------------------------------------

    def _region(self, key: int) -> Region:
        region = self.regions.get(key)
        if region is None:
            raise RefusedError(errno.EINVAL, f"no memory region with the key {key:#010x} of this program")
        if region.uses:
            raise RefusedError(errno.EBUSY, f"{region.uses} work requests under way read from the memory region")
        return region

    def _reg_mr(self, request: requests.RegMr, now: int) -> Answer:
        domain = self.domain(request.pd)
        access = request.access
        _check_access(access)
        wanted("memory regions", len(self.regions) + 1, self.limits.regions, "regions")
        memory = self.allocate(request.length)
        made = self.of.register(memory.buffer, domain, int(access))
        self.regions[made.rkey] = Region(made, memory, domain, access)
        self.domains[domain] += 1
        return requests.RegionKey(made.rkey, made.va), [memory.fd]

    def _reg_user_mr(self, request: requests.RegUserMr, now: int) -> Answer:
        domain = self.domain(request.pd)
        _check_access(request.access)
        process = self.resources.process
        if process is None:
            raise RefusedError(
                errno.EOPNOTSUPP,
                "memory of a program is reached by its /proc/self/mem, whose file descriptor goes beside `hello`",
            )
        if request.key is None:
            wanted("memory regions", len(self.regions) + 1, self.limits.regions, "regions")
        else:
            self._region(request.key)
        exchanged, files = self._exchange(request)
        va = request.address if request.iova is None else request.iova & layout.WORD
        try:
            made: MemoryRegion = self.of.register_process(
                process, request.address, request.length, va, domain, int(request.access), request.key
            )
        except ValueError:
            self._leave(exchanged)
            raise
        if request.key is not None:
            self._forget(self.regions[request.key])
        if exchanged is not None:
            exchanged.map(made)
        self.regions[made.rkey] = Region(made, None, domain, request.access, exchanged)
        self.domains[domain] += 1
        return requests.RegionKey(
            made.rkey, request.address, exchanged.number if exchanged is not None else None
        ), files

    def _exchange(self, request: requests.RegUserMr) -> tuple[ExchangedMemory | None, list[int]]:
        """Return the memory that takes the place of pages of the program, and its file where the program must map it.

        There is none where the program offers no pages, or the agent can make no memory of their size.
        """
        if request.memory is not None:
            known = self._exchanged.get(request.memory)
            if known is None:
                raise RefusedError(errno.EINVAL, f"no exchanged memory {request.memory} of this program")
            known.regions += 1
            return known, []
        if request.pages is None:
            return None, []
        first, end = request.pages
        if not request.address <= first < end <= request.address + request.length:
            raise RefusedError(errno.EINVAL, f"the pages from {first:#x} to {end:#x} do not lie in the memory region")
        with contextlib.suppress(RefusedError):
            made = ExchangedMemory(self._next, self.allocate(end - first), first, 1)
            self._next += 1
            self._exchanged[made.number] = made
            return made, [made.memory.fd]
        return None, []

    def _dereg_mr(self, request: requests.DeregMr, now: int) -> Answer:
        region = self._region(request.key)
        del self.regions[request.key]
        self.of.endpoint.deregister_memory(region.region)
        self._forget(region)
        return Done(), []

    def _forget(self, region: Region) -> None:
        """Let go of what only this region had."""
        self.domains[region.domain] -= 1
        if region.memory is not None:
            self.free(region.memory)
        self._leave(region.exchanged)

    def _leave(self, exchanged: ExchangedMemory | None) -> None:
        if exchanged is not None:
            exchanged.regions -= 1
            if not exchanged.regions:
                del self._exchanged[exchanged.number]
                self.free(exchanged.memory)

"""Probes of EVs that a controller asks for, in batches (`mrc-protocol.md §10`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mrc_host import ctl_requests
from mrc_host.ctl_requests import ProbedEv
from mrc_host.proto.endpoint import Endpoint
from mrc_topo.base.rpc import Verbs

MAX_PROBES: Final = 4096


@dataclass
class _Batch:
    """EV probes under way."""

    results: list[ProbedEv] = field(default_factory=list)
    waiting: int = 0


class EvProbes:
    """See the module's docstring.

    Args:
        endpoint: sends them.
        ports: how many it has.
        await_probe: calls the second argument with (RTT in ns or None, port of the
            answer, time) when the EV probe of a token has ended.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ports: int,
        await_probe: Callable[[int, Callable[[int | None, int | None, int], None]], None],
    ) -> None:
        self.endpoint = endpoint
        self.ports = ports
        self.await_probe = await_probe
        self._batches: dict[int, _Batch] = {}
        self._next_batch = 1

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs that concern probes."""
        verbs.add(ctl_requests.ProbeEvs, self.probe)
        verbs.add(ctl_requests.GetProbedEvs, self.results)

    def probe(self, request: ctl_requests.ProbeEvs, now: int) -> ctl_requests.ProbeBatch:
        """Probe EVs towards an address. Ask for the answers by `batch`."""
        if len(request.evs) > MAX_PROBES:
            raise ValueError(f"{len(request.evs)} probes; at most {MAX_PROBES} in one batch")
        destination = ipaddress.IPv6Address(request.address).packed
        for each in request.evs:
            self._check_probe(each, destination)
        number = self._next_batch
        self._next_batch += 1
        batch = self._batches[number] = _Batch()
        for index, (ev, plane) in enumerate(request.evs):
            token = self.endpoint.probe_ev(destination, ev, plane, now, request.timeout_ns, request.dscp)
            batch.waiting += 1
            self.await_probe(token, self._answer(batch, ev, plane, index))
        return ctl_requests.ProbeBatch(number)

    def _check_probe(self, probe: ctl_requests.EvOnPlane, destination: bytes) -> None:
        """Raise ValueError for a probe that cannot be sent, before the first one leaves."""
        ev, plane = probe
        if not 0 <= plane < self.ports:
            raise ValueError(f"no plane {plane}; this host has {self.ports}, numbered from 0")
        resolver = self.endpoint.config.ev.resolver
        if resolver is not None:
            try:
                resolver(ev, destination)
            except KeyError:
                where = ipaddress.IPv6Address(destination)
                raise ValueError(f"EV {ev:08x} has no path to {where}") from None

    @staticmethod
    def _answer(batch: _Batch, ev: int, plane: int, request: int) -> Callable[[int | None, int | None, int], None]:
        def take(rtt_ns: int | None, port: int | None, now: int) -> None:
            batch.waiting -= 1
            batch.results.append(ProbedEv(ev, plane, rtt_ns, port, request))

        return take

    def results(self, request: ctl_requests.GetProbedEvs, now: int) -> ctl_requests.ProbedEvs:
        """Return the answers so far; `rtt_ns` null: none in time. A complete batch is forgotten when asked for."""
        if request.batch not in self._batches:
            raise ValueError(f"no batch {request.batch}")
        found = self._batches[request.batch]
        if not found.waiting:
            del self._batches[request.batch]
        return ctl_requests.ProbedEvs(found.waiting, found.results)

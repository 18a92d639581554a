"""The node controller of a host, after the verbs of `mrc_ctl.h` (`mrc-protocol.md §10`): EVs of queue pairs and the
device here, profiles, probes and changes of EVs in parts of their own.

The verbs are reached over the agent's unix socket (mode 0600).
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping

from mrc_host import ctl_requests
from mrc_host.ctl_requests import ProfileKind
from mrc_host.node.ev_events import EvEvents
from mrc_host.node.ev_probes import MAX_PROBES, EvProbes
from mrc_host.node.jobs import Job
from mrc_host.node.own_evs import HostEvs
from mrc_host.node.profiles import DEFAULT, LIMITED, MAX_EVS, MAX_PROFILES, ControlledProfiles, ControlledQp
from mrc_host.node.quota import RefusedError
from mrc_host.proto.config import EvFormat, EvMode
from mrc_host.proto.congestion.base import algorithms
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvState
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.statistics import CcStatistics, NsccStatistics
from mrc_host.proto.transport import Pair
from mrc_topo.base.rpc import Done, Verbs


class NodeController:
    """The verbs of one host. Errors are RefusedError, ValueError and KeyError; the node turns them into answers.

    Args:
        endpoint: whose EVs and profiles these are.
        ports: how many it has.
        own_evs: the host's EVs towards each peer.
        jobs: those of the node, by name, as they come and go.
        await_probe: calls the second argument with (RTT in ns or None, port of the
            answer, time) when the EV probe of a token has ended.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ports: int,
        own_evs: HostEvs,
        jobs: Mapping[str, Job[Pair]],
        await_probe: Callable[[int, Callable[[int | None, int | None, int], None]], None],
    ) -> None:
        self.endpoint = endpoint
        self.ports = ports
        self.own_evs = own_evs
        self.jobs = jobs
        #: Queue pairs that are not of jobs.
        self.holders: list[Callable[[], Iterable[ControlledQp]]] = []
        self.profiles = ControlledProfiles(endpoint, ports, self._all, self.ev_replace)
        self.probes = EvProbes(endpoint, ports, await_probe)
        self.events = EvEvents(self.profiles)

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs of this part of a host."""
        for part in (self.profiles, self.probes, self.events):
            part.add_verbs(verbs)
        verbs.add(ctl_requests.QueryEvs, self.ev_query)
        verbs.add(ctl_requests.GetPair, self.pair)
        verbs.add(ctl_requests.SetEvs, self.ev_set)
        verbs.add(ctl_requests.SetDenials, self.ev_denials)
        verbs.add(ctl_requests.ReplaceEv, self.ev_replace)
        verbs.add(ctl_requests.GetDevice, self.device)

    def _all(self) -> Iterator[ControlledQp]:
        """Yield every queue pair, of jobs and of others."""
        for job in self.jobs.values():
            for rank, qps in job.qps.items():
                for qp in qps:
                    if isinstance(qp, QueuePair):
                        yield ControlledQp(job.names[rank], qp, job.ev_profile, job.cc_profile)
        for others in self.holders:
            yield from others()

    # -- EVs ----------------------------------------------------------------------------------------------

    def _qps(self, peer: str | None) -> list[tuple[str, QueuePair]]:
        found = [(each.peer, each.qp) for each in self._all() if peer in (None, each.peer)]
        if peer is not None and not found:
            raise ValueError(f"no queue pair to '{peer}'")
        return found

    def ev_query(self, request: ctl_requests.QueryEvs, now: int) -> ctl_requests.EvList:
        """Return the EVs of every QP (to a peer), each with plane, state, whether it is active, and its losses."""
        return ctl_requests.EvList(
            [ctl_requests.QpEvs(name, qp.number, self.endpoint.query_evs(qp)) for name, qp in self._qps(request.peer)],
            {
                str(ipaddress.IPv6Address(address)) if address else "": sorted(values)
                for address, values in self.endpoint.context.denied.items()
            },
        )

    def denied(self) -> int:
        """Return how many EVs the host keeps denied, over all peers."""
        return sum(len(values) for values in self.endpoint.context.denied.values())

    def pair(self, request: ctl_requests.GetPair, now: int) -> ctl_requests.PairDocument:
        """Return everything about the queue pairs to a peer, and the congestion control that they share."""
        rows = []
        congestion: CcStatistics | NsccStatistics | Done = Done()
        for each in self._all():
            if each.peer != request.peer:
                continue
            qp, found = each.qp, each.qp.snapshot()
            flying = qp.requestor.board.last_on_ev
            sender = found.requestor
            rows.append(
                ctl_requests.PairRow(
                    qpn=qp.number,
                    state=found.state,
                    packets=sender["packets_sent"],
                    retransmissions=sender["retransmissions"],
                    losses=sum(sender[key] for key in sender if key.startswith("lost_")),
                    srtt_ns=found.srtt_ns,
                    evs=[
                        ctl_requests.PairEvRow(**vars(row), sent_ns=flying[ev].sent_ns if ev in flying else -1)
                        for ev, row in enumerate(self.endpoint.query_evs(qp))
                    ],
                )
            )
            if qp.connected and isinstance(congestion, Done):
                congestion = qp.peer.snapshots()[0].cc
        return ctl_requests.PairDocument(rows, congestion)

    def ev_set(self, request: ctl_requests.SetEvs, now: int) -> ctl_requests.Changed:
        """Set EVs to DENIED (out of use) or to GOOD (in use again) on every QP that has them, or only on those to a
        peer.

        Without a peer this also holds for later QPs.
        """
        evs, state, peer = request.evs, request.state, request.peer
        if state not in (EvState.DENIED, EvState.GOOD):
            raise ValueError(f"state is DENIED or GOOD, not '{state.name}'; the others are the endpoint's own")
        if peer is None:
            return ctl_requests.Changed(self.endpoint.deny_evs(evs, state is EvState.DENIED, now))
        changed = 0
        qps = [(qp, {each.ev for each in self.endpoint.query_evs(qp)}) for _, qp in self._qps(peer)]
        for ev in evs:
            holders = [qp for qp, known in qps if ev in known]
            if not holders:
                raise RefusedError(errno.ENOENT, f"no queue pair to '{peer}' has EV {ev:08x}")
            for qp in holders:
                self.endpoint.set_ev_state(qp, ev, state, now)
            changed += len(holders)
        return ctl_requests.Changed(changed)

    def ev_denials(self, request: ctl_requests.SetDenials, now: int) -> ctl_requests.Changed:
        """Make the EVs that are denied towards each peer exactly these, whichever controller denied others before."""
        denied = {ipaddress.IPv6Address(peer).packed: evs for peer, evs in request.denied.items()}
        return ctl_requests.Changed(self.endpoint.set_denials(denied, now))

    def ev_replace(self, request: ctl_requests.ReplaceEv, now: int) -> ctl_requests.Replaced:
        """Put another EV of the same plane in the place of one, now and for later queue pairs.

        That is for the queue pairs to a peer, for an EV profile (EXPLICIT, OFFLINE or ONLINE) and those that use it, or
        for all copies of the EV. `changed` counts queue pairs, `profiles` the profiles and own EVs towards peers.

        Raises:
            RefusedError: ENOENT, nothing has the EV.
        """
        old, new, peer, profile = request.old, request.new, request.peer, request.profile
        if profile is not None:
            self.profiles.find(ProfileKind.EV, profile)
        changed = 0
        addresses: set[str] = set()
        for each in self._all():
            if peer not in (None, each.peer) or profile not in (None, each.ev):
                continue
            if each.qp.connected:
                addresses.add(str(ipaddress.IPv6Address(each.qp.peer.address)))
            if any(row.ev == old for row in self.endpoint.query_evs(each.qp)):
                self.endpoint.replace_ev(each.qp, old, new, now)
                changed += 1
        kept = 0
        if peer is None:
            kept += self.profiles.replace_values(old, new, profile)
        if profile in (None, DEFAULT):
            for address in [None] if peer is None else {peer, *addresses}:
                kept += self.own_evs.replace(old, new, address)
        if not changed and not kept:
            where = f"no queue pair to '{peer}'" if peer is not None else "no queue pair and no EV profile"
            if profile is not None:
                where = f"neither EV profile '{profile}' nor a queue pair that uses it"
            raise RefusedError(errno.ENOENT, f"{where} has EV {old:08x}")
        return ctl_requests.Replaced(changed, kept)

    # -- the device -----------------------------------------------------------------------------------------

    def device(self, request: ctl_requests.GetDevice, now: int) -> ctl_requests.DeviceDocument:
        """Return what a controller can expect (`mrc_ctl_device_attr`), and which ports are up."""
        ports = [ctl_requests.PortState(each.carrier, each.enabled, each.up) for each in self.endpoint.port_states()]
        return ctl_requests.DeviceDocument(
            mrc_ctl_protocol_version=1,
            ev_formats=[each.name for each in EvFormat],
            ev_modes=[each.name for each in EvMode],
            ev_max_count_profile=MAX_EVS,
            algorithms=sorted(algorithms()),
            phy_port_mask=(1 << self.ports) - 1 << 1,
            max_probes=MAX_PROBES,
            modify_online={kind: sorted(names) for kind, names in LIMITED.items()},
            ports=ports,
            max_profiles=MAX_PROFILES,
            free_evs=MAX_PROFILES * MAX_EVS - self.profiles.evs(),
        )

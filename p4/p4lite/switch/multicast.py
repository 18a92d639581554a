"""Multicast as BMv2's command line has it: nodes, which are put into groups."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from p4lite.switch.errors import InvalidArgument
from p4lite.switch.fabric.values import CloneSession, Replica

#: BMv2's hash of a packet over the ports of a LAG.
LAG_HASH = 0xFF


class Groups(Protocol):
    """The multicast groups of a switch."""

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None: ...
    def delete_multicast_group(self, group: int) -> None: ...


class Replication(Groups, Protocol):
    """The multicast groups and mirror sessions of a switch."""

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]: ...
    def set_clone_session(self, session: int, config: CloneSession) -> None: ...
    def delete_clone_session(self, session: int) -> None: ...
    def clone_sessions(self) -> dict[int, CloneSession]: ...


class Nodes:
    """The nodes, groups and LAGs that were created; groups of the switch follow them."""

    def __init__(self, replication: Groups) -> None:
        self._replication = replication
        self._nodes: dict[int, tuple[int, list[int], list[int]]] = {}
        self._groups: dict[int, list[int]] = {}
        self._lags: dict[int, list[int]] = {}

    def _node(self, handle: int) -> tuple[int, list[int], list[int]]:
        if handle not in self._nodes:
            raise InvalidArgument(f"there is no multicast node {handle}: mc_node_create")
        return self._nodes[handle]

    def _group(self, group: int) -> list[int]:
        if group not in self._groups:
            raise InvalidArgument(f"there is no multicast group {group}: mc_mgrp_create {group}")
        return self._groups[group]

    def _write(self, group: int) -> None:
        nodes = [self._nodes[handle] for handle in self._groups[group]]
        replicas = [
            Replica(port, rid)
            for rid, ports, lags in nodes
            for port in [*sorted(set(ports)), *(self._member(lag) for lag in sorted(set(lags)) if self._lags.get(lag))]
        ]
        self._replication.set_multicast_group(group, replicas)

    def _member(self, lag: int) -> int:
        """Return the port of a LAG that BMv2 sends to: always the same, for it has no hash of the packet."""
        ports = self._lags[lag]
        return ports[LAG_HASH % len(ports)]

    def set_lag(self, lag: int, ports: list[int]) -> None:
        """Give a LAG these ports."""
        self._lags[lag] = sorted(set(ports))
        for group in self._groups:
            self._write(group)

    def create_group(self, group: int) -> None:
        """Create an empty group."""
        if group in self._groups:
            raise InvalidArgument(f"there is a multicast group {group}")
        self._replication.set_multicast_group(group, [])
        self._groups[group] = []

    def delete_group(self, group: int) -> None:
        """Delete a group; its nodes stay."""
        self._group(group)
        del self._groups[group]
        self._replication.delete_multicast_group(group)

    def create(self, rid: int, ports: list[int], lags: list[int]) -> int:
        """Create a node and return its handle: the lowest that is free, as BMv2 gives it."""
        handle = next(number for number in itertools.count() if number not in self._nodes)
        self._nodes[handle] = (rid, ports, lags)
        return handle

    def update(self, handle: int, ports: list[int], lags: list[int]) -> None:
        """Give a node other ports and LAGs."""
        self._nodes[handle] = (self._node(handle)[0], ports, lags)
        for group in self._groups_of(handle):
            self._write(group)

    def _groups_of(self, handle: int) -> list[int]:
        return [group for group, handles in self._groups.items() if handle in handles]

    def delete(self, handle: int) -> None:
        """Delete a node, also from its groups."""
        self._node(handle)
        for group in self._groups_of(handle):
            self.dissociate(group, handle)
        del self._nodes[handle]

    def associate(self, group: int, handle: int) -> None:
        """Add a node to a group."""
        self._node(handle)
        self._group(group).append(handle)
        self._write(group)

    def dissociate(self, group: int, handle: int) -> None:
        """Take a node out of a group."""
        if handle not in self._group(group):
            raise InvalidArgument(f"node {handle} is not in multicast group {group}")
        self._groups[group].remove(handle)
        self._write(group)

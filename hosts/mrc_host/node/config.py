"""A host's configuration as the controller writes it: one JSON document, checked when it is read."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from mrc_host.node.mapper import ProbeTarget
from mrc_host.node.stacks import Limits
from mrc_host.policy import load_all
from mrc_host.proto.config import (
    NO_IPV4,
    EndpointConfig,
    EvConfig,
    EvField,
    EvFormat,
    EvMode,
    PortsConfig,
    ReliabilityConfig,
    Srv6Path,
    WireConfig,
)
from mrc_host.proto.congestion.base import CcConfig, algorithms
from mrc_host.proto.congestion.dcqcn import profile
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.roce.endpoint import RoceConfig

TRANSPORTS = ("mrc", "roce")
#: Outer IPv6 and SRH, IPv6, UDP, BTH, extension headers, ICRC: 152 bytes at most, rounded up.
HEADERS_BYTES = 160
MAX_MODERATION_NS = 100_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class NodeConfig:
    """One host. `interfaces`, `macs` and `gateways` matter on the real clock only; lists are in the order of ports.

    `profiles[destination]` lists the EVs towards a peer by plane (EXPLICIT); `generated` the fields of GENERATED ones.
    `paths[destination][EV >> 16]` is an SRv6 path: outer source and destination address, then the segments after it.
    Both may be mappings that compute what they are asked for; what is written down, in a `dict`, is checked as a whole.
    `probes` lists what the Clustermapper probes.
    `netns`: path of the network namespace that has the interfaces; empty: the agent's own.
    `moderation_ns`: on the real clock the agent looks at its rings no more often than once in this time.
    `policies`: classes that take the place of ours, as `FILE.py:Class` by kind (`mrc_host.policy`); MRC's only.
    `verbs`: what programs on the host may have (`programs.limits.Limits`).
    `settings` has the sections of the endpoint's configuration: wire, reliability, ev, cc, ports.
    """

    name: str
    address: str
    ports: int
    rate_bps: list[int]
    transport: str = "mrc"
    seed: int = 1
    sample_ns: int = 50_000_000
    interfaces: list[str] = field(default_factory=list)
    macs: list[str] = field(default_factory=list)
    gateways: list[str] = field(default_factory=list)
    profiles: Mapping[str, list[list[int]]] = field(default_factory=dict)
    generated: list[dict[str, Any]] = field(default_factory=list)
    paths: Mapping[str, dict[str, list[str]]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    probes: list[ProbeTarget] = field(default_factory=list)
    probe_interval_ns: int = 100_000_000
    probe_timeout_ns: int = 200_000_000
    moderation_ns: int = 0
    netns: str = ""
    policies: dict[str, str] = field(default_factory=dict)
    verbs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise ConfigError(f"transport is '{self.transport}'; known: {', '.join(TRANSPORTS)}")
        if self.policies and self.transport != "mrc":
            raise ConfigError(f"policies are of MRC; the transport is {self.transport}")
        if len(self.rate_bps) != self.ports:
            raise ConfigError(f"rate_bps has {len(self.rate_bps)} entries for {self.ports} ports")
        if not 0 <= self.moderation_ns <= MAX_MODERATION_NS:
            raise ConfigError(f"moderation_ns is {self.moderation_ns}; 0 to {MAX_MODERATION_NS}")
        for name in ("interfaces", "macs", "gateways"):
            if len(getattr(self, name)) not in (0, self.ports):
                raise ConfigError(f"{name} has {len(getattr(self, name))} entries for {self.ports} ports")

    @property
    def address_bytes(self) -> bytes:
        """The 16 bytes of the address."""
        return ipaddress.IPv6Address(self.address).packed

    def endpoint(self) -> EndpointConfig:
        """Return the MRC endpoint's configuration.

        Raises:
            ConfigError: an unknown section or key, or a value out of range.
        """
        sections = {"wire": WireConfig, "reliability": ReliabilityConfig, "ev": EvConfig, "ports": PortsConfig}
        known = [*sections, "cc", "roce"]
        unknown = set(self.settings) - set(known)
        if unknown:
            raise ConfigError(f"settings has no section '{min(unknown)}'; known: {', '.join(known)}")
        built: dict[str, Any] = {"cc": build_cc(self.settings.get("cc", {}))}
        for name, kind in sections.items():
            values = dict(self.settings.get(name, {}))
            if name == "ports":
                values["count"] = self.ports
            if name == "ev":
                if self.paths:
                    values["resolver"] = Resolver(self.paths)
                if self.generated:
                    values["fields"] = self.generated
                if self.profiles:
                    values["values"] = next(iter(self.profiles.values()))
            built[name] = build(kind, values, name)
        return EndpointConfig(address=self.address_bytes, policies=load_all(self.policies), **built)

    @property
    def packet_bytes(self) -> int:
        """The largest packet: path MTU and every header that may stand before it."""
        return int(build(WireConfig, self.settings.get("wire", {}), "wire").mtu) + HEADERS_BYTES

    @property
    def path_mtu(self) -> int:
        """Payload bytes of a full packet."""
        return int(build(WireConfig, self.settings.get("wire", {}), "wire").mtu)

    def programs(self) -> Limits:
        """Return what programs on the host may have.

        Raises:
            ConfigError: as `endpoint`.
        """
        return build(Limits, self.verbs, "verbs")

    def roce(self) -> RoceConfig:
        """Return the RoCE baseline's configuration, from the same sections.

        Raises:
            ConfigError: as `endpoint`.
        """
        mrc = self.endpoint()
        values = dict(self.settings.get("roce", {}))
        rate = mrc.cc.line_rate_bps // mrc.ports.count
        repair, credits = values.pop("repair", "go_back_n"), bool(values.pop("credits", False))
        try:
            dcqcn = profile(str(values.pop("dcqcn", "paper")), rate, bool(values.pop("congestion_control", True)))
        except ValueError as error:
            raise ConfigError(f"roce: {error}") from error
        if values:
            raise ConfigError(f"roce has no '{min(values)}'; known: congestion_control, credits, dcqcn, repair")
        return RoceConfig(
            dcqcn=dcqcn,
            selective_repeat=repair == "selective_repeat",
            reorders=repair == "reorder",
            credits=credits,
            address=mrc.address,
            wire=mrc.wire,
            ports=mrc.ports,
            line_rate_bps=mrc.cc.line_rate_bps,
            timeout=mrc.reliability.timeout,
        )


class Resolver:
    """Looks up the SRv6 path of (upper half of the EV, destination) in the table that the controller computed."""

    def __init__(self, paths: Mapping[str, Mapping[str, list[str]]]) -> None:
        self._given = paths
        self._paths: dict[tuple[int, bytes], Srv6Path] = {}
        for destination in paths if isinstance(paths, dict) else ():
            self._take(ipaddress.IPv6Address(destination).packed, paths[destination])

    def _take(self, destination: bytes, by_hop: Mapping[str, list[str]]) -> None:
        for hop, addresses in by_hop.items():
            source, first, *segments = (ipaddress.IPv6Address(text).packed for text in addresses)
            self._paths[int(hop), destination] = Srv6Path(first, tuple(segments), source)

    def __call__(self, ev: int, destination: bytes) -> Srv6Path:
        found = self._paths.get((ev >> 16, destination))
        if found is None:
            self._take(destination, self._given[str(ipaddress.IPv6Address(destination))])
            found = self._paths[ev >> 16, destination]
        return found


def build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return a configuration dataclass from JSON values; enumerations by name, EV fields from lists.

    Raises:
        ConfigError: an unknown key or a value that does not fit.
    """
    known = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    enums: dict[str, type[Enum]] = {"mode": EvMode, "fmt": EvFormat}
    ready: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{where} has no '{key}'; known: {', '.join(sorted(known))}")
        if key in enums and isinstance(value, str):
            try:
                value = enums[key][value.upper()]
            except KeyError:
                names = ", ".join(each.name.lower() for each in enums[key])
                raise ConfigError(f"{where}.{key} is '{value}'; known: {names}") from None
        elif key == "fields":
            value = [build(EvField, each, f"{where}.fields") for each in value]
        ready[key] = value
    try:
        return kind(**ready)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def build_cc(values: Mapping[str, Any]) -> CcConfig:
    """Return a congestion control profile from JSON values. Parameters of other algorithms than its own are checked
    and left.

    Raises:
        ConfigError: as `build`, and an algorithm that does not exist.
    """
    known = algorithms()
    values = dict(values)
    algorithm = str(values.pop("algorithm", NsccConfig.algorithm)).lower()
    if algorithm not in known:
        raise ConfigError(f"cc.algorithm is '{algorithm}'; known: {', '.join(sorted(known))}")
    parameters = {name: {each.name for each in dataclasses.fields(kind)} for name, kind in known.items()}
    for key in values:
        if not any(key in names for names in parameters.values()):
            every = sorted(set().union(*parameters.values()))
            raise ConfigError(f"cc has no '{key}'; known: algorithm, {', '.join(every)}")
    made = {
        name: build(kind, {key: value for key, value in values.items() if key in parameters[name]}, "cc")
        for name, kind in known.items()
    }
    return made[algorithm]


def load(document: Mapping[str, Any]) -> NodeConfig:
    """Return a host's configuration from its JSON document.

    Raises:
        ConfigError: an unknown or missing key, or a value out of range.
    """
    probes = [build(ProbeTarget, each, "probes") for each in document.get("probes", ())]
    config = build(NodeConfig, {**document, "probes": probes}, "host configuration")
    peers = config.profiles if isinstance(config.profiles, dict) else ()
    for where, address in (("address", config.address), *(("profiles", key) for key in peers)):
        try:
            if ipaddress.ip_address(address).version == 4:
                raise ConfigError(f"{where}: {address} is an address of IPv4; {NO_IPV4}")
        except ValueError as error:
            raise error if isinstance(error, ConfigError) else ConfigError(f"{where}: {error}") from error
    return config

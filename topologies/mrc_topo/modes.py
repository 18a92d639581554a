"""Routing modes: all that depends on who chooses a packet's uplink, an entry each (`mrc-protocol.md §9`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from mrc_topo.base.document import Model
from mrc_topo.units import parse_time_ns

#: The position of a T0's hop field in the flow label.
HOP_SHIFT: Final = 0
HOP_MASK: Final = 0xFFF
#: The number of uplinks that `fabric.p4` compares where it routes adaptively.
MAX_ADAPTIVE: Final = 16


class RoutingMode(Enum):
    """The mode that decides which element chooses a packet's uplink, and how (`mrc-protocol.md §9`)."""

    SRV6_USID = "srv6_usid"
    SRV6_SRH = "srv6_srh"
    STRUCTURED_EV = "structured_ev"
    ECMP = "ecmp"
    SPRAY = "spray"


class SprayKind(Enum):
    """How a spraying T0 picks the uplink of each packet."""

    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    SHORTEST_OF_TWO = "shortest_of_two"


class AdaptiveSpec(Model):
    """Adaptive routing: a T0 sends packets that it would otherwise hash to the uplink with the fewest waiting bytes.
    Without `flowlet` every packet is rerouted; with it, only flows that were silent for this time, while other flows
    keep their uplink."""

    flowlet: Annotated[int, BeforeValidator(parse_time_ns), Field(ge=0, le=10**10)] = 0


class RoutingSpec(Model):
    """The routing of a lab. `spray` applies to mode spray only, `adaptive` where T0s hash (RoCE, in the modes other
    than structured_ev)."""

    mode: RoutingMode = RoutingMode.SRV6_USID
    spray: SprayKind = SprayKind.RANDOM
    adaptive: AdaptiveSpec | None = None

    @model_validator(mode="after")
    def _hashes(self) -> Self:
        if self.adaptive is not None and self.mode in (RoutingMode.SPRAY, RoutingMode.STRUCTURED_EV):
            raise ValueError(
                f"adaptive takes the place of a hash, and mode {self.mode.value} has none; use srv6_usid, srv6_srh "
                "or ecmp"
            )
        return self


class UplinkChooser(Enum):
    """The part of a packet, or the device, that decides which T1 the packet takes."""

    EV = "the EV names it"
    HASH = "the source's T0 hashes the packet, and the EV with it"
    SWITCH = "the source's T0 sprays: the path cannot be predicted"


@dataclass(frozen=True, slots=True)
class Uplink:
    """A T0's choice of uplink: the action of `fabric.p4` and its parameters other than the ports."""

    action: str
    params: dict[str, int]


@dataclass(frozen=True, slots=True)
class Mode:
    """The properties of a routing mode.

    `encapsulation` is that of the hosts (`mrc_host.proto.wire.encap`), `carriers` how many SRv6 carriers steer a packet
    (0: it is plain IPv6), `uplink` returns the choice of a T0 with this device id.
    """

    chooser: UplinkChooser
    encapsulation: str
    carriers: int
    uplink: Callable[[RoutingSpec, int], Uplink]


def ecmp_salt(device_id: int) -> int:
    """Return a switch's own start value of the ECMP hash, so that switches choose independently."""
    return device_id * 0x9E3779B1 & 0xFFFFFFFF


_SPRAY = {
    SprayKind.RANDOM: "spray_random",
    SprayKind.ROUND_ROBIN: "spray_round_robin",
    SprayKind.SHORTEST_OF_TWO: "spray_shortest_of_two",
}


def _hash(routing: RoutingSpec, device_id: int) -> Uplink:
    """Return the ECMP or adaptive choice, which SRv6 labs also use for packets without SRv6 (RoCE, ping)."""
    if routing.adaptive is not None:
        return Uplink("adaptive", {"salt": ecmp_salt(device_id), "silence": routing.adaptive.flowlet // 1000})
    return Uplink("ecmp", {"salt": ecmp_salt(device_id)})


def _hop_field(routing: RoutingSpec, device_id: int) -> Uplink:
    return Uplink("structured_ev", {"hop_shift": HOP_SHIFT, "hop_mask": HOP_MASK})


def _spray(routing: RoutingSpec, device_id: int) -> Uplink:
    return Uplink(_SPRAY[routing.spray], {})


MODES: Final = {
    RoutingMode.SRV6_USID: Mode(UplinkChooser.EV, "srv6_usid128", 1, _hash),
    RoutingMode.SRV6_SRH: Mode(UplinkChooser.EV, "srv6_srh256", 2, _hash),
    RoutingMode.STRUCTURED_EV: Mode(UplinkChooser.EV, "stev32", 0, _hop_field),
    RoutingMode.ECMP: Mode(UplinkChooser.HASH, "stev32", 0, _hash),
    RoutingMode.SPRAY: Mode(UplinkChooser.SWITCH, "stev32", 0, _spray),
}

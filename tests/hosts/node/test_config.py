"""A host's configuration: what it refuses, and in which words."""

from __future__ import annotations

import random

import pytest

from mrc_host.node.config import load
from mrc_host.proto.config import EndpointConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.roce.endpoint import RoceConfig
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.codec import Codec
from mrc_host.proto.wire.fields import Ipv4

NO_IPV4 = "speaks IPv6 only: IPv4 is read and written by the codec alone"
V4 = bytes((10, 1, 2, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "10.1.2.3"}, f"address: 10.1.2.3 is an address of IPv4; .*{NO_IPV4}"),
        ({"profiles": {"10.1.2.4": [[1]]}}, f"profiles: 10.1.2.4 is an address of IPv4; .*{NO_IPV4}"),
        ({"address": "here"}, "address: 'here' does not appear to be an IPv4 or IPv6 address"),
        ({"transport": "tcp"}, "transport is 'tcp'; known: mrc, roce"),
    ],
)
def test_bad_host_configurations_are_named(changes: dict[str, object], message: str) -> None:
    document = {"name": "h", "address": "fd00::1", "ports": 1, "rate_bps": [10**9]}
    with pytest.raises(ConfigError, match=message):
        load(document | changes)


def test_endpoints_refuse_ipv4_by_name() -> None:
    for kind in (EndpointConfig, RoceConfig):
        with pytest.raises(ConfigError, match=f"address 10.1.2.3 is one of IPv4; .*{NO_IPV4}"):
            kind(address=V4)
        with pytest.raises(ConfigError, match="address has 5 bytes; an IPv6 address has 16"):
            kind(address=bytes(5))


def test_ipv4_packets_are_dropped_and_counted() -> None:
    endpoint = Endpoint(EndpointConfig(address=bytes(range(16))), random.Random(1))
    codec = Codec()
    addresses = V4 + bytes((10, 1, 2, 4))
    probe = codec.encode_endpoint_request(addresses, 0x1234, 46 << 2, 1, 1, 0, 0)
    assert isinstance(wire.decode(probe).ip, Ipv4)
    for number in range(3):
        endpoint.receive_datagram(0, probe, number)
    assert endpoint.datagrams_to_send(0, 10, 10_000) == []
    assert 3 in endpoint.statistics().drops.values()

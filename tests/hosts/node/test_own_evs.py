"""A host's own EVs: read of the peers that are asked for, and replaced for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mrc_host.node.own_evs import HostEvs
from mrc_host.proto.config import EvConfig


class Counted(Mapping[str, Sequence[Sequence[int]]]):
    """The EVs of a hundred peers, and how many of them have been read."""

    def __init__(self) -> None:
        self.read = 0

    def __getitem__(self, peer: str) -> Sequence[Sequence[int]]:
        if not peer.isdigit():
            raise KeyError(peer)
        self.read += 1
        return [[int(peer), 1000], [2000]]

    def __iter__(self) -> Iterator[str]:
        return map(str, range(100))

    def __len__(self) -> int:
        return 100


def test_only_the_peers_that_are_asked_for_are_read_and_each_once() -> None:
    values, default = Counted(), EvConfig()
    own = HostEvs(values)
    assert values.read == 0
    made = own.towards(default, "7")
    assert made.values == ((7, 1000), (2000,))
    assert own.towards(default, "7") is made
    assert own.towards(default, "nobody") is default
    assert values.read == 1


def test_an_ev_is_replaced_towards_one_peer_or_all() -> None:
    own, default = HostEvs(Counted()), EvConfig()
    assert own.replace(7, 70, "7") == 1
    assert own.replace(7, 71, "7") == 0  # it is no longer there
    assert own.towards(default, "7").values == ((70, 1000), (2000,))
    assert own.replace(2000, 3000, None) == 100
    assert own.towards(default, "7").values == ((70, 1000), (3000,))

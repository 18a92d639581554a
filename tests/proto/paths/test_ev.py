"""EV states of a queue pair: the table, every state x every input, rotation, floor; and the universes behind them."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mrc_host.proto.config import EvConfig, EvField, EvFormat, EvMode, Srv6Path
from mrc_host.proto.events import EvState
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.paths.ev import STATES, TRANSITIONS, EvInput, EvSet
from mrc_host.proto.paths.ev_profile import EvUniverse, expand, generate

GOOD, SKIP, BAD, DENIED = EvState.GOOD, EvState.SKIP, EvState.ASSUMED_BAD, EvState.DENIED

# The rows of mrc-protocol.md §7, written out a second time: what each input does to each state (None: nothing).
EXPECTED = {
    EvInput.SKIP_ONCE: {GOOD: SKIP},
    EvInput.TRIMMED: {GOOD: SKIP},
    EvInput.NOT_TO_BLAME: {},
    EvInput.TURN: {SKIP: GOOD},
    EvInput.ALWAYS_SKIP: {GOOD: BAD, SKIP: BAD},
    EvInput.LOSS: {GOOD: BAD, SKIP: BAD},
    EvInput.PROBE_TIMEOUT: {GOOD: BAD, SKIP: BAD},
    EvInput.REVIVED: {BAD: GOOD},
    EvInput.REVIVED_SKIP: {BAD: SKIP},
    EvInput.DENY: {GOOD: DENIED, SKIP: DENIED, BAD: DENIED},
    EvInput.ALLOW: {DENIED: GOOD, BAD: GOOD},
}


def make(count: int = 16, active: int = 8, planes: int = 2, **changes: object) -> EvSet:
    universe = EvUniverse(EvConfig(count=count, active=active, **changes), planes, random.Random(1))  # type: ignore[arg-type]
    return EvSet(universe, random.Random(2), lambda *change: None)


def into(evs: EvSet, ev: int, state: EvState) -> None:
    """Bring an EV into a state by inputs alone."""
    path = {GOOD: (), SKIP: (EvInput.SKIP_ONCE,), BAD: (EvInput.LOSS,), DENIED: (EvInput.DENY,)}[state]
    for item in path:
        evs.apply(ev, item)
    assert STATES[evs.state[ev]] is state


@pytest.mark.parametrize("item", list(EvInput))
@pytest.mark.parametrize("state", list(EvState))
def test_ev_takes_the_transition_of_the_table_for_every_input(state: EvState, item: EvInput) -> None:
    evs = make()
    ev = evs.order[0][3]
    into(evs, ev, state)
    changed = evs.apply(ev, item)
    expected = EXPECTED[item].get(state, state)
    assert STATES[evs.state[ev]] is expected
    assert changed == (expected is not state)
    assert TRANSITIONS.get((state, item), state) is expected


def test_active_set_is_balanced_and_random() -> None:
    evs = make(count=64, active=32, planes=4)
    assert [len(order) for order in evs.order] == [8] * 4
    assert [len(backup) for backup in evs.backup] == [8] * 4
    other = EvSet(evs.universe, random.Random(3), lambda *change: None)
    assert [list(order) for order in evs.order] != [list(order) for order in other.order]


def test_rotation_uses_every_active_ev_once_per_round() -> None:
    evs = make(rescan_rounds=10**6)
    first = [evs.choose(0) for _ in range(4)]
    assert set(first) == set(evs.order[0])
    assert [evs.choose(0) for _ in range(4)] == first


def test_scan_order_is_redrawn_after_rescan_rounds() -> None:
    evs = make(count=64, active=32, planes=1, rescan_rounds=2)
    rounds = [tuple(evs.choose(0) for _ in range(32)) for _ in range(8)]
    assert all(len(set(row)) == 32 for row in rounds)
    assert len(set(rounds)) >= 3


def test_skip_is_passed_over_once_and_one_packet_revives_one() -> None:
    evs = make(planes=1, count=8, active=4)
    a, b, c, d = (evs.choose(0) for _ in range(4))
    for ev in (a, b):
        evs.apply(ev, EvInput.SKIP_ONCE)
        evs.apply(ev, EvInput.SKIP_ONCE)  # signals while in SKIP change nothing
    assert evs.choose(0) == c  # a is revived, b only passed over
    assert STATES[evs.state[a]] is GOOD
    assert STATES[evs.state[b]] is SKIP
    assert evs.choose(0) == d
    assert evs.choose(0) == a
    assert evs.choose(0) == c  # now b is revived
    assert STATES[evs.state[b]] is GOOD


def test_all_skip_are_revived_one_by_one() -> None:
    evs = make(planes=1, count=8, active=4)
    for ev in evs.order[0]:
        evs.apply(ev, EvInput.SKIP_ONCE)
    chosen = [evs.choose(0) for _ in range(8)]
    assert -1 not in chosen
    assert evs.state.count(SKIP.value) == 0


def test_the_failed_ev_is_avoided() -> None:
    evs = make(planes=1, count=2, active=2)
    a, b = evs.order[0]
    assert [evs.choose(0, avoid=a) for _ in range(3)] == [b, b, b]
    single_packet_mode = make(planes=1, count=1, active=1)
    assert single_packet_mode.choose(0, avoid=single_packet_mode.order[0][0]) == -1


def test_a_backup_of_the_same_plane_takes_over_in_place() -> None:
    evs = make()
    ev = evs.order[1][2]
    backups = set(evs.backup[1])
    evs.apply(ev, EvInput.LOSS)
    assert evs.order[1][2] in backups
    assert len(evs.order[1]) == 4
    assert evs.universe.planes[evs.order[1][2]] == 1
    assert ev not in evs.backup[1]


def test_two_answers_in_a_row_revive_into_the_backup_set() -> None:
    evs = make()
    ev = evs.order[0][0]
    evs.apply(ev, EvInput.LOSS)
    assert not evs.probe_answered(ev, 0)
    evs.apply(ev, EvInput.PROBE_TIMEOUT)  # breaks the row
    assert not evs.probe_answered(ev, 0)
    assert evs.probe_answered(ev, 0)
    assert STATES[evs.state[ev]] is GOOD
    assert ev in evs.backup[0]


def test_marked_probe_answer_revives_into_skip_or_not_at_all() -> None:
    evs = make()
    ev = evs.order[0][0]
    evs.apply(ev, EvInput.LOSS)
    assert not evs.probe_answered(ev, 2)
    assert STATES[evs.state[ev]] is BAD
    assert evs.probe_answered(ev, 1)
    assert STATES[evs.state[ev]] is SKIP
    assert not evs.probe_answered(ev, 0)  # not ASSUMED_BAD any more: the answer says nothing new


def test_a_plane_short_of_evs_takes_a_revived_one_at_once() -> None:
    evs = make(count=8, active=8, planes=2, ev_min_active=1)
    ev = evs.order[0][0]
    evs.apply(ev, EvInput.LOSS)  # no backup in the plane: it shrinks
    assert len(evs.order[0]) == 3
    evs.apply(ev, EvInput.REVIVED)
    assert ev in evs.order[0]


def test_the_floor_keeps_the_least_bad_ones() -> None:
    evs = make(count=4, active=4, planes=1, ev_min_active=2)
    order = list(evs.order[0])
    for ev in order:
        evs.apply(ev, EvInput.LOSS)
    assert evs.active_count() == 2
    # The one that fails again and again gives way to one that failed less.
    worst = evs.order[0][0]
    for _ in range(3):
        evs.apply(worst, EvInput.LOSS)
    assert worst not in evs.order[0]
    assert evs.active_count() == 2
    # The first that comes back replaces one that is only kept by the floor.
    back = next(ev for ev in order if ev not in evs.order[0])
    evs.apply(back, EvInput.REVIVED)
    assert back in evs.order[0]
    assert evs.active_count() == 2


def test_planes_that_are_down_do_not_count_for_the_floor() -> None:
    evs = make(count=8, active=8, planes=2, ev_min_active=2)
    for ev in list(evs.order[0]):
        evs.apply(ev, EvInput.LOSS)
    assert evs.active_count() == 4
    assert len(evs.order[0]) == 0
    evs.set_usable(0b01)  # plane 1 went down: plane 0 must carry on with what it has
    assert evs.active_count() == 2


class EvMachine(RuleBasedStateMachine):
    """Any inputs in any order: states follow the table, sets stay consistent, sending never stops."""

    @initialize(planes=st.sampled_from((1, 2, 4)), active=st.sampled_from((4, 8, 16)), floor=st.sampled_from((1, 2, 4)))
    def start(self, planes: int, active: int, floor: int) -> None:
        universe = EvUniverse(EvConfig(count=16, active=active, ev_min_active=floor), planes, random.Random(7))
        self.changes: list[tuple[int, ...]] = []
        self.evs = EvSet(
            universe, random.Random(8), lambda ev, old, new, item, losses: self.changes.append((ev, old, new))
        )
        self.model = [GOOD] * 16
        self.planes = planes

    @rule(ev=st.integers(0, 15), item=st.sampled_from([i for i in EvInput if i is not EvInput.TURN]))
    def feed(self, ev: int, item: EvInput) -> None:
        self.changes.clear()
        old = self.model[ev]
        self.model[ev] = EXPECTED[item].get(old, old)
        assert self.evs.apply(ev, item) == (self.model[ev] is not old)
        assert self.changes == ([] if self.model[ev] is old else [(ev, old.value, self.model[ev].value)])

    @rule(plane=st.integers(0, 3), avoid=st.integers(-1, 15))
    def send(self, plane: int, avoid: int) -> None:
        plane %= self.planes
        self.changes.clear()
        ev = self.evs.choose(plane, avoid)
        order = self.evs.order[plane]
        if ev < 0:
            assert set(order) <= {avoid}
        else:
            assert ev in order
            assert ev != avoid
        assert len(self.changes) <= 1  # one packet revives at most one EV
        for revived, old, new in self.changes:
            assert (old, new) == (SKIP.value, GOOD.value)
            self.model[revived] = GOOD

    @rule(mask=st.integers(1, 15))
    def ports(self, mask: int) -> None:
        self.evs.set_usable(mask & (1 << self.planes) - 1 or 1)

    @invariant()
    def states_follow_the_table(self) -> None:
        assert [STATES[state] for state in self.evs.state] == self.model
        assert set(self.evs.streak) == {ev for ev, state in enumerate(self.model) if state is BAD}

    @invariant()
    def sets_are_consistent(self) -> None:
        members: Counter[int] = Counter()
        for plane in range(self.planes):
            for group in (self.evs.order[plane], self.evs.backup[plane]):
                assert all(self.evs.universe.planes[ev] == plane for ev in group)
                members.update(group)
            assert all(self.model[ev] in (GOOD, SKIP) for ev in self.evs.backup[plane])
        assert all(count == 1 for count in members.values())
        usable = {ev for ev, state in enumerate(self.model) if state in (GOOD, SKIP)}
        assert usable <= set(members)
        assert not {ev for ev, state in enumerate(self.model) if state is DENIED} & set(members)

    @invariant()
    def something_is_active_unless_all_is_denied(self) -> None:
        left = [
            ev
            for ev, state in enumerate(self.model)
            if state is not DENIED and self.evs.usable >> self.evs.universe.planes[ev] & 1
        ]
        if left:
            assert self.evs.active_count() >= min(1, len(left))


TestEvMachine = EvMachine.TestCase
TestEvMachine.settings = settings(max_examples=60, stateful_step_count=60)


# --- universes ---


@given(st.integers(1, 8), st.integers(8, 300), st.sampled_from((EvFormat.UDP16, EvFormat.STEV32)), st.integers(0, 99))
def test_auto_universe_is_distinct_and_balanced(planes: int, count: int, fmt: EvFormat, seed: int) -> None:
    universe = EvUniverse(EvConfig(count=count, fmt=fmt), planes, random.Random(seed))
    assert len(set(universe.values)) == len(universe.values) == count // planes * planes
    assert set(Counter(universe.planes).values()) == {count // planes}
    assert max(universe.values) < 1 << (16 if fmt is EvFormat.UDP16 else 32)
    assert all(universe.values[universe.index[value]] == value for value in universe.values)


def test_explicit_universe_has_the_given_evs_by_plane() -> None:
    universe = EvUniverse(EvConfig(mode=EvMode.EXPLICIT, values=((1, 2), (3, 4))), 2, random.Random(1))
    assert list(universe.values) == [1, 2, 3, 4]
    assert list(universe.planes) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("changes", "planes", "message"),
    [
        ({"mode": EvMode.EXPLICIT, "values": ((1,), (1,))}, 2, "EV 00000001 appears twice"),
        ({"mode": EvMode.EXPLICIT, "values": ((1,),)}, 2, "lists 1 planes; the endpoint has 2"),
        ({"mode": EvMode.EXPLICIT, "values": ((1 << 16,),), "fmt": EvFormat.UDP16}, 1, "does not fit UDP16"),
        ({"count": 3}, 4, "4 planes need at least one EV each"),
        ({"mode": EvMode.GENERATED, "fields": (EvField(32, mask=3),), "count": 8}, 1, "too narrow"),
    ],
)
def test_bad_profiles_are_named(changes: dict[str, object], planes: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvUniverse(EvConfig(**changes), planes, random.Random(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": EvMode.EXPLICIT}, "ev.values is empty"),
        ({"mode": EvMode.GENERATED}, "ev.fields is empty"),
        ({"fmt": EvFormat.SRV6_USID128}, "needs ev.resolver or GENERATED"),
        ({"probe_jitter": 1.5}, "ev.probe_jitter is 1.5"),
    ],
)
def test_bad_ev_configs_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvConfig(**changes)  # type: ignore[arg-type]


def test_generated_fields_take_ev_bits_msb_first() -> None:
    fields = (
        EvField(8, init=0b1010_0101, mask=0b0011_1000),  # three EV bits into the middle
        EvField(4, mask=0b1111, plane=True),
        EvField(4, mask=0b1010),
    )
    # EV 0b10110: 1, 0, 1 fill bits 5, 4, 3 of the first field; 1, 0 fill bits 3 and 1 of the last.
    assert expand(fields, 0b10110, 5, plane=6) == 0b1010_1101 << 8 | 6 << 4 | 0b1000


def test_bounds_are_those_of_the_generated_bits() -> None:
    """Expansion lays the EV's bits under the mask and no more; what is drawn keeps within the bounds."""
    field = EvField(16, init=0x00AA, minimum=1, maximum=15, mask=0xFF00)
    assert expand((field,), 5, 8, 0) == 0x05AA
    rng = random.Random(1)
    drawn = {generate((field,), 8, rng) for _ in range(1_000)}
    assert drawn == set(range(1, 16))
    config = EvConfig(mode=EvMode.GENERATED, fmt=EvFormat.UDP16, fields=(field,), count=12, ev_bits=8)
    values = EvUniverse(config, 1, random.Random(1)).values
    assert all(value & 0xFF == 0xAA and 1 <= value >> 8 <= 15 for value in values)


def test_field_without_bounds_takes_every_value_and_fixed_field_one() -> None:
    whole = EvField(4, mask=0b1111)  # min and max 0 with a mask: everything
    assert {generate((whole,), 4, random.Random(seed)) for seed in range(200)} == set(range(16))
    same = EvField(4, minimum=0, maximum=0, mask=0b1111)
    assert {generate((same,), 4, random.Random(seed)) for seed in range(200)} == set(range(16))
    upwards = EvField(4, minimum=12, mask=0b1111)
    assert {generate((upwards,), 4, random.Random(seed)) for seed in range(200)} == {12, 13, 14, 15}
    fixed = EvField(32, init=0xDEADCAFE, minimum=0, maximum=0)
    assert expand((fixed,), 0, 32, 0) == 0xDEADCAFE
    assert generate((fixed, EvField(8, mask=0x81)), 32, random.Random(2)) & (1 << 30) - 1 == 0


def test_a_format_places_its_fields_from_the_left() -> None:
    """A locator and four uSIDs of 4 bits: 96 bits, which an address has on its left."""
    fields = (EvField(32, init=0x42424242), *(EvField(4, minimum=1, maximum=15, mask=15) for _ in range(4)))
    config = EvConfig(
        mode=EvMode.GENERATED, fmt=EvFormat.SRV6_USID128, fields=fields, format_widths=(32, 16, 16, 16, 16), count=8
    )
    universe = EvUniverse(config, 2, random.Random(1))
    path = universe.path(0x9B79_0000, bytes(16))
    assert path is not None
    assert path.destination.hex() == "42424242" + "0009000b00070009" + "00000000"
    assert all(value & 0xFFFF == 0 for value in universe.values)
    narrow = EvConfig(mode=EvMode.GENERATED, fields=(EvField(8, mask=0xFF),), ev_bits=8, count=4)
    assert all(value & 0xFFFFFF == 0 for value in EvUniverse(narrow, 1, random.Random(1)).values)


def test_fields_and_a_resolver_make_evs_of_the_fields() -> None:
    fields = (EvField(4, mask=0xF, plane=True), EvField(12, maximum=2, mask=3), EvField(16, init=0xC000, mask=0xFF))
    config = EvConfig(
        mode=EvMode.GENERATED,
        fmt=EvFormat.SRV6_USID128,
        fields=fields,
        count=64,
        resolver=lambda ev, destination: Srv6Path(destination),
    )
    universe = EvUniverse(config, 4, random.Random(1))
    for value, plane in zip(universe.values, universe.planes, strict=True):
        assert (value >> 28, value >> 8 & 0xFF) == (plane, 0xC0)
        assert value >> 16 & 0xFFF <= 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": (EvField(16), EvField(17))}, "take 33 bits; STEV32 has 32"),
        ({"fields": (EvField(17),), "fmt": EvFormat.UDP16}, "take 17 bits; UDP16 has 16"),
        ({"fields": (EvField(16), EvField(8)), "format_widths": (16,)}, "lists 1 fields; ev.fields has 2"),
        ({"fields": (EvField(16),), "format_widths": (8, 8)}, r"ev.fields\[0\] is 16 bits wide; .* gives it 8"),
        ({"fields": (EvField(16, mask=0xFFFF),), "ev_bits": 8}, "take 16 EV bits; ev.ev_bits is 8"),
    ],
)
def test_bad_fields_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvConfig(mode=EvMode.GENERATED, **changes)  # type: ignore[arg-type]


def test_bounds_that_the_mask_cannot_hold_are_named() -> None:
    with pytest.raises(ConfigError, match="ev field maximum is 16; allowed: 0 to 15"):
        EvField(16, mask=0x0F0, maximum=16)
    with pytest.raises(ConfigError, match="ev field minimum is 4; allowed: 0 to 3"):
        EvField(16, mask=3, minimum=4)
    fields = (EvField(2, mask=3, plane=True), EvField(30, mask=0xFFF))
    with pytest.raises(ConfigError, match=r"ev.fields\[0\] has too few mask bits for the numbers of 5 planes"):
        EvUniverse(EvConfig(mode=EvMode.GENERATED, fields=fields), 5, random.Random(1))


def test_generated_stev_universe_carries_the_plane() -> None:
    config = EvConfig(
        mode=EvMode.GENERATED, fields=(EvField(16, mask=0xFFFF), EvField(8, mask=7, plane=True), EvField(8)), count=64
    )
    universe = EvUniverse(config, 4, random.Random(1))
    assert all(value >> 8 & 0xFF == plane for value, plane in zip(universe.values, universe.planes, strict=True))
    assert universe.path(universe.values[0], bytes(16)) is None


def test_generated_ev_fills_the_usid_address_and_segment() -> None:
    words = (EvField(48, init=0x5F0000000000), EvField(16, mask=0xFF), EvField(16, mask=0xF, plane=True), EvField(48))
    one = EvConfig(mode=EvMode.GENERATED, fmt=EvFormat.SRV6_USID128, fields=words, ev_bits=8, count=16)
    universe = EvUniverse(one, 2, random.Random(1))
    ev = next(v for v, plane in zip(universe.values, universe.planes, strict=True) if plane == 1)
    path = universe.path(ev, bytes(16))
    assert path is not None
    address = int.from_bytes(path.destination, "big")
    assert (address >> 80, address >> 64 & 0xFFFF, address >> 48 & 0xFFFF) == (0x5F0000000000, ev, 1)
    two = EvConfig(mode=EvMode.GENERATED, fmt=EvFormat.SRV6_SRH256, fields=words * 2, ev_bits=16, count=16)
    path = EvUniverse(two, 2, random.Random(1)).path(0x0102, bytes(16))
    assert path is not None
    assert len(path.segments) == 1
    assert path.destination != path.segments[0]


def test_a_resolver_decides_the_path() -> None:
    config = EvConfig(fmt=EvFormat.SRV6_USID128, resolver=lambda ev, destination: Srv6Path(destination[::-1]))
    path = EvUniverse(config, 1, random.Random(1)).path(5, bytes(range(16)))
    assert path == Srv6Path(bytes(reversed(range(16))))

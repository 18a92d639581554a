"""Match tables: lookups against a plain linear search, and control operations with their refusals."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.switch.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ProgramError,
    ResourceExhausted,
)
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.runtime.loader import load_program
from support.switch.bmv2_json import Doc, assign, extract, fld, param
from support.switch.programs import running
from support.switch.runner import Runner

WIDTHS = {"a": 8, "b": 13, "c": 3, "d": 128, "e": 70, "f": 2}
MISS = 0xFFFF


def table_doc(keys: list[tuple[str, str]], **more: Any) -> Doc:
    """Return a program that writes the number of the winning entry behind its header."""
    doc = Doc()
    doc.header("h", list(WIDTHS.items()))
    doc.header("o", [("n", 16)])
    doc.state("start", [extract("h")])
    add = {"op": "add_header", "parameters": [{"type": "header", "value": "o"}]}
    hit = doc.action("hit", [("n", 16)], add, assign(fld("o", "n"), param(0)))
    other = doc.action("other", [], add)
    doc.table("t", [(m, "h", f) for m, f in keys], [hit, other], default=(hit, [MISS]), **more)
    return doc


def frame(**values: int) -> bytes:
    bits = 0
    for name, width in WIDTHS.items():
        bits = bits << width | values.get(name, 0)
    return bits.to_bytes(sum(WIDTHS.values()) // 8, "big")


SIZE = len(frame())


@dataclass
class Model:
    """The same table as a list."""

    keys: list[tuple[str, str]]
    kind: str
    entries: dict[int, tuple[tuple[MatchValue, ...], int, int]] = field(default_factory=dict)

    def lookup(self, values: dict[str, int]) -> int:
        best: tuple[tuple[int, int], int] | None = None
        for handle, (key, priority, number) in self.entries.items():
            prefix = 0
            for (_, name), m in zip(self.keys, key, strict=True):
                v, width = values[name], WIDTHS[name]
                if isinstance(m, Exact):
                    ok = v == m.value
                elif isinstance(m, Lpm):
                    ok, prefix = v >> (width - m.prefix_len) == m.value >> (width - m.prefix_len), m.prefix_len
                elif isinstance(m, Ternary):
                    ok = v & m.mask == m.value
                elif isinstance(m, Range):
                    ok = m.low <= v <= m.high
                else:
                    ok = m.value in (None, v)
                if not ok:
                    break
            else:
                rank = (-prefix if self.kind == "lpm" else priority, handle)
                if best is None or rank < best[0]:
                    best = (rank, number)
        return best[1] if best else MISS


def random_match(kind: str, width: int, rng: random.Random) -> MatchValue:
    small = rng.random() < 0.7
    full = (1 << width) - 1
    value = rng.randrange(min(1 << width, 6)) if small else rng.getrandbits(width)
    if kind == "exact":
        return Exact(value)
    if kind == "lpm":
        length = rng.randint(0, width)
        return Lpm((value << max(width - 3, 0) & full) & (full ^ (full >> length)), length)
    if kind == "ternary":
        mask = rng.choice((0, full, 3 & full, full ^ 1, rng.getrandbits(width)))
        return Ternary(value & mask, mask)
    if kind == "range":
        low, high = sorted((value, rng.getrandbits(width) if rng.random() < 0.5 else rng.randrange(min(full + 1, 9))))
        return Range(low, high)
    return Optional(rng.choice((None, value)))


KEYS = {
    "exact": [("exact", "a"), ("exact", "c")],
    "exact wide": [("exact", "d"), ("exact", "e"), ("exact", "b")],
    "lpm": [("exact", "c"), ("lpm", "b")],
    "lpm wide": [("lpm", "d")],
    "ternary": [("ternary", "a"), ("exact", "f"), ("lpm", "b")],
    "ternary wide": [("ternary", "e"), ("ternary", "d")],
    "optional": [("optional", "a"), ("ternary", "c")],
    "range": [("range", "b"), ("exact", "f")],
    "two ranges": [("range", "a"), ("range", "c"), ("ternary", "f")],
    "wide range": [("range", "d"), ("range", "e")],
}


@pytest.mark.parametrize("name", list(KEYS))
def test_against_linear_search(name: str, seed: int) -> None:
    keys = KEYS[name]
    rng = random.Random(f"{seed} {name}")
    with running(table_doc(keys, size=300)) as (instance, runner):
        model = Model(keys, instance.program.tables["t"].kind)
        for step in range(900):
            draw = rng.random()
            if draw < 0.3:
                key = tuple(random_match(m, WIDTHS[f], rng) for m, f in keys)
                priority = rng.randrange(6) if model.kind in ("ternary", "range") else 0
                known = [h for h, (k, p, _) in model.entries.items() if (k, p) == (key, priority)]
                try:
                    handle = instance.table_add("t", key, ActionCall("hit", (step,)), priority=priority)
                    assert not known
                    model.entries[handle] = (key, priority, step)
                except AlreadyExists:
                    assert known
                    assert instance.table_find("t", key, priority=priority) == known[0]
            elif draw < 0.45 and model.entries:
                handle = rng.choice(list(model.entries))
                instance.table_delete("t", handle)
                del model.entries[handle]
            elif draw < 0.5 and model.entries:
                handle = rng.choice(list(model.entries))
                key, priority, _ = model.entries[handle]
                instance.table_modify("t", handle, ActionCall("hit", (step,)))
                model.entries[handle] = (key, priority, step)
            else:
                values = {
                    n: rng.randrange(min(1 << w, 8)) if rng.random() < 0.6 else rng.getrandbits(w)
                    for n, w in WIDTHS.items()
                }
                got = int.from_bytes(runner.run(frame(**values)).data[SIZE : SIZE + 2], "big")
                assert got == model.lookup(values), (values, model.entries)
        assert instance.table_size("t") == len(model.entries)
        listed = {e.handle: (e.key, e.priority, e.action.args[0]) for e in instance.table_entries("t")}
        assert listed == model.entries


@settings(max_examples=40)
@given(data=st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(KEYS)))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    instance = CACHE.setdefault(name, load_program(table_doc(KEYS[name]).json()).instance())
    key = tuple(random_match(m, WIDTHS[f], rng) for m, f in KEYS[name])
    priority = rng.randrange(1 << 20) if instance.program.tables["t"].needs_priority else 0
    handle = instance.table_add("t", key, ActionCall("hit", (7,)), priority=priority)
    entry = instance.table_entry("t", handle)
    assert (entry.key, entry.priority, entry.action) == (key, priority, ActionCall("hit", (7,)))
    instance.table_delete("t", handle)


CACHE: dict[str, Any] = {}


def test_keys_of_invalid_headers_read_zero_and_masks_apply() -> None:
    doc = Doc()
    doc.header("h", [("x", 8)])
    doc.header("g", [("y", 8)])
    doc.header("o", [("n", 8)])
    doc.state("both", [extract("g")])
    doc.state("start", [extract("h")], [fld("h", "x")], [("0x01", "both")])
    doc.init_state = "start"
    add = {"op": "add_header", "parameters": [{"type": "header", "value": "o"}]}
    hit = doc.action("hit", [("n", 8)], add, assign(fld("o", "n"), param(0)))
    keys = [("exact", "g", "y"), ("exact", "g", "$valid$")]
    doc.table("t", keys, [hit], default=(hit, [9]), masks={"y": "0xf0"})
    with running(doc) as (instance, runner):
        instance.table_add("t", (Exact(0), Exact(0)), ActionCall("hit", (1,)))
        instance.table_add("t", (Exact(0x40), Exact(1)), ActionCall("hit", (2,)))
        assert runner.run(b"\x00").data == b"\x00\x01"
        assert runner.run(b"\x01\x47").data == b"\x01\x47\x02"
        assert runner.run(b"\x01\x37").data == b"\x01\x37\x09"


def test_const_entries_and_const_default() -> None:
    entry = {
        "match_key": [{"match_type": "exact", "key": "0x05"}],
        "action_entry": {"action_id": 0, "action_data": ["0x0011"]},
        "priority": 1,
    }
    doc = table_doc([("exact", "a")], entries=[entry])
    doc.pipelines["ingress"]["tables"][0]["default_entry"]["action_entry_const"] = True
    with running(doc) as (instance, runner):
        assert runner.run(frame(a=5)).data[SIZE:] == b"\x00\x11"
        handle = instance.table_find("t", (Exact(5),))
        assert instance.table_entry("t", handle).is_const
        for refused in (
            lambda: instance.table_add("t", (Exact(6),), ActionCall("hit", (1,))),
            lambda: instance.table_delete("t", handle),
            lambda: instance.table_modify("t", handle, ActionCall("hit", (1,))),
            lambda: instance.table_clear("t"),
            lambda: instance.table_set_default("t", ActionCall("hit", (1,))),
        ):
            with pytest.raises(PermissionDenied):
                refused()
        instance.restart()
        assert runner.run(frame(a=5)).data[SIZE:] == b"\x00\x11"


def test_hit_and_miss_edges() -> None:
    doc = table_doc([("exact", "a")], next_tables={"__HIT__": "h1", "__MISS__": "m1"}, chained=False)
    for name, value in (("h1", 0xAA), ("m1", 0xBB)):
        action = doc.action(f"do_{name}", [], assign(fld("h", "a"), {"type": "hexstr", "value": f"0x{value:x}"}))
        doc.table(name, [], [action], default=(action, []), next_tables={f"do_{name}": None}, chained=False)
    with running(doc) as (instance, runner):
        instance.table_add("t", (Exact(1),), ActionCall("other"))
        assert runner.run(frame(a=1)).data[0] == 0xAA
        assert runner.run(frame(a=2)).data[0] == 0xBB


def test_capacity_and_churn() -> None:
    with running(table_doc([("exact", "a")], size=5)) as (instance, _):
        handles = [instance.table_add("t", (Exact(i),), ActionCall("hit", (i,))) for i in range(5)]
        with pytest.raises(ResourceExhausted, match="full"):
            instance.table_add("t", (Exact(9),), ActionCall("hit", (9,)))
        instance.table_delete("t", handles[2])
        instance.table_add("t", (Exact(9),), ActionCall("hit", (9,)))
        with pytest.raises(NotFound):
            instance.table_find("t", (Exact(2),))
        instance.table_clear("t")
        assert instance.table_size("t") == 0


def test_entries_with_a_sign() -> None:
    """p4c writes the constants of an int<W> with a sign, in const entries and in the tables it makes of switches."""
    action = {"action_id": 0, "action_data": ["0x0011"]}
    exact = {"match_key": [{"match_type": "exact", "key": "-0x03"}], "action_entry": action, "priority": 1}
    with running(table_doc([("exact", "b")], entries=[exact])) as (_, runner):
        assert runner.run(frame(b=(1 << 13) - 3)).data[SIZE:] == b"\x00\x11"
        assert runner.run(frame(b=3)).data[SIZE:] == b"\xff\xff"
    masked = {"match_key": [{"match_type": "ternary", "key": "-0x1000", "mask": "-0x1"}], "action_entry": action}
    with running(table_doc([("ternary", "b")], entries=[masked])) as (_, runner):
        assert runner.run(frame(b=1 << 12)).data[SIZE:] == b"\x00\x11"
    low = {"match_key": [{"match_type": "exact", "key": "-0x1001"}], "action_entry": action, "priority": 1}
    with pytest.raises(ProgramError, match="-0x1001 does not fit into the 13 bits"):
        load_program(table_doc([("exact", "b")], entries=[low]).json())


@pytest.mark.parametrize(
    ("keys", "key", "call", "priority", "error"),
    [
        ("exact", (Exact(256), Exact(0)), ActionCall("hit", (1,)), 0, OutOfRange),
        ("exact", (Exact(1),), ActionCall("hit", (1,)), 0, InvalidArgument),
        ("exact", (Exact(1), Lpm(0, 0)), ActionCall("hit", (1,)), 0, InvalidArgument),
        ("exact", (Exact(1), Exact(1)), ActionCall("hit", (1 << 16,)), 0, OutOfRange),
        ("exact", (Exact(1), Exact(1)), ActionCall("hit"), 0, InvalidArgument),
        ("exact", (Exact(1), Exact(1)), ActionCall("nix"), 0, InvalidArgument),
        ("exact", (Exact(1), Exact(1)), ActionCall("hit", (1,)), 3, InvalidArgument),
        ("lpm", (Exact(1), Lpm(1, 12)), ActionCall("hit", (1,)), 0, InvalidArgument),
        ("lpm", (Exact(1), Lpm(0, 14)), ActionCall("hit", (1,)), 0, OutOfRange),
        ("ternary wide", (Ternary(3, 1), Ternary(0, 0)), ActionCall("hit", (1,)), 0, InvalidArgument),
        ("ternary wide", (Ternary(0, 1 << 70), Ternary(0, 0)), ActionCall("hit", (1,)), 0, OutOfRange),
        ("range", (Range(5, 4), Exact(0)), ActionCall("hit", (1,)), 0, InvalidArgument),
        ("range", (Range(5, 1 << 13), Exact(0)), ActionCall("hit", (1,)), 0, OutOfRange),
        ("range", (Range(5, 6), Exact(0)), ActionCall("hit", (1,)), 1 << 31, OutOfRange),
    ],
)
def test_refused_entry_leaves_the_table_unchanged(
    keys: str, key: tuple[MatchValue, ...], call: ActionCall, priority: int, error: type[Exception]
) -> None:
    instance = CACHE.setdefault(keys, load_program(table_doc(KEYS[keys]).json()).instance())
    before = instance.table_size("t")
    with pytest.raises(error):
        instance.table_add("t", key, call, priority=priority)
    assert instance.table_size("t") == before


def test_unknown_tables_actions_and_entries_raise_not_found() -> None:
    instance = CACHE.setdefault("exact", load_program(table_doc(KEYS["exact"]).json()).instance())
    for refused in (
        lambda: instance.table_add("nix", (), ActionCall("hit", (1,))),
        lambda: instance.table_entry("t", 4711),
        lambda: instance.table_delete("t", -1),
        lambda: instance.counter_read("nix", 0),
        lambda: instance.register_read("nix", 0),
        lambda: instance.meter_config("nix", 0),
        lambda: instance.value_set_values("nix"),
        lambda: list(instance.members("nix")),
    ):
        with pytest.raises(NotFound):
            refused()


def test_default_action() -> None:
    with running(table_doc([("exact", "a")])) as (instance, runner):
        assert instance.table_default("t") == ActionCall("hit", (MISS,))
        instance.table_set_default("t", ActionCall("hit", (3,)))
        assert runner.run(frame()).data[SIZE:] == b"\x00\x03"
        instance.table_reset_default("t")
        assert instance.table_default("t") == ActionCall("hit", (MISS,))
    doc = table_doc([("exact", "a")])
    del doc.pipelines["ingress"]["tables"][0]["default_entry"]
    with running(doc) as (instance, runner):
        assert instance.table_default("t") is None
        assert runner.run(frame()).data == frame()


def test_direct_counters_and_idle_timeouts() -> None:
    doc = table_doc([("exact", "a")], with_counters=True, support_timeout=True)
    second = 10**9
    with running(doc) as (instance, runner):
        fast = instance.table_add("t", (Exact(1),), ActionCall("hit", (1,)), idle_timeout_ns=2 * second)
        slow = instance.table_add("t", (Exact(2),), ActionCall("hit", (2,)))
        for _ in range(3):
            runner.run(frame(a=1) + b"xx", now_ns=second)
        runner.run(frame(a=9), now_ns=second)
        counter = instance.direct_counter_read("t", fast)
        assert (counter.packets, counter.bytes) == (3, 3 * (SIZE + 2))
        assert instance.direct_counter_read("t", slow).packets == 0
        assert instance.direct_counter_read("t", None).packets == 1
        instance.direct_counter_write("t", fast, 7, 8)
        assert instance.direct_counter_read("t", fast).bytes == 8
        assert instance.idle_entries("t", 2 * second) == []
        assert instance.idle_entries("t", 3 * second) == [fast]
        assert instance.idle_entries("t", 4 * second) == []
        assert instance.idle_entries("t", 5 * second) == [fast]
        runner.run(frame(a=1), now_ns=6 * second)
        assert instance.idle_entries("t", 7 * second) == []
        assert instance.table_entry("t", slow).idle_ns == 6 * second
        instance.table_set_timeout("t", fast, 0)
        assert instance.idle_entries("t", 100 * second) == []


def test_updates_never_tear(seed: int) -> None:
    """A packet sees an entry's two arguments together, whatever the control plane does meanwhile."""
    doc = Doc()
    doc.header("h", [("x", 8)])
    doc.header("o", [("p", 64), ("q", 64)])
    doc.state("start", [extract("h")])
    add = {"op": "add_header", "parameters": [{"type": "header", "value": "o"}]}
    pair = doc.action(
        "pair", [("p", 64), ("q", 64)], add, assign(fld("o", "p"), param(0)), assign(fld("o", "q"), param(1))
    )
    doc.table("t", [("exact", "h", "x")], [pair], default=(pair, [0, 0]))
    with running(doc) as (instance, runner):
        handle = instance.table_add("t", (Exact(1),), ActionCall("pair", (0, 0)))
        stop = threading.Event()

        def change() -> None:
            value = 0
            while not stop.is_set():
                value = (value + 0x0101010101010101) & (2**64 - 1)
                instance.table_modify("t", handle, ActionCall("pair", (value, value)))

        thread = threading.Thread(target=change)
        thread.start()
        try:
            seen = set()
            for _ in range(3000):
                with instance.packet_lock():
                    out = runner.run(b"\x01").data[1:]
                assert out[:8] == out[8:]
                seen.add(out)
        finally:
            stop.set()
            thread.join()
    assert len(seen) > 1


# --- action profiles ---


def profile_doc(*, selector: bool) -> Doc:
    doc = table_doc([("exact", "a")])
    table = doc.pipelines["ingress"]["tables"][0]
    del table["default_entry"]
    table["type"] = "indirect_ws" if selector else "indirect"
    table["action_profile"] = "ap"
    profile: dict[str, Any] = {"name": "ap", "id": 0, "max_size": 4}
    if selector:
        profile["selector"] = {"algo": "identity", "input": [fld("h", "d")]}
    doc.pipelines["ingress"]["action_profiles"].append(profile)
    return doc


def test_table_with_an_action_profile_runs_the_action_of_its_member() -> None:
    from p4lite.switch.program.entry import MemberRef

    with running(profile_doc(selector=False)) as (instance, runner):
        first = instance.member_add("ap", ActionCall("hit", (11,)))
        second = instance.member_add("ap", ActionCall("hit", (22,)), 77)
        with pytest.raises(AlreadyExists):
            instance.member_add("ap", ActionCall("hit", (1,)), 77)
        with pytest.raises(InvalidArgument):
            instance.table_add("t", (Exact(1),), ActionCall("hit", (1,)))
        with pytest.raises(NotFound):
            instance.table_add("t", (Exact(1),), MemberRef(5))
        handle = instance.table_add("t", (Exact(1),), MemberRef(second))
        assert runner.run(frame(a=1)).data[SIZE:] == b"\x00\x16"
        assert instance.table_entry("t", handle).action == MemberRef(77)
        instance.member_modify("ap", 77, ActionCall("hit", (33,)))
        assert runner.run(frame(a=1)).data[SIZE:] == b"\x00\x21"
        with pytest.raises(InvalidArgument, match="in use"):
            instance.member_delete("ap", 77)
        instance.table_modify("t", handle, MemberRef(first))
        instance.member_delete("ap", 77)
        assert [m.member for m in instance.members("ap")] == [first]
        for _ in range(3):
            instance.member_add("ap", ActionCall("other"))
        with pytest.raises(ResourceExhausted):
            instance.member_add("ap", ActionCall("other"))
        instance.restart()
        assert list(instance.members("ap")) == []
        assert runner.run(frame(a=1)).data == frame(a=1)


def test_groups_choose_by_hash() -> None:
    from p4lite.switch.program.entry import GroupRef, MemberRef

    with running(profile_doc(selector=True)) as (instance, runner):
        members = [instance.member_add("ap", ActionCall("hit", (i,))) for i in range(3)]
        group = instance.group_add("ap", [members[2], members[0], members[1], members[1]])
        instance.table_add("t", (Exact(1),), GroupRef(group))
        instance.table_add("t", (Exact(2),), MemberRef(members[2]))
        # identity hashes the first eight bytes; the n-th member in order of ids is taken
        got = [runner.run(frame(a=1, d=i << 64)).data[-1] for i in range(8)]
        assert got == [0, 1, 1, 2, 0, 1, 1, 2]
        assert runner.run(frame(a=2)).data[-1] == 2
        instance.group_modify("ap", group, [members[1]])
        assert {runner.run(frame(a=1, d=i << 64)).data[-1] for i in range(8)} == {1}
        instance.group_modify("ap", group, [])
        assert runner.run(frame(a=1)).data == frame(a=1)
        assert instance.faults()["no_member"] == 1
        with pytest.raises(InvalidArgument, match="in use"):
            instance.group_delete("ap", group)
        limited = instance.group_add("ap", max_size=1)
        with pytest.raises(ResourceExhausted):
            instance.group_modify("ap", limited, members)
        instance.group_modify("ap", limited, [members[0]])
        with pytest.raises(InvalidArgument, match="in use"):
            instance.member_delete("ap", members[0])
        instance.group_delete("ap", limited)
        assert [g.group for g in instance.groups("ap")] == [group]


# --- meters ---


def test_meters() -> None:
    from p4lite.switch.runtime.loader import MeterConfig

    doc = Doc()
    doc.header("h", [("i", 8), ("color", 8)])
    doc.state("start", [extract("h")])
    doc.extra["meter_arrays"] = [
        {"name": n, "id": i, "type": u, "rate_count": 2, "size": 3, "is_direct": False}
        for i, (n, u) in enumerate((("mp", "packets"), ("mb", "bytes")))
    ]
    for name in ("mp", "mb"):
        array = {"type": "meter_array", "value": name}
        doc.run({"op": "execute_meter", "parameters": [array, fld("h", "i"), fld("h", "color")]})
        second = 10**9
        with running(doc) as (instance, runner):
            assert runner.run(b"\x01\xff", now_ns=0).data[1] == 0  # not configured: green
            unit = 1 if name == "mp" else 10
            instance.meter_set(name, 1, MeterConfig(2 * unit, 2 * unit, 4 * unit, 3 * unit))
            assert instance.meter_config(name, 1) == MeterConfig(2 * unit, 2 * unit, 4 * unit, 3 * unit)
            packet = b"\x01\xff" + b"x" * 8
            colors = [runner.run(packet, now_ns=second).data[1] for _ in range(5)]
            assert colors == [0, 0, 1, 2, 2]
            # half a second later: one token of the committed rate, two of the peak rate
            colors = [runner.run(packet, now_ns=second + second // 2).data[1] for _ in range(4)]
            assert colors == [0, 1, 2, 2]
            instance.meter_set(name, 1, None)
            assert instance.meter_config(name, 1) is None
            assert runner.run(b"\x05\x77").data == b"\x05\x77"
            assert instance.faults()["meter_index"] >= 1
            with pytest.raises(InvalidArgument, match="above the peak"):
                instance.meter_set(name, 1, MeterConfig(2, 1, 1, 1))
            with pytest.raises(OutOfRange):
                instance.meter_set(name, 3, None)


def test_direct_meter() -> None:
    from p4lite.switch.runtime.loader import MeterConfig

    doc = table_doc([("exact", "a")], direct_meters="dm")
    doc.extra["meter_arrays"] = [
        {
            "name": "dm",
            "id": 0,
            "type": "packets",
            "rate_count": 2,
            "size": 4,
            "is_direct": True,
            "binding": "t",
            "result_target": ["h", "f"],
        }
    ]
    with running(doc) as (instance, runner):
        handle = instance.table_add("t", (Exact(1),), ActionCall("hit", (1,)))
        instance.direct_meter_set("t", handle, MeterConfig(1, 1, 1, 2))
        colors = [runner.run(frame(a=1), now_ns=5).data[SIZE - 1] & 3 for _ in range(3)]
        assert colors == [0, 1, 2]
        assert runner.run(frame(a=2)).data[SIZE - 1] & 3 == 0
        assert instance.direct_meter_config("t", handle) == MeterConfig(1, 1, 1, 2)
        with pytest.raises(InvalidArgument, match="direct"):
            instance.meter_set("dm", 0, None)


def test_two_instances_share_nothing() -> None:
    program = load_program(table_doc([("exact", "a")]).json())
    one, two = program.instance(), program.instance()
    one.table_add("t", (Exact(1),), ActionCall("hit", (1,)))
    assert Runner(one).run(frame(a=1)).data[SIZE:] == b"\x00\x01"
    assert Runner(two).run(frame(a=1)).data[SIZE:] == b"\xff\xff"
    one.close()
    two.close()

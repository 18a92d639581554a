"""`p4lite.compile` and `p4lite.Switch`: the same on the compiled switch and in the interpreter, and clear refusals."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import p4lite
from p4lite.api.tables import action_call
from p4lite.switch.errors import ControlError
from p4lite.switch.program.entry import GroupRef, Lpm
from p4lite.switch.runtime.loader import MeterConfig
from p4lite_tools.fuzz.frames import FrameMaker
from support.p4.cases import pack, source
from support.p4.tools import FORWARD, ipv4, router

EVERYTHING = source(
    types="struct seen_t { bit<8> x; }",
    meta="@field_list(1) bit<8> kept; bit<8> lost; bit<2> colour;",
    locals="""
        register<bit<32>>(4) r; counter(4, CounterType.packets_and_bytes) c; meter(1, MeterType.packets) m;
        direct_counter(CounterType.packets) dc;
        action set(bit<8> v) { hdr.h.a = v; dc.count(); }
        action group(bit<16> g) { sm.mcast_grp = g; dc.count(); }
        table t { key = { hdr.h.b: ternary; hdr.h.c: range; } actions = { set; group; NoAction; } counters = dc; }
        action pick(bit<8> v) { hdr.h.a = v; }
        action_selector(HashAlgorithm.crc16, 64, 14) sel;
        table u { key = { hdr.h.b: exact; hdr.h.d: selector; } actions = { pick; NoAction; } implementation = sel; }
    """,
    body="""
        bit<32> n; r.read(n, (bit<32>)hdr.h.b & 7); r.write((bit<32>)hdr.h.b & 7, n + 1); c.count((bit<32>)hdr.h.b & 7);
        m.execute_meter(0, meta.colour); t.apply(); u.apply();
        bit<8> x; random(x, 0, 200); meta.kept = x; meta.lost = 1; hdr.h.d = hdr.h.d + (bit<32>)meta.colour;
        if (hdr.h.c[0:0] == 1) { clone_preserving_field_list(CloneType.I2E, 7, 1); digest<seen_t>(1, { hdr.h.a }); }
        if (hdr.h.c[3:1] == 1 && sm.instance_type == 0) { resubmit_preserving_field_list(1); }
        bit<32> h; hash(h, HashAlgorithm.crc32, 32w0, { hdr.h.b, hdr.h.c }, 32w1000); hdr.h.d = hdr.h.d ^ h;
    """,
    egress="""
        if (sm.instance_type == 1) { hdr.h.b = meta.kept; hdr.h.c = (bit<16>)sm.packet_length; }
        if (sm.egress_rid != 0) { hdr.h.b = (bit<8>)sm.egress_rid; }
        if (hdr.h.c[6:4] == 2 && sm.instance_type == 0) { recirculate_preserving_field_list(1); }
        if (hdr.h.c[9:7] == 3 && sm.instance_type == 0) { clone(CloneType.E2E, 8); truncate(6); }
    """,
)


WRONG: Any = "fast"


def fill(switch: p4lite.Switch) -> None:
    """Give the program something for each of its objects."""
    t, u = switch.tables["t"], switch.tables["u"]
    t.add((("0x10", "0xf0"), (0, 0x7FFF)), ("set", {"v": 5}), priority=2)
    t.add((None, "0x4000->0xffff"), ("group", [3]), priority=1)
    t.default = ("set", [9])
    members = [
        switch.control.member_add("Ig.sel", action_call(u.facts.actions, ("pick", [n]), "sel")) for n in range(3)
    ]
    group = switch.control.group_add("Ig.sel", members)
    for b in range(4):
        u[b] = GroupRef(group)
    u[9] = "NoAction"
    switch.multicast[3] = [4, (5, 1), (6, 2)]
    switch.mirrors[7] = 8
    switch.mirrors[8] = 9
    switch.meters["m"][0] = MeterConfig(1000, 2, 2000, 4)


def state(switch: p4lite.Switch) -> tuple[Any, ...]:
    """Return all that packets have changed."""
    t = switch.tables["t"]
    direct = [switch.control.direct_counter_read(t.name, handle) for handle in (0, 1, None)]
    return list(switch.registers["r"]), list(switch.counters["c"]), direct, switch.digests()


def test_both_backends_do_the_same() -> None:
    program = p4lite.compile(EVERYTHING)
    rng = random.Random(5)
    with p4lite.Switch(program, backend="compiled") as fast, p4lite.Switch(program, backend="interpreter") as slow:
        fill(fast)
        fill(slow)
        sent = 0
        for _ in range(400):
            packet = pack(b=rng.choice((*range(12), 0x12)), c=rng.getrandbits(16), d=rng.getrandbits(32))[
                : rng.choice((8, 8, 8, 5))
            ]
            packet += rng.randbytes(rng.randrange(4))
            port = rng.randrange(4)
            got, want = fast.send(port, packet), slow.send(port, packet)
            assert sorted(got) == sorted(want), (port, packet.hex())
            sent += len(got)
            step = rng.choice((0, 1_000, 700_000))
            fast.advance(step)
            slow.advance(step)
        assert state(fast) == state(slow)
        assert sent > 500


def test_router_of_the_page_is_the_same_on_both() -> None:
    rng = random.Random(2)
    frames = FrameMaker(router().facts, rng)
    with p4lite.Switch(router(), backend="compiled") as fast, p4lite.Switch(router(), backend="interpreter") as slow:
        for switch in (fast, slow):
            switch.tables["routes"]["0.0.0.0/1"] = FORWARD
        for _ in range(100):
            frame = frames.make()
            assert fast.send(1, frame) == slow.send(1, frame)


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_tables_are_mappings(backend: Any) -> None:
    with p4lite.Switch(router(), backend=backend) as switch:
        routes = switch.tables["routes"]
        for key in ("10.0.0.0/8", (("10.0.0.0", 8),), {"dst": Lpm(10 << 24, 8)}, (b"\x0a\0\0\0", 8)):
            routes.clear()
            arguments: Any = {"to": 2, "port": "0x2"}
            routes[key] = ("forward", arguments)
            assert routes["10.0.0.0/8"] == p4lite.Action("RouterIngress.forward", to=2, port=2)
            assert [(e.key, e.priority) for e in routes] == [((Lpm(10 << 24, 8),), 0)]
        assert switch.send(1, ipv4())[0][0] == 2
        routes["10.0.0.0/8"] = "drop"
        assert switch.send(1, ipv4()) == []
        del routes["10.0.0.0/8"]
        assert ("10.0.0.0/8" in routes, len(routes)) == (False, 0)
        assert routes.default == p4lite.Action("RouterIngress.drop")
        switch.registers["RouterIngress.seen"][3] = "0xff"
        assert list(switch.registers["seen"])[:4] == [0, 2, 0, 255]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda s: s.tables["route"], "no table 'route'; there are: RouterIngress.routes"),
        (lambda s: s.tables["routes"].add("10.0.0.300", "drop"), "'10.0.0.300' is not a number; write an int, bytes"),
        (lambda s: s.tables["routes"].add([1], "drop"), "does not match an lpm key; write 'VALUE/LENGTH'"),
        (
            lambda s: s.tables["routes"].add((1, 2, 3), "drop"),
            "a value for each of: hdr.ip.dst (lpm, 32 bits)|does not match",
        ),
        (lambda s: s.tables["routes"].add("10.0.0.0/33", "drop"), "a prefix of 33 bits in a key of 32"),
        (lambda s: s.tables["routes"].add(1, "frward"), "there are: RouterIngress.forward, RouterIngress.drop"),
        (
            lambda s: s.tables["routes"].add(1, ("forward", {"to": 1})),
            "needs an argument 'port'; it takes to: bit<48>, port: bit<9>",
        ),
        (lambda s: s.tables["routes"].add(1, ("forward", {"to": 1, "prt": 1})), "has no parameter 'prt'"),
        (lambda s: s.tables["routes"].add(1, ("forward", [1, 512])), "512 does not fit into 9 bits"),
        (lambda s: s.tables["routes"].add(1, 7), "is not an action; write Action('name'"),
        (lambda s: s.registers["seen"][16], "has 16 cells, there is no index 16"),
        (lambda s: p4lite.Switch(s.program, backend=WRONG), "write compiled or interpreter"),
        (lambda s: p4lite.Switch(s.program, backend="compiled", observers=[print]), "need the interpreter"),
    ],
)
def test_refusals_say_what_is_allowed(act: Callable[[p4lite.Switch], object], said: str) -> None:
    with p4lite.Switch(router(), backend="interpreter") as switch, pytest.raises(ControlError) as refused:
        act(switch)
    assert any(part in str(refused.value) for part in said.split("|"))


def test_importing_p4lite_imports_neither_compiler_nor_switch() -> None:
    code = "import sys, p4lite; print([m for m in sys.modules if m.startswith('p4lite.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_attribute_of_p4lite_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swich'"):
        _ = p4lite.swich

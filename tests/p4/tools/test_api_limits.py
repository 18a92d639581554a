"""`p4lite.Switch` where it is used wrongly: after its end, by several threads, with values that do not fit."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import p4lite
from p4lite.switch.errors import ControlError, InvalidArgument, NotFound, OutOfRange
from p4lite.switch.fabric.values import CloneSession
from p4lite_tools.interpreter.machine import Interpreter
from support.p4.cases import pack, source

TEXT = source(
    types="struct seen_t { bit<8> x; }",
    locals="""
        register<bit<16>>(4) r; counter(4, CounterType.packets) c; meter(1, MeterType.packets) m;
        action to(bit<9> p) { sm.egress_spec = p; }
        action none() { }
        table t { key = { hdr.h.a: exact; } actions = { to; none; @defaultonly NoAction; } size = 8; }
        table u { key = { hdr.h.b: ternary; } actions = { to; @tableonly none; NoAction; } }
    """,
    body="bit<2> k; m.execute_meter(0, k); r.write(0, hdr.h.c); digest<seen_t>(1, { hdr.h.a }); t.apply(); u.apply();",
)
BACKENDS = ("compiled", "interpreter")


@pytest.fixture(scope="module")
def program() -> p4lite.Program:
    return p4lite.compile(TEXT)


@pytest.fixture(params=BACKENDS)
def switch(request: pytest.FixtureRequest, program: p4lite.Program) -> Iterator[Any]:
    with p4lite.Switch(program, backend=request.param) as made:
        yield made


def uses(s: Any) -> dict[str, Callable[[], object]]:
    """Return calls of everything that a switch hands out, made before it is closed."""
    t, r, c, m, control, replication = (
        s.tables["t"], s.registers["r"], s.counters["c"], s.meters["m"], s.control, s.replication
    )  # fmt: skip
    t[1] = t[2] = "none"
    entries = iter(t)
    next(entries)
    raw = control.table_entries(t.name)
    next(raw)
    cells, read = iter(c), control.register_read
    next(cells)
    return {
        "send": lambda: s.send(0, pack()),
        "advance": lambda: s.advance(1),
        "now": lambda: s.now_ns,
        "digests": s.digests,
        "tables": lambda: s.tables["t"],
        "control": lambda: s.control,
        "replication": lambda: s.replication,
        "get": lambda: t[1],
        "set": lambda: t.__setitem__(1, "none"),
        "add": lambda: t.add(3, "none"),
        "delete": lambda: t.delete(0),
        "in": lambda: 1 in t,
        "length": lambda: len(t),
        "iterate": lambda: list(t),
        "default": lambda: t.default,
        "set default": lambda: setattr(t, "default", "none"),
        "clear": t.clear,
        "register": lambda: r[0],
        "registers": lambda: list(r),
        "write register": lambda: r.__setitem__(0, 1),
        "clear register": r.clear,
        "counter": lambda: c[0],
        "counters": lambda: list(c),
        "clear counter": c.clear,
        "meter": lambda: m[0],
        "set meter": lambda: m.__setitem__(0, None),
        "multicast": lambda: dict(s.multicast),
        "set multicast": lambda: s.multicast.__setitem__(1, [1]),
        "mirrors": lambda: dict(s.mirrors),
        "set mirror": lambda: s.mirrors.__setitem__(1, 1),
        "raw": lambda: control.table_size(t.name),
        "kept method": lambda: read(r.name, 0),
        "raw replication": replication.multicast_groups,
    } | {"iterator in use": lambda: list(entries)}


def test_use_after_close_is_an_error_everywhere(switch: Any) -> None:
    calls = uses(switch)
    raw = switch.control.table_entries("Ig.t")
    switch.close()
    switch.close()
    del calls["iterator in use"]  # it has read the table to its end
    assert [entry.handle for entry in raw] == [0, 1]
    for name, call in calls.items():
        with pytest.raises(InvalidArgument, match=r"^the switch is closed$"):
            print(name, call())


def test_operations_of_a_closed_instance_are_errors(program: p4lite.Program) -> None:
    instance = program.native.instance()
    entries = instance.table_entries("Ig.t")
    instance.close()
    for call in (
        lambda: list(entries),
        lambda: instance.register_read("Ig.r", 0),
        lambda: instance.set_now(1),
        instance.restart,
        instance.faults,
    ):
        with pytest.raises(InvalidArgument, match="is closed"):
            call()


@pytest.mark.parametrize("duration", [-1, 1.5, True, "1", None, 1 << 63, 1 << 65])
def test_clock_advances_by_whole_numbers_only(switch: Any, duration: Any) -> None:
    switch.advance(1000)
    with pytest.raises(InvalidArgument, match="the clock cannot advance by"):
        switch.advance(duration)
    assert (switch.now_ns, type(switch.now_ns)) == (1000, int)
    switch.send(0, pack())


def test_clock_ends_at_its_last_nanosecond(switch: Any) -> None:
    switch.advance((1 << 63) - 1)
    with pytest.raises(InvalidArgument, match="and ends at 9223372036854775807 ns"):
        switch.advance(1)
    switch.advance(0)
    assert len(switch.send(0, pack())) == 1


def test_threads_that_share_a_switch_get_their_own_packets(switch: Any) -> None:
    switch.tables["t"].update({n: p4lite.Action("to", p=10 + n) for n in range(4)})
    wrong: list[object] = []

    def run(n: int) -> None:
        for i in range(300):
            packet = pack(a=n, c=i)
            out = switch.send(1, packet)
            if out != [(10 + n, packet)]:
                wrong.append(out)
            switch.tables["u"][n + 8] = "NoAction"
            del switch.tables["u"][n + 8]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_close_in_another_thread_ends_the_calls_of_this_one(switch: Any) -> None:
    began, errors = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            while True:
                switch.send(0, pack())
                list(switch.tables["t"])
                began.set()
        except InvalidArgument as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    began.wait(30)
    switch.close()
    thread.join(30)
    assert [str(error) for error in errors] == ["the switch is closed"]


def put(name: str, key: object, value: object) -> Callable[[Any], object]:
    """Return the assignment of a value in one of a switch's mappings."""
    return lambda s: getattr(s, name).__setitem__(key, value)


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda s: s.meters["m"].__setitem__(0, (1, 1, 1, 1)), "is not a configuration; write MeterConfig\\(cir"),
    (lambda s: s.meters["m"].__setitem__(0, p4lite.MeterConfig(1, 1, 1.5, 1)), "pir=1.5: an int is wanted"),  # type: ignore[arg-type]
    (lambda s: s.meters["m"].__setitem__(0, p4lite.MeterConfig(2, 1, 1, 1)), "rate 2 is above the peak rate 1"),
    (lambda s: s.meters["m"].__setitem__(0, p4lite.MeterConfig(-1, 1, 1, 1)), "cir=-1: does not fit into 64 bits"),
    (put("mirrors", 5, None), "None is not a mirror session; write a port"),
    (put("mirrors", 5, True), "True is not a mirror session"),
    (put("mirrors", 5, CloneSession(port="1")), "its port, group and truncate_bytes are ints"),  # type: ignore[arg-type]
    (put("mirrors", 5, CloneSession(port=-1)), "a number is out of range"),
    (put("mirrors", 5, CloneSession(port=1 << 40)), "a number is out of range"),
    (put("mirrors", 5, CloneSession(mcast_group=-1)), "a number is out of range"),
    (put("mirrors", (1 << 32) + 5, 1), "the number must be 0-32767"),
    (put("mirrors", "5", 1), "'5' is not the number of a mirror session"),
    (put("multicast", 2, ["1"]), "'1' is not a replica; write a port"),
    (put("multicast", 2, [(1, 2, 3)]), "is not a replica"),
    (put("multicast", 2, "12"), "is not a list of replicas"),
    (put("multicast", 2, 3), "3 is not a list of replicas"),
    (put("multicast", 2, [-1]), "port or rid out of range"),
    (put("multicast", (1 << 32) + 2, [1]), "the number must be 1-65535"),
    (lambda s: s.multicast[7], "no multicast group 7; there are: none"),
    (lambda s: s.multicast.__delitem__((1 << 32) + 7), "there is no multicast group"),
    (lambda s: s.send(99, pack()), "there is no port 99; there are: 0 to 63"),
    (lambda s: s.send(-1, pack()), "there is no port -1"),
    (lambda s: s.send(2**70, pack()), "there is no port"),
    (lambda s: s.send("1", pack()), "there is no port '1'"),
    (lambda s: s.send(1.0, pack()), "there is no port 1.0"),
    (lambda s: s.send(1, "0102"), "a packet is bytes .*, not str; bytes.fromhex"),
    (lambda s: s.send(1, [1, 2]), "not list"),
    (lambda s: s.send(1, None), "not NoneType"),
    (lambda s: s.send(1, 4), "not int"),
    (lambda s: s.send(1, bytes(65537)), "a packet of 65537 bytes: 65536 are the most"),
    (lambda s: s.tables["t"].__setitem__(2, "NoAction"), "NoAction is @defaultonly: no entry can have it"),
    (lambda s: s.tables["t"].add(2, "NoAction"), "NoAction is @defaultonly"),
    (lambda s: setattr(s.tables["u"], "default", "none"), "Ig.none is @tableonly: it cannot be the default"),
    (lambda s: s.tables["u"].add(None, "none", priority=-5), "priority=-5: an int from 0 to 2147483647 is wanted"),
    (lambda s: s.tables["u"].add(None, "none", priority="3"), "priority='3': an int"),
    (lambda s: s.tables["u"].add(None, "none", priority=1 << 31), "an int from 0 to"),
    (lambda s: s.tables["u"].handle(None, priority="3"), "priority='3': an int"),
    (lambda s: s.tables["t"].delete("0"), "'0' is not the handle of an entry"),
    (lambda s: s.tables["t"].delete(1 << 70), "has no entry"),
    (lambda s: s.tables["t"].__setitem__(None, "none"), "an exact key needs a value"),
    (lambda s: s.tables["t"].__setitem__(1.5, "none"), "does not match an exact key"),
    (lambda s: s.tables[1], "1 is not a name; there are: .*Ig.t"),
    (lambda s: s.counters["c"].__setitem__(0, 5), "5 is no value of it; write CounterValue\\(packets, bytes\\)"),
    (lambda s: s.counters["c"].__setitem__(0, p4lite.CounterValue("1", 0)), "packets='1': an int is wanted"),  # type: ignore[arg-type]
    (lambda s: s.registers["r"]["0"], "'0' is not an index: write an int from 0 to 3"),
    (lambda s: s.registers["r"][0:2], "is not an index"),
    (lambda s: s.registers["r"].__setitem__("0", 1), "is not an index"),
    (lambda s: s.registers["r"][-1], "there is no index -1"),
    (lambda s: s.registers["r"].__setitem__(0, 1.5), "1.5 is not a number"),
    (lambda s: s.control.table_set_timeout("Ig.t", 0, -1), "does not support timeouts"),
    (lambda s: p4lite.Switch("x.p4"), "is not a program; write p4lite.Switch\\(p4lite.compile"),  # type: ignore[arg-type]
    (lambda s: p4lite.Switch(s.program.bmv2), "^a dict is not a program"),
    (lambda s: p4lite.compile(None), "not NoneType"),  # type: ignore[arg-type]
    (lambda s: p4lite.compile(b"control"), "a program is a path or a text of several lines, not bytes"),  # type: ignore[arg-type]
    (lambda s: p4lite.Switch(s.program, ports=[511], backend=s.backend), "511 is not a port"),
    (lambda s: p4lite.Switch(s.program, ports=[1 << 20], backend=s.backend), "is not a port"),
    (lambda s: p4lite.Switch(s.program, ports=[1, 1], backend=s.backend), "a number is there twice"),
    (lambda s: p4lite.Switch(s.program, ports="ab", backend=s.backend), "a list of numbers is wanted"),  # type: ignore[arg-type]
    (lambda s: p4lite.Switch(s.program, priority_queues=9, backend=s.backend), "an int from 1 to 8"),
    (lambda s: p4lite.Switch(s.program, observers=print), "write observers=\\[function\\]"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("act", "said"), REFUSED)
def test_wrong_values_are_refused_and_change_nothing(switch: Any, act: Callable[[Any], object], said: str) -> None:
    with pytest.raises(ControlError, match=said):
        act(switch)
    assert (dict(switch.multicast), dict(switch.mirrors), list(switch.tables["t"])) == ({}, {}, [])
    assert (switch.meters["m"][0], list(switch.registers["r"])) == (None, [0, 0, 0, 0])
    assert len(switch.send(1, pack())) == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_packets_are_any_bytes_like_object(switch: Any, kind: Any) -> None:
    switch.tables["t"].default = ("to", [2])
    packet = pack()
    assert switch.send(63, kind(packet)) == [(2, packet)]
    assert switch.send(1, memoryview(packet * 2)[::2]) == switch.send(1, bytes((packet * 2)[::2]))


def test_tables_have_what_users_expect_of_a_mapping(switch: Any) -> None:
    t, u = switch.tables["t"], switch.tables["u"]
    t.update({1: "none", 2: ("to", [3])})
    t.update([(3, "none")])
    none, to = p4lite.Action("Ig.none"), p4lite.Action("Ig.to", p=3)
    assert (t.get(1), t.get(9), t.get(9, "nothing"), t.get(256, 7)) == (none, None, "nothing", 7)
    assert (2 in t, 9 in t, 256 in t, -1 in t) == (True, False, False, False)
    assert (t.pop(2), t.pop(2, None), t.pop(256, 5), len(t)) == (to, None, 5, 2)
    for act in (lambda: t[9], lambda: t.pop(9), lambda: t.__delitem__(9), lambda: switch.tables["x"]):
        with pytest.raises(KeyError) as missing:
            act()
        assert isinstance(missing.value, NotFound)
        assert not str(missing.value).startswith(("'", '"'))
    with pytest.raises(OutOfRange):
        _ = t[256]
    with pytest.raises(InvalidArgument):
        _ = "one" in t
    assert ("x" in switch.tables, "t" in switch.tables, switch.tables.get("x")) == (False, True, None)
    u.add((1, 3), "none", priority=7)
    assert (u.get((1, 3)), u.get((1, 3), priority=7)) == (None, none)
    assert (u.pop((1, 3), priority=7), len(u)) == (none, 0)
    assert 7 not in switch.multicast
    assert switch.mirrors.pop(7, None) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_program_can_be_copied_once_switches_were_made(program: p4lite.Program, backend: Any) -> None:
    with p4lite.Switch(program, backend=backend) as switch:
        switch.send(0, pack())
    for made in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program), copy.copy(program)):
        assert (made.bmv2, made.p4info, made.scopes, made.text) == (
            program.bmv2, program.p4info, program.scopes, program.text
        )  # fmt: skip
        with p4lite.Switch(made, backend=backend) as switch, pytest.raises(ControlError, match="@defaultonly"):
            switch.tables["t"][1] = "NoAction"


def test_control_of_an_interpreted_switch_is_one_to_tools(program: p4lite.Program) -> None:
    with p4lite.Switch(program, backend="interpreter") as switch, p4lite.Switch(program, backend="compiled") as other:
        control = switch.control
        assert (isinstance(control, Interpreter), isinstance(other.control, Interpreter)) == (True, False)
        seen: list[object] = []
        control.observers = [seen.append]  # type: ignore[attr-defined]
        switch.send(1, pack())
        assert seen
        assert control.program is program.facts


def test_a_json_shows_files_of_p4_alone(tmp_path: Path) -> None:
    """It may name any file of the user, and what is shown of it may be passed on."""
    (tmp_path / "id_rsa").write_text("secret")
    (tmp_path / "link.p4").symlink_to(tmp_path / "id_rsa")
    (tmp_path / "real.p4").write_text("control c() {}")
    program = p4lite.Program("a.json", {})
    assert [program.lines(str(tmp_path / name)) for name in ("id_rsa", "link.p4", "real.p4", "none.p4")] == [
        [],
        [],
        ["control c() {}"],
        [],
    ]

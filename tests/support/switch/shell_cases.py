"""Cases of `tests/switch/p4rt/test_shell.py`, run in p4runtime-shell by the Python of its own environment.

    python -I shell_cases.py ADDRESS P4INFO PROGRAM CASE

Nothing but the shell and the standard library is there.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from p4runtime_sh import shell
from p4runtime_sh.p4runtime import P4RuntimeWriteException


@contextlib.contextmanager
def refused(code: str) -> Iterator[None]:
    """Fail unless the switch refuses what is done in the context, with this code."""
    try:
        yield
    except P4RuntimeWriteException as error:
        if code not in str(error):
            raise
    else:
        raise AssertionError(f"not refused: {code}")


def insert_read_modify_delete(sh: Any) -> None:
    """Insert, read, modify and delete an entry; a second insertion and deletion are refused."""
    entry = sh.TableEntry("I.l2")(action="I.forward")
    entry.match["hdr.ethernet.dst"] = "00:00:00:00:00:02"
    entry.action["port"] = "3"
    entry.insert()
    (found,) = sh.TableEntry("I.l2").read()
    assert found.match["hdr.ethernet.dst"].exact.value == b"\x02"
    assert found.action["port"].value == b"\x03"
    entry.action["port"] = "4"
    entry.modify()
    (found,) = sh.TableEntry("I.l2").read()
    assert found.action["port"].value == b"\x04"
    with refused("ALREADY_EXISTS"):
        entry.insert()
    entry.delete()
    assert list(sh.TableEntry("I.l2").read()) == []
    with refused("NOT_FOUND"):
        entry.delete()


def ternary_range_optional_and_default(sh: Any) -> None:
    """Insert an entry of ternary, range and optional keys, and set a default action."""
    entry = sh.TableEntry("I.acl")(action="I.punt")
    entry.match["source"] = "10.0.0.0&&&255.0.0.0"
    entry.match["protocol"] = "1..17"
    entry.match["port"] = "1"
    entry.action["reason"] = "7"
    entry.priority = 10
    entry.insert()
    (found,) = sh.TableEntry("I.acl").read()
    assert found.msg() == entry.msg()
    default = sh.TableEntry("I.l2")(action="I.flood", is_default=True)
    default.action["group"] = "1"
    default.modify()
    (found,) = sh.TableEntry("I.l2")(is_default=True).read()
    assert found.action["group"].value == b"\x01"


def counters_and_a_packet_out(sh: Any) -> None:
    """Read and write counters; a packet-out is counted by the program."""
    packet = sh.PacketOut(b"\x00" * 60, egress_port="1", pad="0")
    packet.send()
    cell = sh.CounterEntry("I.port_count")
    cell.index = 15
    for _ in range(200):
        (found,) = cell.read()
        if found.packet_count:
            break
    assert found.packet_count == 1
    assert found.byte_count == 62
    cell.packet_count = 40
    cell.modify()
    (found,) = cell.read()
    assert found.packet_count == 40
    assert len(list(sh.CounterEntry("I.port_count").read())) == 16
    entry = sh.TableEntry("I.l2")(action="I.forward")
    entry.match["hdr.ethernet.dst"] = "2"
    entry.action["port"] = "3"
    entry.counter_data.packet_count = 9
    entry.insert()
    direct = sh.DirectCounterEntry("I.l2_count")
    direct.table_entry.match["hdr.ethernet.dst"] = "2"
    (found,) = direct.read()
    assert found.packet_count == 9


def profiles_meters_replication_and_digests(sh: Any) -> None:
    """Insert members, groups, meters, multicast groups, clone sessions and digests."""
    member = sh.ActionProfileMember("I.ecmp")(member_id=1, action="I.next_hop")
    member.action["dst"] = "00:00:00:00:00:07"
    member.action["port"] = "2"
    member.insert()
    group = sh.ActionProfileGroup("I.ecmp")(group_id=1)
    group.add(1, weight=2)
    group.insert()
    route = sh.TableEntry("I.routes")(group_id=1)
    route.match["hdr.ipv4.dst"] = "10.0.0.0/8"
    route.insert()
    assert [found.group_id for found in sh.TableEntry("I.routes").read()] == [1]
    assert [found.member_id for found in sh.ActionProfileMember("I.ecmp").read()] == [1]
    meter = sh.MeterEntry("I.port_meter")
    meter.index, meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 1, 2, 3, 4
    meter.modify()
    (found,) = meter.read()
    assert (found.cir, found.cburst, found.pir, found.pburst) == (1, 2, 3, 4)
    multicast = sh.MulticastGroupEntry(1)
    multicast.add(1, 1).add(2, 1)
    multicast.insert()
    assert [len(found.replicas) for found in sh.MulticastGroupEntry(1).read()] == [2]
    session = sh.CloneSessionEntry(5)
    session.add(1, 1)
    session.insert()
    assert [found.session_id for found in sh.CloneSessionEntry(5).read()] == [5]
    digest = sh.DigestEntry("learn_t")
    digest.max_list_size = 10
    digest.insert()
    assert [found.max_list_size for found in sh.DigestEntry("learn_t").read()] == [10]


CASES = (
    insert_read_modify_delete,
    ternary_range_optional_and_default,
    counters_and_a_packet_out,
    profiles_meters_replication_and_digests,
)

if __name__ == "__main__":
    address, p4info, program, case = sys.argv[1:]
    shell.setup(device_id=1, grpc_addr=address, election_id=(0, 1), config=shell.FwdPipeConfig(p4info, program))
    try:
        {function.__name__: function for function in CASES}[case](shell)
    finally:
        shell.teardown()
    print("passed")

"""Setting and getting the forwarding pipeline: every action, every refusal, many devices, and a saved config."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from p4lite.messages import p4runtime_pb2
from support.switch.p4rt import INSERT, Bench, Config, Controller, batch_codes, code_of, control_config, ethernet

pb = p4runtime_pb2
Get = pb.GetForwardingPipelineConfigRequest


@pytest.fixture
def controller(bench: Bench) -> Any:
    """Return a primary without pipeline."""
    with Controller(bench.address) as made:
        made.arbitrate()
        yield made


def get(controller: Controller, kind: int = Get.ALL) -> Any:
    request = Get(device_id=controller.device_id, response_type=kind)
    return controller.stub.GetForwardingPipelineConfig(request)


def changed(change: Callable[[Any, dict[str, Any]], None]) -> Any:
    """control.p4's config with a change to its P4Info or JSON."""
    config = pb.ForwardingPipelineConfig()
    config.CopyFrom(control_config())
    data = json.loads(config.p4_device_config)
    change(config.p4info, data)
    config.p4_device_config = json.dumps(data).encode()
    return config


def l2(info: Any) -> Any:
    return next(table for table in info.tables if table.preamble.alias == "l2")


def test_pipeline_that_was_set_is_returned_with_its_cookie(bench: Bench, controller: Controller) -> None:
    assert not get(controller).HasField("config")
    config = changed(lambda info, data: None)
    config.cookie.cookie = 77
    controller.set_pipeline(config)
    assert get(controller).config == config
    only = get(controller, Get.COOKIE_ONLY).config
    assert (only.cookie.cookie, only.p4_device_config, only.HasField("p4info")) == (77, b"", False)
    assert get(controller, Get.P4INFO_AND_COOKIE).config.p4info == config.p4info
    assert not get(controller, Get.P4INFO_AND_COOKIE).config.p4_device_config
    device = get(controller, Get.DEVICE_CONFIG_AND_COOKIE).config
    assert (device.p4_device_config, device.HasField("p4info")) == (config.p4_device_config, False)
    assert code_of(lambda: get(controller, 9)) == "INVALID_ARGUMENT"
    controller.set_pipeline(control_config())
    assert not get(controller).config.HasField("cookie")


def test_the_older_wrapped_form(bench: Bench, controller: Controller) -> None:
    """P4DeviceConfig: field 1 reassign, field 3 device_data."""
    config = changed(lambda info, data: None)
    blob = config.p4_device_config
    size, digits = len(blob), []
    while size:
        digits.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
    config.p4_device_config = b"\x08\x01\x1a" + bytes(digits) + blob
    controller.set_pipeline(config)
    assert bench.switch.program is not None


def test_commit_clears_what_was_programmed(bench: Bench, controller: Controller) -> None:
    controller.set_pipeline(control_config())
    entity = controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "flood", [b"\1"])
    group = pb.Entity()
    group.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 1
    group.packet_replication_engine_entry.multicast_group_entry.replicas.add(port=b"\3", instance=1)
    controller.write((INSERT, entity), (INSERT, group))
    assert [port for port, _ in bench.send(1, ethernet())] == [3]
    controller.set_pipeline(control_config(), Config.VERIFY)
    assert [port for port, _ in bench.send(1, ethernet())] == [3]
    controller.set_pipeline(control_config())
    assert bench.send(1, ethernet()) == []
    controller.write((INSERT, entity))
    assert bench.send(1, ethernet()) == []  # the group is gone too
    controller.write((INSERT, group))
    assert [port for port, _ in bench.send(1, ethernet())] == [3]


def test_save_then_commit(bench: Bench, controller: Controller) -> None:
    """Between the two, the old program forwards and the new one's entries are collected."""
    controller.set_pipeline(control_config())
    controller.write((INSERT, controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [b"\3"])))
    assert code_of(lambda: controller.set_pipeline(None, Config.COMMIT)) == "NOT_FOUND"
    controller.set_pipeline(control_config(), Config.VERIFY_AND_SAVE)
    everything = pb.Entity(table_entry=pb.TableEntry(table_id=controller.ident("tables", "l2")))
    assert controller.read(everything) == []
    fresh = controller.entry("l2", {"hdr.ethernet.dst": b"\0\2"}, "forward", [b"\4"])
    controller.write((INSERT, fresh))
    assert len(controller.read(everything)) == 1
    assert [port for port, _ in bench.send(1, ethernet())] == [3]
    assert code_of(lambda: controller.set_pipeline(control_config(), Config.COMMIT)) == "INVALID_ARGUMENT"
    controller.set_pipeline(None, Config.COMMIT)
    assert [port for port, _ in bench.send(1, ethernet())] == [4]
    assert len(controller.read(everything)) == 1
    assert code_of(lambda: controller.set_pipeline(None, Config.COMMIT)) == "NOT_FOUND"


def break_reference(info: Any, data: dict[str, Any]) -> None:
    l2(info).action_refs[0].id = 5


def break_name(info: Any, data: dict[str, Any]) -> None:
    l2(info).preamble.name = "I.l3"


def break_width(info: Any, data: dict[str, Any]) -> None:
    l2(info).match_fields[0].bitwidth = 32


def break_kind(info: Any, data: dict[str, Any]) -> None:
    l2(info).match_fields[0].match_type = 3


def break_key(info: Any, data: dict[str, Any]) -> None:
    l2(info).match_fields.add(id=2, name="more", bitwidth=8, match_type=2)


def break_action(info: Any, data: dict[str, Any]) -> None:
    forward = next(action for action in info.actions if action.preamble.alias == "forward")
    forward.params[0].bitwidth = 16


def break_params(info: Any, data: dict[str, Any]) -> None:
    forward = next(action for action in info.actions if action.preamble.alias == "forward")
    del forward.params[:]


def break_counter(info: Any, data: dict[str, Any]) -> None:
    info.counters[0].size = 99


def break_register(info: Any, data: dict[str, Any]) -> None:
    info.registers[0].preamble.name = "I.unseen"


def break_id(info: Any, data: dict[str, Any]) -> None:
    info.counters[0].preamble.id = l2(info).preamble.id


def break_digest(info: Any, data: dict[str, Any]) -> None:
    data["learn_lists"] = []


def break_json(info: Any, data: dict[str, Any]) -> None:
    del data["pipelines"]


@pytest.mark.parametrize(
    "change",
    [
        break_reference,
        break_name,
        break_width,
        break_kind,
        break_key,
        break_action,
        break_params,
        break_counter,
        break_register,
        break_id,
        break_digest,
        break_json,
    ],
)
def test_pipelines_that_cannot_be_realised(bench: Bench, controller: Controller, change: Any) -> None:
    for action in (Config.VERIFY, Config.VERIFY_AND_SAVE, Config.VERIFY_AND_COMMIT):
        assert code_of(lambda a=action: controller.set_pipeline(changed(change), a)) == "INVALID_ARGUMENT"
    assert bench.switch.program is None


def test_pipeline_without_program_or_p4info_is_refused(bench: Bench, controller: Controller) -> None:
    empty = pb.ForwardingPipelineConfig()
    no_info = pb.ForwardingPipelineConfig(p4_device_config=control_config().p4_device_config)
    binary = changed(lambda info, data: None)
    binary.p4_device_config = b"\x7fELF\x02\x01\x01"
    text = changed(lambda info, data: None)
    text.p4_device_config = b"{ not json"
    listed = changed(lambda info, data: None)
    listed.p4_device_config = b"[]"
    cases: list[tuple[Any, int, str]] = [
        (None, Config.VERIFY, "INVALID_ARGUMENT"),
        (None, Config.VERIFY_AND_COMMIT, "INVALID_ARGUMENT"),
        (empty, Config.VERIFY_AND_COMMIT, "INVALID_ARGUMENT"),
        (no_info, Config.VERIFY_AND_COMMIT, "INVALID_ARGUMENT"),
        (binary, Config.VERIFY_AND_COMMIT, "INVALID_ARGUMENT"),
        (text, Config.VERIFY_AND_COMMIT, "INVALID_ARGUMENT"),
        (listed, Config.VERIFY_AND_COMMIT, "INVALID_ARGUMENT"),
        (control_config(), Config.UNSPECIFIED, "INVALID_ARGUMENT"),
        (control_config(), 17, "INVALID_ARGUMENT"),
        (control_config(), Config.RECONCILE_AND_COMMIT, "UNIMPLEMENTED"),
    ]
    for config, action, code in cases:
        assert code_of(lambda c=config, a=action: controller.set_pipeline(c, a)) == code
    assert bench.switch.program is None
    assert code_of(lambda: controller.write()) == "FAILED_PRECONDITION"
    assert code_of(lambda: controller.read()) == "FAILED_PRECONDITION"


def test_a_missing_compiler_is_said(
    bench: Bench, controller: Controller, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert code_of(lambda: controller.set_pipeline(control_config())) == "INTERNAL"
    monkeypatch.undo()
    controller.set_pipeline(control_config())


def test_many_devices_in_one_process(bench: Bench) -> None:
    """Each has its own cookie, entries and primary; the pipeline is verified once, and they share it."""
    controllers = []
    config = changed(lambda info, data: None)
    for device_id in range(2, 26):
        bench.server.add_switch(device_id).add_port(1)
        controller = Controller(bench.address, device_id)
        controllers.append(controller)
        assert controller.arbitrate().status.code == 0
        config.cookie.cookie = device_id
        controller.set_pipeline(config)
        controller.write((INSERT, controller.entry("l2", {"hdr.ethernet.dst": bytes([device_id])}, "forward", [b"\1"])))
    devices = [bench.server.service.device(controller.device_id) for controller in controllers]
    assert len({id(device._entities().pipeline.tables) for device in devices}) == 1
    for controller in controllers:
        assert get(controller, Get.COOKIE_ONLY).config.cookie.cookie == controller.device_id
        query = pb.Entity(table_entry=pb.TableEntry(table_id=controller.ident("tables", "l2")))
        (entity,) = controller.read(query)
        assert entity.table_entry.match[0].exact.value == bytes([controller.device_id])
        controller.close()


def test_capabilities(controller: Controller) -> None:
    assert controller.stub.Capabilities(pb.CapabilitiesRequest()).p4runtime_api_version == "1.4.1"


def test_actions_that_only_code_calls_need_not_be_in_the_json(bench: Bench, controller: Controller) -> None:
    """The compiler inlines them, while the P4Info lists every action of the program."""

    def without(info: Any, data: dict[str, Any]) -> None:
        data["actions"] = [action for action in data["actions"] if action["name"] != "I.count_seen"]
        info.actions.add().preamble.CopyFrom(type(info.actions[0].preamble)(id=77, name="I.inlined", alias="inlined"))

    controller.set_pipeline(changed(without))
    entity = controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "inlined")
    assert batch_codes(lambda: controller.write((INSERT, entity))) == ["INVALID_ARGUMENT"]

"""`P4DeviceConfig`, the message of p4.tmp.p4config in which older controllers wrap the BMv2 JSON of a pipeline."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FILE = "p4/tmp/p4config.proto"
_FIELD = descriptor_pb2.FieldDescriptorProto


def _message() -> Any:
    """Return the class of the message, whose fields are those that `p4rt.pipeline.device_config` reads."""
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package="p4.tmp", syntax="proto3")
    config = file.message_type.add(name="P4DeviceConfig")
    extras = config.nested_type.add(name="Extras")
    pair = extras.nested_type.add(name="KvEntry")
    pair.options.map_entry = True
    _add(pair, "key", 1, _FIELD.TYPE_STRING)
    _add(pair, "value", 2, _FIELD.TYPE_STRING)
    _add(extras, "kv", 1, _FIELD.TYPE_MESSAGE, ".p4.tmp.P4DeviceConfig.Extras.KvEntry", repeated=True)
    _add(config, "reassign", 1, _FIELD.TYPE_BOOL)
    _add(config, "extras", 2, _FIELD.TYPE_MESSAGE, ".p4.tmp.P4DeviceConfig.Extras")
    _add(config, "device_data", 3, _FIELD.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig")
    factory: Any = message_factory.MessageFactory(pool)
    return factory.GetPrototype(descriptor)


def _add(to: Any, name: str, number: int, kind: Any, type_name: str | None = None, *, repeated: bool = False) -> None:
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    to.field.add(name=name, number=number, type=kind, type_name=type_name, label=label)


P4DeviceConfig: Any = _message()

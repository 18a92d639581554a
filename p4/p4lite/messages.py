"""Messages of P4Runtime, P4Info and the target API, built of their descriptors for any protobuf.

The modules of PyPI's p4runtime were generated for protobuf 3 and do not load with a later one. The descriptors in them
do: this module reads them from the source without running it, and builds of each file what its generated module would
hold. All of ours imports the messages from here.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import types
from pathlib import Path
from typing import Any, Final

from google.protobuf import any_pb2 as any_pb2
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal import builder
from google.rpc import code_pb2 as code_pb2
from google.rpc import status_pb2 as status_pb2

#: A descriptor in a generated module: with the protobuf 3 of p4runtime 1.3 to 1.6, and with later ones.
_DESCRIPTOR: Final = re.compile(r"(?:serialized_pb=|AddSerializedFile\()(b'(?:[^'\\]|\\.)*')")


def define(descriptor: bytes, names: dict[str, Any], module: str) -> None:
    """Define the messages and enumerations of a file of protobuf, as its generated module does.

    Args:
        descriptor: a serialised `FileDescriptorProto`, whose imports are in the default pool.
        names: takes `DESCRIPTOR`, and each message and enumeration by its name.
        module: the name that the messages have as that of their module.

    Raises:
        TypeError: the pool holds another file of that name.
    """
    file = names["DESCRIPTOR"] = descriptor_pool.Default().AddSerializedFile(descriptor)
    builder.BuildMessageAndEnumDescriptors(file, names)
    builder.BuildTopDescriptorsAndMessages(file, module, names)


def _of_p4runtime(name: str) -> Any:
    """Return the messages of a generated module of p4runtime, such as p4.v1.p4data_pb2, as a module.

    Raises:
        ImportError: p4runtime is not installed, or that module holds no descriptor.
    """
    try:
        path = importlib.metadata.distribution("p4runtime").locate_file(name.replace(".", "/") + ".py")
        found = _DESCRIPTOR.search(Path(str(path)).read_text(encoding="utf-8"))
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        raise ImportError(f"the messages of P4Runtime are missing ({error}): pip install p4runtime") from None
    if found is None:
        raise ImportError(f"{path}: no descriptor of protobuf is in it: pip install p4runtime==1.6.0")
    module = types.ModuleType(name)
    define(ast.literal_eval(found[1]), module.__dict__, name)
    return module


p4types_pb2: Final = _of_p4runtime("p4.config.v1.p4types_pb2")
p4info_pb2: Final = _of_p4runtime("p4.config.v1.p4info_pb2")
p4data_pb2: Final = _of_p4runtime("p4.v1.p4data_pb2")
p4runtime_pb2: Final = _of_p4runtime("p4.v1.p4runtime_pb2")


class P4RuntimeStub:
    """Methods of P4Runtime through a channel of gRPC; each takes a message or an iterator of them."""

    Write: Any
    Read: Any
    SetForwardingPipelineConfig: Any
    GetForwardingPipelineConfig: Any
    StreamChannel: Any
    Capabilities: Any

    def __init__(self, channel: Any) -> None:
        """Bind all methods to a `grpc.Channel`."""
        service = p4runtime_pb2.DESCRIPTOR.services_by_name["P4Runtime"]
        for method in service.methods:
            kind = (
                f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
            )
            call = getattr(channel, kind)(
                f"/{service.full_name}/{method.name}",
                request_serializer=message_factory.GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

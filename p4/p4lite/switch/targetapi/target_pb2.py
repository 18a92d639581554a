"""Messages of the target API, of the descriptors that `make proto` writes; their types are in `target_pb2.pyi`."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from p4lite import messages

for _file in FileDescriptorSet.FromString(Path(__file__).with_name("target.binpb").read_bytes()).file:
    messages.define(_file.SerializeToString(), globals(), __name__)

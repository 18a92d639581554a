"""One packet at a time through a program without a traffic manager: parser, ingress, egress, deparser.

For tests and diagnosis of a program. Clones, multicast, resubmission and recirculation are the fabric core's business
and only reported here.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int64, c_uint8, c_uint32, c_void_p
from dataclasses import dataclass, field
from typing import Any

from p4lite.switch.runtime.loader import ProgramInstance

MAX_PACKET = 1 << 16


@dataclass(frozen=True)
class Result:
    """The outcome of a packet: where it went (`dropped`: nowhere), its bytes, and its flags."""

    port: int
    data: bytes
    dropped: bool
    parser_error: int
    checksum_error: int
    mcast_grp: int
    packet_length: int
    clone_session: int | None
    clone_field_list: int
    digest: tuple[int, bytes] | None
    resubmit: int
    recirculate: int
    truncate_to: int | None
    fields: dict[str, int] = field(default_factory=dict)  # target fields at the end of egress


class Runner:
    """Drives one instance through the functions of pipeline.h."""

    def __init__(self, instance: ProgramInstance):
        self.instance = instance
        about = instance.opened.about
        self.struct: Any = about.structures["p4_program"].from_address(instance.opened.pointer)
        self.field_ids = {name: i for i, name in enumerate(about.names("p4_field_id"))}
        self._constants = about.enums["p4_constant"]
        phv, inst, data = c_void_p, c_void_p, c_char_p
        function = instance.opened.function
        self._reset = function("phv_reset", None, phv)
        self._parse = function("parse", None, inst, phv, data, c_uint32)
        self._ingress = function("ingress", None, inst, phv)
        self._egress = function("egress", None, inst, phv)
        self._deparse = function("deparse", c_int64, inst, phv, data, c_uint32, POINTER(c_uint8), c_uint32)
        self._digest = function("digest", c_int64, c_uint32, phv, POINTER(c_uint8), c_uint32)
        self._copy_list = function("copy_field_list", None, c_uint32, phv, phv)
        self._memory = (c_uint8 * (self.struct.phv_size + 64))()
        self._out = (c_uint8 * MAX_PACKET)()
        self.phv = (ctypes.addressof(self._memory) + 63) // 64 * 64
        self.head: Any = about.structures["p4_phv"].from_address(self.phv)
        function("phv_init", None, phv)(self.phv)

    def get(self, name: str) -> int | None:
        """Return a target field by its name in `enum p4_field_id` (lower case, no prefix); None if the program lacks
        it.
        """
        f = self.struct.fields[self.field_ids[name]]
        if f.offset < 0:
            return None
        raw = ctypes.string_at(self.phv + f.offset, f.size)
        return int.from_bytes(raw, "little")

    def set(self, name: str, value: int) -> None:
        f = self.struct.fields[self.field_ids[name]]
        if f.offset >= 0:
            raw = (value & ((1 << f.width) - 1)).to_bytes(f.size, "little")
            ctypes.memmove(self.phv + f.offset, raw, f.size)

    def run(self, data: bytes, port: int = 0, *, now_ns: int | None = None, drop_port: int = 511) -> Result:
        """Send `data` in at `port`; egress runs unless ingress dropped it."""
        inst = self.instance.pointer
        if now_ns is not None:
            self.instance.set_now(now_ns)
        self._reset(self.phv)
        self.head.packet_length = self.head.ingress_length = len(data)
        self.set("ingress_port", port)
        self.set("packet_length", len(data))
        self._parse(inst, self.phv, data, len(data))
        self.set("parser_error", self.head.parser_error)
        self.set("checksum_error", self.head.checksum_error)
        self._ingress(inst, self.phv)
        mcast, spec = self.get("mcast_grp") or 0, self.get("egress_spec") or 0
        digest = None
        if self.head.digest:
            size = self._digest(self.head.digest, self.phv, self._out, MAX_PACKET)
            digest = (self.head.digest, bytes(self._out[: max(size, 0)]))
        if mcast == 0 and spec == drop_port:
            return self._result(spec, b"", True, mcast, digest)
        self.set("egress_port", spec)
        self.set("egress_spec", drop_port + 1)
        self.set("packet_length", self.head.packet_length)
        self._egress(inst, self.phv)
        if self.get("egress_spec") == drop_port:
            return self._result(spec, b"", True, mcast, digest)
        payload = data[self.head.payload_offset :]
        size = self._deparse(inst, self.phv, payload, len(payload), self._out, MAX_PACKET)
        out = bytes(self._out[:size]) + payload
        if self.head.truncate_to != self._constants["no_truncate"]:
            out = out[: self.head.truncate_to]
        return self._result(spec, out, False, mcast, digest)

    def _result(self, port: int, data: bytes, dropped: bool, mcast: int, digest: tuple[int, bytes] | None) -> Result:
        h, known = self.head, self._constants
        return Result(
            port=port,
            data=data,
            dropped=dropped,
            parser_error=h.parser_error,
            checksum_error=h.checksum_error,
            mcast_grp=mcast,
            packet_length=h.packet_length,
            clone_session=h.clone_session & known["clone_mask"] if h.clone_session & known["clone_valid"] else None,
            clone_field_list=h.clone_field_list,
            digest=digest,
            resubmit=h.resubmit,
            recirculate=h.recirculate,
            truncate_to=None if h.truncate_to == known["no_truncate"] else h.truncate_to,
            fields={n: v for n in self.field_ids if (v := self.get(n)) is not None},
        )

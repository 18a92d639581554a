"""The adapter of our agents: `python -m mrc_conform.adapters.verbs DEVICE`, with a socket or a host's name.

It runs beside the agent (`mrclab exec HOST -- ...` in a lab) and carries the kit's requests out by `mrc_host.verbs`.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Mapping
from typing import Any

from mrc_conform.adapters import lines
from mrc_conform.device import DeviceError, Need, Outcome, PairState
from mrc_host import verbs

_OFFERS = (Need.POST, Need.MEMORY, Need.EVS, Need.STATES, Need.SECOND_QP)
_STATES = {PairState.ERROR: verbs.QpState.ERR, PairState.RESET: verbs.QpState.RESET}


class VerbsAdapter:
    """One connection to an agent, and the objects of the present case on it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._context: verbs.Context | None = None
        self._settings: Mapping[str, str] = {}

    def close(self) -> None:
        """Give all objects of the present case back."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def handle(self, asked: lines.Request) -> dict[str, object]:
        """Carry out a request and return the values of the answer. Raises DeviceError and VerbsError."""
        method = getattr(self, f"_do_{asked.word}", None)
        if method is None:
            raise DeviceError(f"unknown request '{asked.word}'")
        found: dict[str, object] | None = method(asked.values)
        return found or {}

    def _do_hello(self, values: Mapping[str, str]) -> dict[str, object]:
        return {"protocol": lines.PROTOCOL, "offers": ",".join(need.name for need in _OFFERS)}

    def _do_start(self, values: Mapping[str, str]) -> None:
        self.close()
        self._settings = values
        self._context = context = verbs.open_device(self._device)
        self._domain = verbs.ProtectionDomain(context)
        self._cq = verbs.CompletionQueue(context, 1024)
        self._pairs: dict[int, verbs.QueuePair] = {}
        self._regions: dict[int, verbs.MemoryRegion] = {}
        self._sources: list[verbs.MemoryRegion] = []
        self._done: list[verbs.WorkCompletion] = []

    def _do_create(self, values: Mapping[str, str]) -> dict[str, object]:
        pair = verbs.QueuePair(self._domain, self._cq, sq_sig_all=True, wire=verbs.Wire.MRC)
        given: dict[str, Any] = {key: int(self._settings[key]) for key in ("mpr_dest", "max_wimm_dest")}
        given |= {key: self._settings[key] == "1" for key in ("dynamic_mpr", "trim_nack", "service_time")}
        pair.modify(**given)
        document = pair.document()
        if int(self._settings["sq_psn"]) >= 0:
            document["psn"] = int(self._settings["sq_psn"])
        self._pairs[pair.qp_num] = pair
        return {"number": pair.qp_num, "psn": document["psn"], "address": document["address"]}

    def _do_connect(self, values: Mapping[str, str]) -> None:
        pair = self._pair(values)
        numbers = ("psn", "mtu", "p_key", "ports", "ports_up", "port_status", "instance", "mpr_dest", "max_wimm_dest")
        document: dict[str, Any] = {key: int(values[key]) for key in numbers}
        document |= {key: values[key] == "1" for key in ("dynamic_mpr", "trim_nack", "service_time")}
        document |= {"format": "mrc-qp/2", "qpn": int(values["remote_number"]), "udp_port": 4791}
        document["address"] = str(ipaddress.IPv6Address(values["address"]))
        pair.modify(verbs.QpState.RTR, document=document)
        names = ("mpr", "max_wimm", "timeout", "linear_cnt", "exp_cnt")
        given: dict[str, Any] = {key: int(self._settings[key]) for key in names}
        if int(self._settings["sq_psn"]) >= 0:
            given["sq_psn"] = int(self._settings["sq_psn"])
        pair.modify(verbs.QpState.RTS, **given)

    def _do_region(self, values: Mapping[str, str]) -> dict[str, object]:
        access = verbs.Access.LOCAL_WRITE
        if values["writable"] == "1":
            access |= verbs.Access.REMOTE_WRITE
        made = verbs.MemoryRegion(self._domain, int(values["length"]), access)
        self._regions[made.rkey] = made
        return {"va": made.addr, "rkey": made.rkey}

    def _do_deregister(self, values: Mapping[str, str]) -> None:
        self._regions[int(values["rkey"])].destroy()

    def _do_read(self, values: Mapping[str, str]) -> dict[str, object]:
        found = self._regions[int(values["rkey"])]
        return {"data": bytes(found.buffer).hex()}

    def _do_write(self, values: Mapping[str, str]) -> None:
        data = bytes.fromhex(values["data"])
        source = verbs.MemoryRegion(self._domain, max(len(data), 1))
        source.buffer[: len(data)] = data
        self._sources.append(source)
        pair, piece = self._pair(values), source.sge(0, len(data))
        va, rkey, wr_id = int(values["va"]), int(values["rkey"]), int(values["wr_id"])
        flags = verbs.SendFlags.SIGNALED
        if values["solicited"] == "1":
            flags |= verbs.SendFlags.SOLICITED
        if values["immediate"] == "-":
            pair.post_write(piece, va, rkey, wr_id=wr_id, flags=flags)
        else:
            pair.post_write_imm(piece, va, rkey, int(values["immediate"]), wr_id=wr_id, flags=flags)

    def _do_receive(self, values: Mapping[str, str]) -> None:
        self._pair(values).post_recv(int(values["wr_id"]))

    def _do_completions(self, values: Mapping[str, str]) -> dict[str, object]:
        self._done += self._cq.poll(256)
        number = int(values["number"])
        mine = [each for each in self._done if each.qp_num == number]
        self._done = [each for each in self._done if each.qp_num != number]
        return {"list": ";".join(map(_completion, mine))}

    def _do_state(self, values: Mapping[str, str]) -> dict[str, object]:
        found = self._pair(values).query().state
        return {"state": "ERROR" if found is verbs.QpState.ERR else found.name}

    def _do_modify(self, values: Mapping[str, str]) -> None:
        state = PairState(values["state"])
        if state not in _STATES:
            raise DeviceError(f"a queue pair goes to ERROR and RESET on demand, not to {state.value}")
        self._pair(values).modify(_STATES[state])

    def _do_evs(self, values: Mapping[str, str]) -> dict[str, object]:
        rows = self._pair(values).query_evs()
        return {"list": ";".join(f"{row.ev}:{row.plane}:{row.state}:{int(row.active)}" for row in rows)}

    def _do_finish(self, values: Mapping[str, str]) -> None:
        # The user of the queue pair is gone when its connection to the agent ends.
        self.close()

    def _pair(self, values: Mapping[str, str]) -> verbs.QueuePair:
        return self._pairs[int(values["number"])]


def _completion(each: verbs.WorkCompletion) -> str:
    receive = each.opcode is verbs.WcOpcode.RECV_RDMA_WITH_IMM or each.opcode is verbs.WcOpcode.RECV
    immediate = str(each.imm_data) if each.wc_flags & verbs.WcFlags.WITH_IMM and receive else "-"
    name = each.status.name
    outcome = name if name in Outcome.__members__ else Outcome.LOC_QP_OP_ERR.name
    return f"{each.wr_id}:{outcome}:{int(receive)}:{each.byte_len}:{immediate}"


def main() -> None:
    """Answer the lines of standard input until it ends."""
    adapter = VerbsAdapter(sys.argv[1])
    try:
        for line in sys.stdin:
            try:
                found = adapter.handle(lines.parse(line))
                print(lines.request("ok", **found).line(), flush=True)
            except (DeviceError, verbs.VerbsError, KeyError, ValueError) as error:
                print(f"error {' '.join(str(error).split())}", flush=True)
    finally:
        adapter.close()


if __name__ == "__main__":
    main()

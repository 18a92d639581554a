"""A real agent in a namespace: the process of a lab's host, on veth interfaces, with the kit at the other end."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import subprocess
import sys
import time
from typing import Any, Final

from mrc_conform.adapters.process import ProcessAdapter
from mrc_conform.device import Control, DeviceError, EvEntry, Local, Need, Remote, Settings
from mrc_conform.devices.interface import WireDevice
from mrc_host.verbs.connection import verbs_socket
from p4lite.scratch import scratch

_PLANES: Final = 2
_AGENT: Final = ipaddress.IPv6Address("fd00:c0::1")
_READY_S: Final = 30.0
_MTU: Final = 9000
#: The round trip that the agent is configured with, ns: a process that waits for its turn takes milliseconds.
_BASE_RTT_NS: Final = 5_000_000


def _mac(side: int, plane: int) -> str:
    return f"02:c0:00:00:0{side}:{plane:02x}"


def _names(plane: int) -> tuple[str, str]:
    """Return the interfaces of a plane's cable: the agent's and the kit's."""
    return f"dut{plane}", f"kit{plane}"


def make_cables() -> None:
    """Make a veth pair for each plane in this network namespace, which must be one of the kit's own.

    Raises:
        DeviceError: the namespace gives no rights to do so.
    """
    for plane in range(_PLANES):
        dut, kit = _names(plane)
        commands = [
            f"ip link add {dut} mtu {_MTU} type veth peer name {kit} mtu {_MTU}",
            f"ip link set {dut} address {_mac(1, plane)} addrgenmode none up",
            f"ip link set {kit} address {_mac(2, plane)} addrgenmode none up",
        ]
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                raise DeviceError(f"`{command}`: {done.stderr.strip()}")


def configuration(settings: Settings, timeout: int) -> dict[str, Any]:
    """Return the agent's configuration for the settings of a case."""
    fixed = settings.control is Control.FIXED
    cc: dict[str, Any] = {
        "algorithm": settings.control.value,
        "line_rate_bps": settings.line_rate_bps,
        "base_rtt_ns": _BASE_RTT_NS,
        "trimming": settings.fabric_trims,
    }
    cc |= {"fixed_window_bytes": settings.window} if fixed else settings.nscc
    return {
        "name": "dut",
        "address": str(_AGENT),
        "ports": _PLANES,
        "rate_bps": [settings.line_rate_bps // _PLANES] * _PLANES,
        "interfaces": [_names(plane)[0] for plane in range(_PLANES)],
        "macs": [_mac(1, plane) for plane in range(_PLANES)],
        "gateways": [_mac(2, plane) for plane in range(_PLANES)],
        "settings": {
            "wire": {
                "mtu": settings.mtu,
                "p_key": settings.p_key,
                "timestamps": settings.timestamps,
                "fabric_trims": settings.fabric_trims,
            },
            "reliability": {
                "timeout": timeout if settings.timeout is None else settings.timeout,
                "sack_every": settings.sack_every,
                "sack_delay_ns": settings.sack_delay_ns,
                "hole_cycle": settings.hole_cycle,
                "always_skip_after": settings.always_skip_after,
                "same_ev_inference": settings.same_ev_inference,
                "rack_inference": settings.rack_inference,
                "adaptive_reordering": settings.adaptive_reordering,
                "tail_probe": settings.tail_probe,
            },
            "ev": {
                "count": settings.ev_count * _PLANES // settings.planes,
                "active": settings.ev_active * _PLANES // settings.planes,
                "ev_min_active": settings.ev_min_active,
                "probe_interval_ns": max(settings.probe_interval_ns, 20_000_000),
                "probe_timeout_ns": max(settings.probe_timeout_ns, 100_000_000),
                "probes_to_revive": settings.probes_to_revive,
                "probe_burst": settings.probe_burst,
                "reverse_probes": settings.reverse_probes,
                "rescan_rounds": settings.rescan_rounds,
            },
            "cc": cc,
            "ports": {
                "status_repeat_ns": 20_000_000,
                "status_repeat_max_ns": 1_000_000_000,
                "balance_slack_packets": settings.balance_slack,
                "balance_patience_ns": 20_000_000,
            },
        },
    }


class AgentDevice(WireDevice):
    """See the module's docstring. An agent serves the cases in a row that need the same configuration."""

    def __init__(self, adapter: str = "") -> None:
        """Make the cables and start an agent with the usual settings.

        `adapter`: a command that takes the place of ours; MRC_DEVICE in its environment is the agent's socket for
        programs. Raises DeviceError.
        """
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(scratch("conform"))
        self._agent: subprocess.Popen[bytes] | None = None
        self._running: dict[str, Any] = {}
        self._socket = self._folder / "dut.sock"
        self._case = 0
        self._planes = _PLANES
        try:
            make_cables()
            self._serve(Settings())
            device = str(verbs_socket(self._socket))
            command = adapter or [sys.executable, "-m", "mrc_conform.adapters.verbs", device]
            asked = ProcessAdapter(command, MRC_DEVICE=device)
            kits = [_names(plane)[1] for plane in range(_PLANES)]
            macs = [bytes.fromhex(_mac(1, plane).replace(":", "")) for plane in range(_PLANES)]
            super().__init__(kits, macs, asked, self._next_address())
        except BaseException:
            self._end_agent()
            self._stack.close()
            raise
        self.name = "our agent on the real clock"
        self.offers = self.offers | {Need.SETTINGS}

    def _next_address(self) -> bytes:
        """Return an address of the kit that the agent has not seen yet: each case has a peer of its own."""
        self._case += 1
        return ipaddress.IPv6Address(int(ipaddress.IPv6Address("fd00:c0::1:0")) + self._case).packed

    def start(self, settings: Settings, seed: int) -> None:
        """See `Device`; restarts the agent when its configuration is another."""
        self.kit_address = self._next_address()
        self._planes = settings.planes
        self._serve(settings)
        super().start(settings, seed)

    def connect(self, local: Local, remote: Remote) -> None:
        """See `Device`: the agent has all planes, and those that a case does not use are down at the kit."""
        super().connect(local, dataclasses.replace(remote, ports=_PLANES))

    def evs(self, local: Local) -> list[EvEntry]:
        """See `Device`; without those of planes that the case does not use."""
        return [entry for entry in super().evs(local) if entry.plane < self._planes]

    def _serve(self, settings: Settings) -> None:
        wanted = configuration(settings, self.timeout)
        if wanted == self._running:
            return
        self._end_agent()
        config = self._folder / "dut.json"
        config.write_text(json.dumps(wanted), encoding="utf-8")
        self._agent = subprocess.Popen(
            [sys.executable, "-P", "-m", "mrc_host.agent", str(config), str(self._socket)], stdin=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _READY_S
        while not verbs_socket(self._socket).exists():
            if self._agent.poll() is not None:
                raise DeviceError(f"the agent ended with exit code {self._agent.returncode} while it started")
            if time.monotonic() > deadline:
                raise DeviceError(f"the agent was not ready after {_READY_S:.0f} s")
            time.sleep(0.01)
        self._running = wanted

    def _end_agent(self) -> None:
        if self._agent is not None:
            self._agent.terminate()
            try:
                self._agent.wait(10)
            except subprocess.TimeoutExpired:
                self._agent.kill()
                self._agent.wait()
            self._agent = None
            for path in self._folder.glob("dut.*"):
                path.unlink()

    def close(self) -> None:
        """See `Device`."""
        super().close()
        self._end_agent()
        self._stack.close()

"""Shaping by `tc` of packets that leave an interface, as Mininet's links set it up, for a switch that sends past `tc`.

The switch then delays and paces packets itself. So they wait in the switch's queues, where programs see them.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from p4lite.switch.fabric.values import LinkSettings

SECONDS = 10
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE = re.compile(r"^class htb .*?\brate ([0-9.]+)([KMGT]?)bit\b", re.M)


def settings(interface: str) -> LinkSettings:
    """Return rate, delay and loss of an interface's htb class and netem queue; without these, none.

    An interface whose settings cannot be read counts as one without.
    """
    # Not every tc has classes as JSON.
    rates = [float(number) * UNITS[unit] for number, unit in _RATE.findall(_tc("class", "show", "dev", interface))]
    return LinkSettings(rate_bps=round(min(rates, default=0)), **_netem(_tc("-j", "qdisc", "show", "dev", interface)))


def _netem(shown: str) -> dict[str, Any]:
    """Return delay and loss of a netem queue from the JSON of `tc qdisc show`."""
    try:
        queues = json.loads(shown or "[]")
    except ValueError:
        return {}
    for item in queues:
        if item.get("kind") == "netem":
            options = item.get("options", {})
            delay_s = options.get("delay", {}).get("delay", 0.0)
            return {"delay_ns": round(delay_s * 1e9), "loss": options.get("loss-random", {}).get("loss", 0.0)}
    return {}


def _tc(*words: str) -> str:
    try:
        done = subprocess.run(["tc", *words], capture_output=True, text=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout

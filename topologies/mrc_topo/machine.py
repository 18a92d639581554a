"""Entry of a lab file for a machine that runs a part of the lab."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field

from mrc_topo.base.document import SSH_NAME, Model, printable


def _one_machine(text: str) -> str:
    """Return the text of a numeric address of one machine. Raises ValueError for any other text."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(
            f"'{printable(text)}' is not an IP address; give a number such as 10.0.0.1, and no name"
        ) from None
    if found.is_unspecified or found.is_multicast or "%" in text:
        raise ValueError(f"{text} is not an address of one machine")
    return str(found)


class MachineSpec(Model):
    """A machine that runs a slice of a lab (docs/machines.md). The one without `ssh` is the machine on which `mrclab
    up` runs. Tunnels to the other machines end at `address`, on UDP ports from `port_base` on. `hosts` and `switches`
    are names, shell patterns (`p0-*`), or a range of hosts (`h0..h7`)."""

    ssh: Annotated[str, Field(max_length=255, pattern=SSH_NAME)] | None = None
    address: Annotated[str, Field(max_length=64), AfterValidator(_one_machine)]
    port_base: Annotated[int, Field(ge=1024, le=65535)] = 47000
    hosts: list[Annotated[str, Field(min_length=1, max_length=64)]] = []
    switches: list[Annotated[str, Field(min_length=1, max_length=64)]] = []

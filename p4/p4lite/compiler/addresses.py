"""Addresses as people write them, and what P4 has for them: a plain number."""

from __future__ import annotations

import ipaddress
import re

_FORMS = re.compile(
    r"(?<![\w.:])(?:"
    r"(?P<mac>(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2})"
    r"|(?P<v4>\d{1,3}(?:\.\d{1,3}){3})(?:/(?P<bits4>\d+))?(?![\w.])"
    r"|(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f]*)(?:/(?P<bits6>\d+))?(?![\w.])"
    r")(?!\w)"
)


def address_at(text: str, column: int) -> tuple[int, str, str] | None:
    """Return the address in a line that a column is in: where it begins, its text, and what P4 has for it.

    Columns count from 1; None if there is no address.
    """
    for found in _FORMS.finditer(text):
        if found.start() < column <= found.end() + 1:
            number = number_of(found[0])
            return None if number is None else (found.start() + 1, found[0], number)
    return None


def number_of(text: str) -> str | None:
    """Return how P4 writes an address, or a prefix with its mask; None if the text is no address."""
    found = _FORMS.fullmatch(text.strip())
    if found is None:
        return None
    if found["mac"]:
        return "0x" + re.sub("[:-]", "", found["mac"]).lower()
    try:
        address = ipaddress.ip_address(found["v4"] or found["v6"])
        width = address.max_prefixlen
        number = f"0x{int(address):0{width // 4}x}"
        bits = found["bits4"] or found["bits6"]
        if bits is None:
            return number
        mask = int(ipaddress.ip_network((address, int(bits)), strict=False).netmask)
        return f"{number} &&& 0x{mask:0{width // 4}x}"
    except ValueError:
        return None

"""The example of docs/howto/p4-tools.md, which the tests of the tools use, and frames for it."""

from __future__ import annotations

import pathlib
from functools import cache

import p4lite
from support import docs

PAGE = pathlib.Path(__file__).parents[3] / "docs/howto/p4-tools.md"
FORWARD = p4lite.Action("forward", to="00:00:00:00:00:02", port=2)


def saved(name: str) -> str:
    """Return a file that the page has its reader save."""
    return next(block.text for block in docs.blocks(PAGE) if block.file == name)


@cache
def router() -> p4lite.Program:
    """Return the router of the page."""
    return p4lite.compile(saved("router.p4"))


def ipv4(dst: str = "0a000002", ttl: int = 64, payload: bytes = b"") -> bytes:
    """Return an Ethernet frame with an IPv4 header."""
    ethernet = bytes.fromhex("0000000000010000000000030800")
    return ethernet + bytes.fromhex(f"4500001400000000{ttl:02x}0000000a000001{dst}") + payload

"""Offloads: work that network interfaces do in the place of the protocol stack, and the calls that switch it off.

A capture buffer of libpcap, by which BMv2 receives, has slots for the largest frame that can come. While an interface
may join segments that is 256 KiB, so that two megabytes hold eight frames and a ninth in a burst is lost.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
from collections.abc import Iterable

SIOCETHTOOL = 0x8946
#: The ethtool commands that switch segmentation (TCP, UDP, generic) and generic reception, and (flags) large reception.
SWITCHES = {"tso": 0x1F, "ufo": 0x22, "gso": 0x24, "gro": 0x2C, "lro": 0x26}


class _Value(ctypes.Structure):
    _fields_ = [("command", ctypes.c_uint32), ("data", ctypes.c_uint32)]


class _Request(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 16), ("value", ctypes.POINTER(_Value)), ("rest", ctypes.c_char * 16)]


def switch_off(interfaces: Iterable[str]) -> None:
    """Switch off all offloads of `SWITCHES`; skip one that an interface does not support."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in interfaces:
            for command in SWITCHES.values():
                value = _Value(command, 0)
                request = _Request(name.encode(), ctypes.pointer(value))
                try:
                    fcntl.ioctl(sock, SIOCETHTOOL, request)
                except OSError:
                    continue

"""The lines that an adapter reads and writes: a word, and `key=value` pairs without spaces.

The kit writes a request (`create`, `connect number=3 psn=17`), the adapter answers with one line: `ok key=value ...`,
or `error TEXT`. docs/reference/conformance-adapters.md lists the requests.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from mrc_conform.device import DeviceError, Done, EvEntry, Local, Need, Outcome, PathState, Region, Remote, Settings

#: The version of these lines, in the answer to `hello`.
PROTOCOL = 1


@dataclass(frozen=True)
class Request:
    """One request: its word and its values."""

    word: str
    values: Mapping[str, str]

    def line(self) -> str:
        """Return the line, without its end."""
        return " ".join([self.word, *(f"{key}={value}" for key, value in self.values.items())])


def request(word: str, **values: object) -> Request:
    """Return a request; bytes travel as hexadecimal digits, truth as 0 and 1."""
    return Request(word, {key: _written(value) for key, value in values.items()})


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def parse(line: str) -> Request:
    """Read a line. Raises DeviceError for one that is not made so."""
    word, *pairs = line.split()
    values = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found:
            raise DeviceError(f"adapter line {line!r:.100}: '{pair}' is not key=value")
        values[key] = value
    return Request(word, values)


def answer(line: str, asked: str) -> Mapping[str, str]:
    """Return the values of an answer. Raises DeviceError when it is an error or no answer."""
    text = line.strip()
    if text.startswith("error"):
        raise DeviceError(f"adapter, {asked}: {text.removeprefix('error').strip() or 'refused without a reason'}")
    if not text.startswith("ok"):
        raise DeviceError(
            f"adapter, {asked}: the answer is {text!r:.100}, expected a line that begins with ok or error"
        )
    return parse(text).values


def number(values: Mapping[str, str], key: str) -> int:
    """Return a number of an answer. Raises DeviceError when it is missing or none."""
    try:
        return int(values[key], 0)
    except (KeyError, ValueError):
        raise DeviceError(f"adapter: the answer has no number {key}: {dict(values)}") from None


def offers(values: Mapping[str, str]) -> frozenset[Need]:
    """Return what an adapter offers, of the answer to `hello`. Raises DeviceError for a word that is none."""
    found = set()
    for word in filter(None, values.get("offers", "").split(",")):
        if word not in Need.__members__:
            raise DeviceError(f"adapter: it offers {word}; known: {', '.join(Need.__members__)}")
        found.add(Need[word])
    return frozenset(found)


def remote_values(remote: Remote) -> dict[str, object]:
    """Return the kit as the peer, for `connect`."""
    return {
        "address": ipaddress.IPv6Address(remote.address),
        "remote_number": remote.number,
        "psn": remote.psn,
        "mtu": remote.mtu,
        "ports": remote.ports,
        "ports_up": remote.ports_up,
        "port_status": remote.port_status,
        "instance": remote.instance,
        "mpr_dest": remote.mpr_dest,
        "max_wimm_dest": remote.max_wimm_dest,
        "dynamic_mpr": remote.dynamic_mpr,
        "trim_nack": remote.trim_nack,
        "service_time": remote.service_time,
        "p_key": remote.p_key,
    }


def settings_values(settings: Settings, timeout: int) -> dict[str, object]:
    """Return what a case asks of a queue pair, for `start`."""
    return {
        "mtu": settings.mtu,
        "planes": settings.planes,
        "timeout": timeout if settings.timeout is None else settings.timeout,
        "linear_cnt": settings.linear_cnt,
        "exp_cnt": settings.exp_cnt,
        "mpr": settings.mpr,
        "mpr_dest": settings.mpr_dest,
        "max_wimm": settings.max_wimm,
        "max_wimm_dest": settings.max_wimm_dest,
        "dynamic_mpr": settings.dynamic_mpr,
        "trim_nack": settings.trim_nack,
        "service_time": settings.service_time,
        "sq_psn": -1 if settings.first_psn is None else settings.first_psn,
    }


def local(values: Mapping[str, str]) -> Local:
    """Return a queue pair, of the answer to `create`. Raises DeviceError."""
    try:
        address = ipaddress.IPv6Address(values.get("address", "")).packed
    except ValueError as error:
        raise DeviceError(f"adapter, create: {error}") from None
    return Local(address, number(values, "number"), number(values, "psn"))


def region(values: Mapping[str, str], length: int) -> Region:
    """Return memory, of the answer to `region`. Raises DeviceError."""
    return Region(number(values, "va"), number(values, "rkey"), length)


def completions(values: Mapping[str, str]) -> list[Done]:
    """Return completions, of the answer to `completions`: `wr_id:OUTCOME:receive:length:immediate`, separated by `;`.

    Raises:
        DeviceError: a list that is not made so.
    """
    found = []
    for entry in filter(None, values.get("list", "").split(";")):
        try:
            wr_id, outcome, receive, length, immediate = entry.split(":")
            value = None if immediate == "-" else int(immediate, 0)
            found.append(Done(int(wr_id), Outcome[outcome], receive == "1", int(length), value))
        except (ValueError, KeyError):
            raise DeviceError(
                f"adapter, completions: {entry!r}, expected wr_id:OUTCOME:receive:length:immediate"
            ) from None
    return found


def evs(values: Mapping[str, str]) -> list[EvEntry]:
    """Return EVs, of the answer to `evs`: `value:plane:STATE:active`, separated by `;`. Raises DeviceError."""
    found = []
    for entry in filter(None, values.get("list", "").split(";")):
        try:
            value, plane, state, active = entry.split(":")
            found.append(EvEntry(int(value, 0), int(plane), PathState[state], active == "1"))
        except (ValueError, KeyError):
            raise DeviceError(f"adapter, evs: {entry!r}, expected value:plane:STATE:active") from None
    return found

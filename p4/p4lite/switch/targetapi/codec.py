"""The target API's wire form: JSON objects, and the fabric's value types as parts of them.

JSON, because counters and registers must stay exact integers and statistics of a whole fabric must be cheap to
encode; a protobuf Struct knows only doubles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from p4lite.switch.fabric.values import (
    BurstLoss,
    CreditSettings,
    CreditStats,
    Lag,
    Lateness,
    LinkSettings,
    PfcSettings,
    PfcStats,
    PortStats,
    QueueLimits,
    QueueStats,
    SwitchStats,
    TunnelStats,
)

SERVICE = "mrclab.target.v1.Target"


class CodecError(ValueError):
    """A value of the wrong form; the text names the place."""


def dump(value: Any) -> bytes:
    """One message."""
    return json.dumps(value, separators=(",", ":")).encode()


def load(data: bytes) -> dict[str, Any]:
    """One message; CodecError when it is no JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"the request is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise CodecError("the request is no JSON object")
    return value


def check_keys(value: Any, where: str, known: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
    """`value` if it is an object with no other keys than `known`."""
    if not isinstance(value, dict):
        raise CodecError(f"{where}: expected an object, got {value!r}")
    for key in value:
        if key not in known:
            raise CodecError(f"{where}: no such key '{key}'; known: {', '.join(known)}")
    return value


def integer(value: Any, where: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """`value` if it is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise CodecError(f"{where}: expected an integer from {low} to {high}, got {value!r}")
    return value


def boolean(value: Any, where: str) -> bool:
    """`value` if it is true or false."""
    if not isinstance(value, bool):
        raise CodecError(f"{where}: expected true or false, got {value!r}")
    return value


def number(value: Any, where: str) -> float:
    """`value` if it is a probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise CodecError(f"{where}: expected a number from 0 to 1, got {value!r}")
    return float(value)


def text(value: Any, where: str) -> str:
    """`value` if it is a string."""
    if not isinstance(value, str):
        raise CodecError(f"{where}: expected a string, got {value!r}")
    return value


_BURST_FIELDS = tuple(field.name for field in fields(BurstLoss))
_LINK_FIELDS = tuple(field.name for field in fields(LinkSettings))
_PFC_FIELDS = tuple(field.name for field in fields(PfcSettings))
_DEFAULTS = LinkSettings()


def link_settings(value: Any, where: str, base: LinkSettings | None = None) -> LinkSettings:
    """LinkSettings from an object; keys left out keep `base`'s values (or the defaults)."""
    given = check_keys(value, where, _LINK_FIELDS)
    result = {field.name: getattr(base or LinkSettings(), field.name) for field in fields(LinkSettings)}
    for key, item in given.items():
        place = f"{where}.{key}"
        default = getattr(_DEFAULTS, key)
        if key == "burst_loss":
            result[key] = None if item is None else _burst_loss(item, place)
        elif isinstance(default, bool):
            if not isinstance(item, bool):
                raise CodecError(f"{place}: expected true or false, got {item!r}")
            result[key] = item
        elif isinstance(default, int):
            result[key] = integer(item, place)
        else:
            result[key] = number(item, place)
    return LinkSettings(**result)


def _burst_loss(value: Any, where: str) -> BurstLoss:
    given = check_keys(value, where, _BURST_FIELDS)
    for key in ("to_bad", "to_good"):
        if key not in given:
            raise CodecError(f"{where}: needs '{key}'")
    return BurstLoss(**{key: number(item, f"{where}.{key}") for key, item in given.items()})


def queue_limits(value: Any, where: str) -> QueueLimits:
    """QueueLimits from an object with `packets`, `bytes`."""
    given = check_keys(value, where, ("packets", "bytes"))
    return QueueLimits(**{key: integer(item, f"{where}.{key}") for key, item in given.items()})


def pfc_settings(value: Any, where: str) -> PfcSettings:
    """PfcSettings from an object; `xoff_bytes`, `xon_bytes` and `headroom_bytes` are needed."""
    given = check_keys(value, where, _PFC_FIELDS)
    for key in ("xoff_bytes", "xon_bytes", "headroom_bytes"):
        if key not in given:
            raise CodecError(f"{where}: needs '{key}'")
    return PfcSettings(**{key: integer(item, f"{where}.{key}") for key, item in given.items()})


def credit_settings(value: Any, where: str) -> CreditSettings:
    """CreditSettings from an object; `buffer_bytes` is needed."""
    given = check_keys(value, where, ("buffer_bytes", "dscps"))
    if "buffer_bytes" not in given:
        raise CodecError(f"{where}: needs 'buffer_bytes'")
    dscps = given.get("dscps", [])
    if not isinstance(dscps, list):
        raise CodecError(f"{where}.dscps: expected a list, got {dscps!r}")
    return CreditSettings(
        integer(given["buffer_bytes"], f"{where}.buffer_bytes"),
        tuple(integer(each, f"{where}.dscps", 0, 63) for each in dscps),
    )


def plain(value: Any) -> dict[str, Any]:
    """A value type as an object."""
    return asdict(value)


def port_stats(value: dict[str, Any]) -> PortStats:
    """PortStats back from an object."""
    queues = tuple(QueueStats(**queue) for queue in value["queues"])
    pfc = tuple(PfcStats(**priority) for priority in value.get("pfc", ()))
    credits = tuple(CreditStats(**priority) for priority in value.get("credits", ()))
    tunnel = value.get("tunnel")
    lists: dict[str, Any] = {"queues": queues, "pfc": pfc, "credits": credits}
    lists["tunnel"] = None if tunnel is None else TunnelStats(**tunnel)
    return PortStats(**{**value, **lists, "service_lag": Lag(**value["service_lag"])})


def switch_stats(value: dict[str, Any]) -> SwitchStats:
    """SwitchStats back from an object."""
    return SwitchStats(**value)


def lateness(value: dict[str, Any]) -> Lateness:
    """Lateness back from an object."""
    return Lateness(**{**value, "loop": Lag(**value["loop"]), "busy": Lag(**value["busy"])})

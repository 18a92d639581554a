"""Value types as messages of target.proto, and back.

A message has the fields of its value type, by name: nested value types are nested messages, tuples are repeated fields,
and a dict is a repeated message whose first field is the key. Counts by name, queues and samples of switches are
columns, and samples of ports are rows of bytes: a live view reads them of hundreds of ports, many times a second.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from p4lite.errors import P4liteError
from p4lite.switch.fabric.values import (
    BurstLoss,
    CreditSettings,
    FabricError,
    LinkSettings,
    PfcSettings,
    PortSample,
    QueueLimits,
    QueueStats,
    SwitchState,
)
from p4lite.switch.targetapi import target_pb2 as pb
from p4lite.switch.targetapi.values import DeviceSample, LinkChanges, LinkDirection, PortDirection

SERVICE = "mrclab.target.v2.Target"
_STATE, _PORT_WAY, _LINK_WAY = "SWITCH_STATE_", "PORT_DIRECTION_", "LINK_DIRECTION_"
V = TypeVar("V")
M = TypeVar("M", bound=Message)
C = TypeVar("C", LinkSettings, PfcSettings, CreditSettings)


class CodecError(P4liteError, ValueError):
    """A value of the wrong form; the text names the place."""

    code = "bad_request"


@dataclasses.dataclass(frozen=True)
class _Form:
    """How a type is represented: `put` sets the field `name` of a message to a value, `get` reads it."""

    put: Callable[[Any, str, Any], None]
    get: Callable[[Any, str], Any]


def message(kind: type[M], value: object) -> M:
    """Return a value as a message of this kind."""
    made = kind()
    _fill(made, value)
    return made


def value(kind: type[V], given: Message) -> V:
    """Return a value type from its message."""
    return kind(*[form.get(given, name) for name, form in _forms(cast(Hashable, kind))])


def _fill(made: Any, given: object) -> None:
    for name, form in _forms(cast(Hashable, type(given))):
        form.put(made, name, getattr(given, name))


@cache
def _forms(kind: Any) -> list[tuple[str, _Form]]:
    return [(name, _form(hint)) for name, hint in get_type_hints(kind).items()]


def _is_record(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")


def _form(hint: Any) -> _Form:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(_form(next(part for part in parts if part is not types.NoneType)))
    if origin is dict and parts[1] is int:
        return _Form(_put_counts, _get_counts)
    if origin is dict:
        return _dict(parts[1])
    if origin is tuple:
        return _Form(_put_queues, _get_queues) if parts[0] is QueueStats else _tuple(parts[0])
    if hint is SwitchState:
        return _Form(
            lambda made, name, item: setattr(made, name, state_number(item)),
            lambda given, name: state(getattr(given, name)),
        )
    if _is_record(hint):
        return _Form(
            lambda made, name, item: _fill(_present(getattr(made, name)), item),
            lambda given, name: value(hint, getattr(given, name)),
        )
    return _Form(_put_scalar, getattr)


def _put_scalar(made: Any, name: str, item: Any) -> None:
    if item:
        setattr(made, name, item)


def _present(part: Message) -> Message:
    part.SetInParent()
    return part


def _optional(form: _Form) -> _Form:
    put_given = setattr if form.put is _put_scalar else form.put

    def put(made: Any, name: str, item: Any) -> None:
        if item is not None:
            put_given(made, name, item)

    return _Form(put, lambda given, name: form.get(given, name) if given.HasField(name) else None)


def _tuple(hint: Any) -> _Form:
    if not _is_record(hint):
        return _Form(
            lambda made, name, items: getattr(made, name).extend(items),
            lambda given, name: tuple(getattr(given, name)),
        )

    def put(made: Any, name: str, items: tuple[Any, ...]) -> None:
        repeated = getattr(made, name)
        for item in items:
            _fill(repeated.add(), item)

    return _Form(put, lambda given, name: tuple(value(hint, each) for each in getattr(given, name)))


def _dict(hint: Any) -> _Form:
    def put(made: Any, name: str, items: Mapping[Any, Any]) -> None:
        repeated = getattr(made, name)
        for key, item in items.items():
            part = repeated.add()
            setattr(part, part.DESCRIPTOR.fields[0].name, key)
            _fill(part, item)

    def get(given: Any, name: str) -> dict[Any, Any]:
        return {getattr(part, part.DESCRIPTOR.fields[0].name): value(hint, part) for part in getattr(given, name)}

    return _Form(put, get)


# -- columns: many numbers in few messages, each of which costs more than a number ----------------------------


def counts(given: Mapping[str, int]) -> pb.Counts:
    """Return counts by names without spaces."""
    return pb.Counts(names=" ".join(given), counts=given.values())


def named(given: pb.Counts) -> dict[str, int]:
    """Return counts by name."""
    return dict(zip(given.names.split(), given.counts, strict=True))


def _put_counts(made: Any, name: str, items: Mapping[str, int]) -> None:
    getattr(made, name).CopyFrom(counts(items))


def _get_counts(given: Any, name: str) -> dict[str, int]:
    return named(getattr(given, name))


def _put_columns(part: Any, names: Sequence[str], rows: Iterable[Sequence[int]]) -> None:
    for name, column in zip(names, zip(*rows, strict=True), strict=False):
        if any(column):
            getattr(part, name).extend(column)


def _get_columns(part: Any, names: Sequence[str], rows: int) -> Iterator[tuple[int, ...]]:
    return zip(*((getattr(part, name) or (0,) * rows) for name in names), strict=True)


#: A port's number and its sample.
_ROW = struct.Struct(f"<{1 + len(PortSample._fields)}Q")


def samples_message(now_ns: int, given: Mapping[int, DeviceSample]) -> pb.SamplesResponse:
    """Return samples of switches by device_id, all of one time, as a message."""
    devices = given.values()
    counted = any(each.counters for each in devices)
    return pb.SamplesResponse(
        now_ns=now_ns,
        device_id=given.keys(),
        state=[state_number(each.state) for each in devices],
        ports=[len(each.ports) for each in devices],
        rows=b"".join([_ROW.pack(number, *row) for each in devices for number, row in each.ports.items()]),
        counters=[counts(each.counters) for each in devices] if counted else (),
    )


def samples(given: pb.SamplesResponse) -> dict[int, DeviceSample]:
    """Return samples of switches by device_id from their message.

    Raises:
        CodecError: a list has not one element for each switch, or the number of rows is not that of the ports.
    """
    idents, counted = given.device_id, [named(each) for each in given.counters]
    if not (len(idents) == len(given.state) == len(given.ports) and len(counted) in (0, len(idents))):
        raise CodecError(
            f"samples: expected {len(idents)} states and numbers of ports, and as many lists of counters or none, got "
            f"{len(given.state)}, {len(given.ports)} and {len(counted)}"
        )
    many = sum(given.ports)
    if len(given.rows) != many * _ROW.size:
        raise CodecError(f"samples: expected {_ROW.size} bytes for each of {many} ports, got {len(given.rows)}")
    rows = _ROW.iter_unpack(given.rows)
    found: dict[int, DeviceSample] = {}
    for at, (ident, ports) in enumerate(zip(idents, given.ports, strict=True)):
        by_number = {number: PortSample._make(row) for number, *row in itertools.islice(rows, ports)}
        counters = counted[at] if counted else {}
        found[ident] = DeviceSample(given.now_ns, state(given.state[at]), by_number, counters)
    return found


_QUEUE_COLUMNS = tuple(field.name for field in dataclasses.fields(QueueStats))[1:]


def _put_queues(made: Any, name: str, items: Sequence[QueueStats]) -> None:
    part = getattr(made, name)
    part.priority.extend([each.priority for each in items])
    _put_columns(part, _QUEUE_COLUMNS, map(attrgetter(*_QUEUE_COLUMNS), items))


def _get_queues(given: Any, name: str) -> tuple[QueueStats, ...]:
    part = getattr(given, name)
    rows = _get_columns(part, _QUEUE_COLUMNS, len(part.priority))
    return tuple(QueueStats(priority, *row) for priority, row in zip(part.priority, rows, strict=True))


# -- enums -------------------------------------------------------------------------------------------------


def state_number(given: SwitchState) -> pb.SwitchState:
    """Return the number of a state."""
    return cast(pb.SwitchState, pb.SwitchState.Value(_STATE + given.name))


def state(number: int) -> SwitchState:
    """Return the state of this number. Raises CodecError."""
    found = _STATES.get(number)
    if found is None:
        known = ", ".join(f"{each} ({named.value})" for each, named in _STATES.items())
        raise CodecError(f"state: expected one of {known}, got {number}")
    return found


_STATES: Final[dict[int, SwitchState]] = {int(state_number(each)): each for each in SwitchState}


def port_direction(number: int) -> PortDirection:
    """Return the direction of a port that has this number. Raises CodecError."""
    return _direction(pb.PortDirection, _PORT_WAY, number)  # type: ignore[return-value]


def link_direction(number: int) -> LinkDirection:
    """Return the direction of a link that has this number. Raises CodecError."""
    return _direction(pb.LinkDirection, _LINK_WAY, number)  # type: ignore[return-value]


def _direction(kind: Any, prefix: str, number: int) -> str:
    if number not in kind.values():
        known = ", ".join(name.removeprefix(prefix).lower() for name in kind.keys())  # noqa: SIM118
        raise CodecError(f"direction: expected the number of one of {known}, got {number}")
    return str(kind.Name(number)).removeprefix(prefix).lower()


def port_direction_number(given: PortDirection) -> pb.PortDirection:
    """Return the number of a direction of a port."""
    return cast(pb.PortDirection, pb.PortDirection.Value(_PORT_WAY + given.upper()))


def link_direction_number(given: LinkDirection) -> pb.LinkDirection:
    """Return the number of a direction of a link."""
    return cast(pb.LinkDirection, pb.LinkDirection.Value(_LINK_WAY + given.upper()))


# -- settings, of which a request may leave some out -------------------------------------------------------


def changes(given: LinkSettings | LinkChanges | None) -> pb.LinkSettings | None:
    """Return a message with all settings, or with those that are named; `burst_loss` None takes burst loss away."""
    if given is None:
        return None
    items: Mapping[str, Any] = _items(given) if isinstance(given, LinkSettings) else given
    made = pb.LinkSettings(**{name: item for name, item in items.items() if name != "burst_loss"})
    if "burst_loss" in items:
        burst_loss = given.burst_loss if isinstance(given, LinkSettings) else given["burst_loss"]
        made.burst_loss.CopyFrom(pb.BurstLoss() if burst_loss is None else settings(pb.BurstLoss, burst_loss))
    return made


def _items(given: object) -> dict[str, Any]:
    return {name: getattr(given, name) for name, _ in _forms(cast(Hashable, type(given)))}


def settings(kind: type[M], given: object) -> M:
    """Return all fields of a value type as a message in which they are present, zeros too."""
    return kind(**_items(given))


def link_settings(given: pb.LinkSettings, where: str, base: LinkSettings | None = None) -> LinkSettings:
    """Return LinkSettings; what is left out keeps the value of `base` (or the default). Raises CodecError."""
    found = {name: getattr(given, name) for name, _ in _forms(LinkSettings) if given.HasField(name)}
    if "burst_loss" in found:
        empty = not given.burst_loss.ListFields()
        found["burst_loss"] = None if empty else _given(BurstLoss, given.burst_loss, f"{where}.burst_loss")
    return _checked(dataclasses.replace(base or LinkSettings(), **found), where)


def queue_limits(given: pb.QueueLimits, where: str) -> QueueLimits:
    """Return QueueLimits; what is left out has its default."""
    return _given(QueueLimits, given, where)


def pfc_settings(given: pb.PfcSettings, where: str) -> PfcSettings:
    """Return PfcSettings. Raises CodecError: something needed is missing, or a value is out of range."""
    return _checked(_given(PfcSettings, given, where), where)


def credit_settings(given: pb.CreditSettings, where: str) -> CreditSettings:
    """Return CreditSettings. Raises CodecError: something needed is missing, or a value is out of range."""
    if not given.HasField("buffer_bytes"):
        raise CodecError(f"{where}: needs 'buffer_bytes'")
    return _checked(CreditSettings(given.buffer_bytes, tuple(given.dscps)), where)


def _given(kind: type[V], given: Message, where: str) -> V:
    found = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if given.HasField(field.name):
            found[field.name] = getattr(given, field.name)
        elif field.default is dataclasses.MISSING:
            raise CodecError(f"{where}: needs '{field.name}'")
    return kind(**found)


def _checked(settings: C, where: str) -> C:
    try:
        settings.check()
    except FabricError as error:
        raise CodecError(f"{where}: {error}") from None
    return settings

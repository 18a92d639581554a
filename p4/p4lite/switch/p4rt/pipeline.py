"""A forwarding pipeline: P4Info and BMv2 JSON, checked against each other and bound together, and the state that all
modules of entities share.

Source: P4Runtime specification, "P4 Forwarding-Pipeline Configuration"; the names in P4Info are those of the JSON.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from p4lite.messages import p4runtime_pb2
from p4lite.recursion import DOCUMENT_LIMIT, deep_recursion
from p4lite.switch import errors as program_errors
from p4lite.switch.errors import BuildError, ProgramError
from p4lite.switch.fabric.values import CloneSession, FabricError, Replica
from p4lite.switch.p4rt.errors import (
    ALREADY_EXISTS,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    P4RtError,
    invalid,
)
from p4lite.switch.p4rt.info import DEFAULT_ONLY, ActionInfo, FieldInfo, Info, TableInfo, index_info
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.facts import TableFacts
from p4lite.switch.runtime.loader import LoadedProgram, load_program

if TYPE_CHECKING:
    from p4lite.switch.runtime.loader import ProgramInstance


_WILDCARDS: dict[str, Any] = {
    "lpm": lambda width: Lpm(0, 0),
    "ternary": lambda width: Ternary(0, 0),
    "range": lambda width: Range(0, (1 << width) - 1),
    "optional": lambda width: Optional(None),
}
#: P4Info's match kind -> the JSON's that can realise it.
_REALISED_BY = {
    "exact": ("exact", "valid"),
    "lpm": ("lpm",),
    "ternary": ("ternary",),
    "range": ("range",),
    "optional": ("optional", "ternary"),
}


@dataclass(slots=True)
class ActionBinding:
    """P4Info's action and where each of the JSON's arguments comes from."""

    info: ActionInfo
    order: tuple[int, ...]  # for the JSON's n-th argument the id of P4Info's parameter

    def call(self, values: dict[int, int]) -> ActionCall:
        """Return the action with the values of its parameters by id."""
        return ActionCall(self.info.name, tuple(map(values.__getitem__, self.order)))


@dataclass(slots=True)
class TableBinding:
    """P4Info's table beside the JSON's: `order[n]` is the position in P4Info of the JSON's n-th key."""

    info: TableInfo
    target: TableFacts
    order: tuple[int, ...]
    kinds: tuple[str, ...]  # of the JSON, in P4Info's order
    #: The don't-care value of each field, in P4Info's order; None for exact ones.
    wildcards: tuple[MatchValue | None, ...]

    def target_key(self, values: Sequence[MatchValue]) -> tuple[MatchValue, ...]:
        """Return the JSON's key from the values in P4Info's order."""
        return tuple(map(values.__getitem__, self.order))


@dataclass(slots=True)
class Pipeline:
    """A verified config. `config` is the ForwardingPipelineConfig (shared by all devices that have the same, so
    its cookie is not in it but in `cookie`)."""

    config: Any
    info: Info
    program: LoadedProgram
    tables: dict[int, TableBinding]
    actions: dict[int, ActionBinding]
    #: JSON's table id -> P4Info's; JSON's digest id -> P4Info's.
    table_ids: dict[int, int]
    digest_ids: dict[int, int]
    cookie: int | None = None


class PipelineCache:
    """Verified pipelines by content: many devices with one program share its Python objects."""

    def __init__(self, limit: int = 16) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._programs: OrderedDict[bytes, LoadedProgram] = OrderedDict()
        self._pipelines: OrderedDict[bytes, Pipeline] = OrderedDict()

    def verify(self, config: Any) -> Pipeline:
        """Return the compiled pipeline of a ForwardingPipelineConfig. Raises P4RtError if it cannot be realised."""
        if not config.p4_device_config:
            raise invalid("p4_device_config is empty: it must hold the program as BMv2 JSON")
        if not config.HasField("p4info"):
            raise invalid("the config has no P4Info")
        blob = config.p4_device_config
        info_blob = config.p4info.SerializeToString(deterministic=True)
        key = hashlib.sha256(len(blob).to_bytes(8, "big") + blob + info_blob).digest()
        with self._lock:
            found = self._pipelines.get(key)
            if found is None:
                found = _bind(config, index_info(config.p4info), self._program(blob))
                self._remember(self._pipelines, key, found)
        try:
            # One at a time: devices that get the same program at once share one compiler run.
            with self._building:
                if not found.program.is_opened:
                    found.program.build()
        except BuildError as error:
            raise P4RtError(INTERNAL, f"the program cannot be compiled: {error}") from None
        return replace(found, cookie=config.cookie.cookie if config.HasField("cookie") else None)

    def _program(self, blob: bytes) -> LoadedProgram:
        key = hashlib.sha256(blob).digest()
        program = self._programs.get(key)
        if program is None:
            try:
                data = device_config(blob)
                source = data.get("program")
                program = load_program(data, name=Path(source).stem if isinstance(source, str) else None)
            except ProgramError as error:
                raise invalid(str(error).replace("<memory>", "p4_device_config", 1)) from None
            self._remember(self._programs, key, program)
        return program

    def _remember(self, cache: OrderedDict[bytes, Any], key: bytes, value: Any) -> None:
        cache[key] = value
        while len(cache) > self._limit:
            cache.popitem(last=False)


def device_config(blob: bytes) -> dict[str, Any]:
    """Return the BMv2 JSON in p4_device_config: plain, or in the older P4DeviceConfig (field 3, device_data)."""
    text = blob
    if blob.lstrip()[:1] != b"{":
        text = _device_data(blob)
    try:
        with deep_recursion(DOCUMENT_LIMIT):
            data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"p4_device_config is not BMv2 JSON: {error}") from None
    if not isinstance(data, dict):
        raise invalid("p4_device_config is not BMv2 JSON: the top level is not an object")
    return data


def _device_data(blob: bytes) -> bytes:
    """Return field 3 of a protobuf message: p4.tmp.P4DeviceConfig is {1: reassign, 2: extras, 3: device_data}."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while at < len(blob) and shift < 64:
            byte = blob[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise invalid("p4_device_config is neither BMv2 JSON nor a P4DeviceConfig message")

    while at < len(blob):
        tag = varint()
        if tag & 7 == 0:
            varint()
        elif tag & 7 == 2:
            size = varint()
            if tag >> 3 == 3 and at + size <= len(blob):
                return blob[at : at + size]
            at += size
        else:
            break
    raise invalid("p4_device_config is neither BMv2 JSON nor a P4DeviceConfig message")


# --- P4Info against JSON ------------------------------------------------------------------------------------


def _bind(config: Any, info: Info, program: LoadedProgram) -> Pipeline:
    # An action that no table has is called directly; the compiler may have inlined it.
    used = {ident for table in info.tables.values() for ident in table.scopes}
    actions = {ident: _bind_action(action, program) for ident, action in info.actions.items() if ident in used}
    tables = {ident: _bind_table(table, info, program) for ident, table in info.tables.items()}
    for kind, ours, theirs in (
        ("counter", info.counters, program.counters),
        ("meter", info.meters, program.meters),
        ("register", info.registers, program.registers),
    ):
        for array in ours.values():
            target = theirs.get(array.name)
            if target is None:
                raise invalid(f"the P4Info's {kind} '{array.name}' is not in the JSON")
            if array.size and target.size != array.size:
                raise invalid(f"{kind} '{array.name}' has {array.size} cells in the P4Info, {target.size} in the JSON")
    for profile in info.profiles.values():
        if profile.name not in program.action_profiles:
            raise invalid(f"the P4Info's action profile '{profile.name}' is not in the JSON")
        if profile.with_selector != program.action_profiles[profile.name].selector:
            raise invalid(f"'{profile.name}' is a selector in only one of P4Info and JSON")
    for name, fields, _ in info.value_sets.values():
        if name not in program.value_sets:
            raise invalid(f"the P4Info's value set '{name}' is not in the JSON")
        if sum(entry.width for entry in fields) != program.value_sets[name].width:
            raise invalid(f"value set '{name}' has another width in the JSON")
    for name, _ in info.digests.values():
        if name not in program.digests:
            raise invalid(f"the P4Info's digest '{name}' is not in the JSON")
    return Pipeline(
        config,
        info,
        program,
        tables,
        actions,
        {binding.target.id: ident for ident, binding in tables.items()},
        {program.digests[name].id: ident for ident, (name, _) in info.digests.items()},
    )


def _bind_action(action: ActionInfo, program: LoadedProgram) -> ActionBinding:
    targets = [target for target in program.actions.values() if target.name == action.name]
    if not targets and not action.params:
        return ActionBinding(action, ())  # `_bind_table` says whether its tables can do without it
    if not targets:
        raise invalid(f"the P4Info's action '{action.name}' is not in the JSON")
    target = targets[0]
    if len(target.params) != len(action.params):
        raise invalid(
            f"action '{action.name}' has {len(action.params)} parameters in the P4Info, "
            f"{len(target.params)} in the JSON"
        )
    by_name = {param.name: param for param in action.params}
    if {param.name for param in target.params} == set(by_name):
        chosen = tuple(by_name[param.name] for param in target.params)
    else:
        chosen = action.params
    for ours, theirs in zip(chosen, target.params, strict=True):
        if ours.width != theirs.width and not ours.translated:
            raise invalid(
                f"parameter '{ours.name}' of action '{action.name}' is {ours.width} bits wide in the "
                f"P4Info, {theirs.width} in the JSON"
            )
    return ActionBinding(action, tuple(param.id for param in chosen))


def _bind_table(table: TableInfo, info: Info, program: LoadedProgram) -> TableBinding:
    target = program.tables.get(table.name)
    if target is None:
        raise invalid(f"the P4Info's table '{table.name}' is not in the JSON")
    if len(target.key) != len(table.fields):
        raise invalid(
            f"table '{table.name}' has {len(table.fields)} match fields in the P4Info, {len(target.key)} in the JSON"
        )
    names = {field.name: position for position, field in enumerate(table.fields)}
    if len(names) == len(table.fields) and {key.name for key in target.key} == set(names):
        order = tuple(names[key.name] for key in target.key)
    else:
        order = tuple(range(len(table.fields)))
    for position, key in zip(order, target.key, strict=True):
        field = table.fields[position]
        same_width = key.width == field.width or field.translated or key.match == "valid"
        if key.match not in _REALISED_BY[field.kind] or not same_width:
            raise invalid(
                f"match field '{field.name}' of table '{table.name}' is {field.kind}, {field.width} bits in "
                f"the P4Info, {key.match}, {key.width} bits in the JSON"
            )
    for ident, scope in table.scopes.items():
        action = info.actions[ident]
        # An implicit default, such as the NoAction of a table that names none, need not be in the JSON.
        implicit = scope == DEFAULT_ONLY and not action.params
        if action.name not in target.actions and not implicit:
            raise invalid(f"action '{action.name}' of table '{table.name}' is not allowed in the JSON")
    profile = info.profiles[table.profile_id].name if table.profile_id else None
    if profile != target.action_profile:
        raise invalid(f"table '{table.name}' has another action profile in the JSON")
    if table.counter_id and not target.with_counters:
        raise invalid(f"table '{table.name}' has a direct counter only in the P4Info")
    if table.meter_id and target.direct_meter is None:
        raise invalid(f"table '{table.name}' has a direct meter only in the P4Info")
    kind_of = dict(zip(order, (key.match for key in target.key), strict=True))
    kinds = tuple(kind_of[position] for position in range(len(table.fields)))
    wildcards = tuple(_wildcard(field, kind) for field, kind in zip(table.fields, kinds, strict=True))
    return TableBinding(table, target, order, kinds, wildcards)


def _wildcard(field: FieldInfo, kind: str) -> MatchValue | None:
    make = _WILDCARDS.get(kind)
    value: MatchValue | None = make(field.width) if make else None
    return value


def exact_value(kind: str, value: int, width: int) -> MatchValue:
    """Return an equality of the JSON's kind: P4Info's optional fields may be the JSON's ternary ones."""
    if kind == "ternary":
        return Ternary(value, (1 << width) - 1)
    if kind == "optional":
        return Optional(value)
    return Exact(value)


INSERT = p4runtime_pb2.Update.INSERT
MODIFY = p4runtime_pb2.Update.MODIFY
DELETE = p4runtime_pb2.Update.DELETE

_CODES: dict[type[program_errors.ControlError], int] = {
    program_errors.NotFound: NOT_FOUND,
    program_errors.AlreadyExists: ALREADY_EXISTS,
    program_errors.InvalidArgument: INVALID_ARGUMENT,
    program_errors.OutOfRange: OUT_OF_RANGE,
    program_errors.ResourceExhausted: RESOURCE_EXHAUSTED,
    program_errors.PermissionDenied: PERMISSION_DENIED,
}


class control:  # noqa: N801 - used as a function; contextlib's contexts take three times as long
    """A context that turns errors of the program or the fabric into P4RtError with the same meaning."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Raise the P4RtError of an error that has one."""
        if isinstance(error, program_errors.ControlError):
            raise P4RtError(_CODES.get(type(error), INTERNAL), str(error)) from None
        if isinstance(error, FabricError):
            raise P4RtError(INVALID_ARGUMENT, str(error)) from None


class Replicator(Protocol):
    """The part of a switch that makes copies: `fabric.FabricSwitch`, or a stand-in while a pipeline is only saved."""

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group."""

    def delete_multicast_group(self, group: int) -> None:
        """Remove a group."""

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Create or replace a clone session."""

    def delete_clone_session(self, session: int) -> None:
        """Remove a clone session."""


class NoReplicator:
    """Accepts everything without effect, for a pipeline that is saved but not committed."""

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Accept a multicast group without an effect."""

    def delete_multicast_group(self, group: int) -> None:
        """Accept the removal of a multicast group without an effect."""

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Accept a clone session without an effect."""

    def delete_clone_session(self, session: int) -> None:
        """Accept the removal of a clone session without an effect."""


@dataclass(slots=True)
class DeviceTarget:
    """The target of a device's entities. `port_up` returns whether a port that a selector watches is up, None if there
    is no such port. `get_instance` returns the program's state with its clock brought up to date."""

    pipeline: Pipeline
    get_instance: Callable[[], ProgramInstance]
    replicator: Replicator
    port_up: Callable[[int], bool | None]

    @property
    def instance(self) -> ProgramInstance:
        """The program's tables and other state."""
        return self.get_instance()

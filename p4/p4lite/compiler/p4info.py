"""P4Info of a typed program: what P4Runtime controllers know of it.

Identifiers are those that the P4Runtime specification asks for: the kind in the upper 8 bits, below it a hash of
the control-plane name (Jenkins one-at-a-time, linear probing in the order of names), unless `@id` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from p4.config.v1 import p4info_pb2, p4types_pb2

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.midend.names import control_plane_name, key_name, qualified

PREFIX = {
    "action": 0x01,
    "table": 0x02,
    "value_set": 0x03,
    "controller_header": 0x04,
    "action_profile": 0x11,
    "counter": 0x12,
    "direct_counter": 0x13,
    "meter": 0x14,
    "direct_meter": 0x15,
    "register": 0x16,
    "digest": 0x17,
}
DEFAULT_TABLE_SIZE = 1024
UNITS = {"bytes": 1, "packets": 2, "packets_and_bytes": 3}
HIDDEN = {"name", "id", "brief", "description", "hidden", "optional"}


def hash24(name: str) -> int:
    """The 24-bit hash of a name (Jenkins one-at-a-time)."""
    value = 0
    for byte in name.encode():
        value = (value + byte) & 0xFFFFFFFF
        value = (value + (value << 10)) & 0xFFFFFFFF
        value ^= value >> 6
    value = (value + (value << 3)) & 0xFFFFFFFF
    value ^= value >> 11
    return (value + (value << 15)) & 0xFFFFFF


class Symbols:
    """Identifiers and aliases of all objects, by kind and name."""

    def __init__(self) -> None:
        self.wanted: dict[str, dict[str, int | None]] = {}
        self.ids: dict[tuple[str, str], int] = {}

    def add(self, kind: str, name: str, chosen: int | None) -> None:
        """Notes an object; `chosen` is its `@id`."""
        self.wanted.setdefault(kind, {}).setdefault(name, chosen)

    def assign(self) -> None:
        """Gives every object its identifier."""
        used: set[int] = set()
        for kind, names in self.wanted.items():
            for name, chosen in names.items():
                if chosen is not None:
                    self.ids[kind, name] = chosen & 0xFFFFFF | PREFIX[kind] << 24
                    used.add(self.ids[kind, name])
        for kind in sorted(self.wanted, key=PREFIX.__getitem__):
            for name in sorted(name for name, chosen in self.wanted[kind].items() if chosen is None):
                number = hash24(name)
                while (PREFIX[kind] << 24 | number) in used:
                    number = (number + 1) & 0xFFFFFF
                self.ids[kind, name] = PREFIX[kind] << 24 | number
                used.add(self.ids[kind, name])
        self._names = [name for names in self.wanted.values() for name in names]

    def alias(self, name: str) -> str:
        """The shortest suffix of a name that no other name has."""
        parts = name.split(".")
        for count in range(1, len(parts)):
            suffix = parts[-count:]
            if sum(other.split(".")[-count:] == suffix for other in set(self._names)) < 2:
                return ".".join(suffix)
        return name


def generate(program: TypedProgram) -> Any:
    """The P4Info message of a program."""
    return _Generator(program).run()


def _chosen_id(annotations: Iterable[ast.Annotation]) -> int | None:
    for annotation in annotations:
        if annotation.name == "id" and annotation.args:
            return int(annotation.args[0])
    return None


def _annotation_texts(annotations: Iterable[ast.Annotation]) -> list[str]:
    texts = []
    for each in annotations:
        if each.name not in HIDDEN and not each.exprs and not each.pairs:
            texts.append(f"@{each.name}" + (f"({each.text})" if each.text is not None else ""))
    return texts


def width_of(ty: t.Type | None) -> int:
    """Bits of a value of this type as P4Runtime sends it; 0 where it has no width."""
    if ty is None:
        return 0
    ty = t.strip_newtypes(ty)
    if isinstance(ty, t.BitType):
        return ty.width
    if isinstance(ty, t.BoolType):
        return 1
    if isinstance(ty, t.SerEnumType):
        return ty.base.width
    if isinstance(ty, t.VarbitType):
        return ty.max_width
    return 0


class _Generator:
    def __init__(self, program: TypedProgram) -> None:
        self.program = program
        self.info = p4info_pb2.P4Info()
        self.symbols = Symbols()
        self.later: list[Callable[[], None]] = []
        self.direct: dict[ast.Declaration, tuple[str, str]] = {}
        self.objects: dict[ast.Declaration, tuple[str, str]] = {}
        self.seen_actions: dict[ast.ActionDecl, str] = {}
        self.profile_tables: dict[str, list[str]] = {}

    def run(self) -> Any:
        self.info.pkg_info.arch = "v1model"
        for instance in self.program.main.args.values():
            if isinstance(instance, ast.Instance) and isinstance(instance.decl, ast.ControlDecl):
                for decl in self.program.decls:
                    if isinstance(decl, ast.Instantiation):
                        self._instantiation(decl, "")
                self._control(instance.decl, control_plane_name(instance.decl))
            elif isinstance(instance, ast.Instance) and isinstance(instance.decl, ast.ParserDecl):
                self._parser(instance.decl, control_plane_name(instance.decl))
        for decl in self.program.decls:
            if isinstance(decl, ast.StructDecl) and decl.annotation("controller_header"):
                self._controller_header(decl)
        self.symbols.assign()
        for step in self.later:
            step()
        self.info.type_info.SetInParent()
        return self.info

    # -- walking ------------------------------------------------------------------------------------------

    def _add(self, kind: str, name: str, decl: ast.Declaration) -> None:
        self.symbols.add(kind, name, _chosen_id(decl.annotations))

    def _preamble(self, message: Any, kind: str, name: str, annotations: Iterable[ast.Annotation]) -> None:
        message.id = self.symbols.ids[kind, name]
        message.name = name
        message.alias = self.symbols.alias(name)
        message.annotations.extend(_annotation_texts(annotations))
        for each in annotations:
            if each.name == "brief" and each.args:
                message.doc.brief = str(each.args[0])
            elif each.name == "description" and each.args:
                message.doc.description = str(each.args[0])

    def _parser(self, decl: ast.ParserDecl, path: str) -> None:
        for local in decl.locals:
            if isinstance(local, ast.ValueSetDecl):
                self._value_set(local, qualified(path, control_plane_name(local)))
            elif isinstance(local, ast.Instantiation):
                self._instantiation(local, path)

    def _control(self, decl: ast.ControlDecl, path: str) -> None:
        for local in decl.locals:
            if isinstance(local, ast.Instantiation):
                self._instantiation(local, path)
        for local in decl.locals:
            if isinstance(local, ast.ActionDecl):
                self._action(local, qualified(path, control_plane_name(local)))
        for local in decl.locals:
            if isinstance(local, ast.TableDecl):
                self._table(local, qualified(path, control_plane_name(local)))
        for node in ast.walk(decl):
            if isinstance(node, ast.Call) and node.kind is ast.CallKind.EXTERN_FUNCTION and node.method == "digest":
                self._digest(node)

    def _instantiation(self, decl: ast.Instantiation, path: str) -> None:
        name = qualified(path, control_plane_name(decl))
        call = decl.call
        if call is None:
            return
        if isinstance(call.target, ast.ControlDecl):
            self._control(call.target, name)
        elif isinstance(call.target, ast.ParserDecl):
            self._parser(call.target, name)
        elif isinstance(call.type, t.ExternType):
            self._extern(decl, call, call.type, name)

    # -- externs ------------------------------------------------------------------------------------------

    def _constant(self, call: ast.Call, index: int) -> Any:
        expr = call.args[index].expr
        return None if expr is None else expr.const

    def _extern(self, decl: ast.Instantiation, call: ast.Call, ty: t.ExternType, name: str) -> None:
        kind = ty.name
        if kind in ("action_profile", "action_selector"):
            self._profile(decl, call, kind, name)
            return
        if kind not in ("counter", "meter", "register", "direct_counter", "direct_meter"):
            return
        known = (kind, name) in self.objects.values()
        self.objects[decl] = (kind, name)
        if known:
            return
        self._add(kind, name, decl)
        self.later.append(lambda: self._write_extern(decl, call, ty, name))

    def _write_extern(self, decl: ast.Instantiation, call: ast.Call, ty: t.ExternType, name: str) -> None:
        kind = ty.name
        message = getattr(self.info, kind + "s").add()
        self._preamble(message.preamble, kind, name, decl.annotations)
        if kind in ("counter", "meter"):
            message.size = int(self._constant(call, 0) or 0)
            message.spec.unit = self._unit(self._constant(call, 1))
        elif kind == "direct_counter" or kind == "direct_meter":
            message.spec.unit = self._unit(self._constant(call, 0))
        else:
            message.size = int(self._constant(call, 0) or 0)
            message.type_spec.CopyFrom(self.type_spec(ty.args[0]))
        if kind.startswith("direct"):
            message.direct_table_id = self.symbols.ids.get(("table", self.direct.get(decl, ("", ""))[1]), 0)

    @staticmethod
    def _unit(value: Any) -> int:
        return UNITS[value.member] if isinstance(value, ast.EnumValue) else 0

    def _profile(self, decl: ast.Instantiation, call: ast.Call, kind: str, name: str) -> None:
        if ("action_profile", name) in self.objects.values():
            self.objects[decl] = ("action_profile", name)
            return
        self.objects[decl] = ("action_profile", name)
        self._add("action_profile", name, decl)

        def write() -> None:
            message = self.info.action_profiles.add()
            self._preamble(message.preamble, "action_profile", name, decl.annotations)
            message.with_selector = kind == "action_selector"
            message.size = int(self._constant(call, 1 if kind == "action_selector" else 0) or 0)
            message.table_ids.extend(self.symbols.ids["table", table] for table in self.profile_tables.get(name, []))

        self.later.append(write)

    def _value_set(self, decl: ast.ValueSetDecl, name: str) -> None:
        self._add("value_set", name, decl)

        def write() -> None:
            message = self.info.value_sets.add()
            self._preamble(message.preamble, "value_set", name, decl.annotations)
            message.size = int(decl.size.const) if isinstance(decl.size.const, int) else 0
            match = message.match.add()
            match.id = 1
            element = decl.type.element if isinstance(decl.type, t.SetType) else decl.type
            match.bitwidth = width_of(element)
            match.match_type = p4info_pb2.MatchField.EXACT

        self.later.append(write)

    def _controller_header(self, decl: ast.StructDecl) -> None:
        annotation = decl.annotation("controller_header")
        assert annotation is not None
        name = str(annotation.args[0]) if annotation.args else (annotation.text or "").strip('"')
        self._add("controller_header", name, decl)

        def write() -> None:
            message = self.info.controller_packet_metadata.add()
            self._preamble(message.preamble, "controller_header", name, decl.annotations)
            for number, field in enumerate(decl.fields, 1):
                entry = message.metadata.add()
                entry.id = _chosen_id(field.annotations) or number
                entry.name = control_plane_name(field)
                entry.annotations.extend(_annotation_texts(field.annotations))
                entry.bitwidth = width_of(field.type)

        self.later.append(write)

    def _digest(self, call: ast.Call) -> None:
        ty = call.types[0]
        if not isinstance(ty, t.StructType):
            return
        name = ty.name
        if "digest" in self.symbols.wanted and name in self.symbols.wanted["digest"]:
            return
        self.symbols.add("digest", name, None)

        def write() -> None:
            message = self.info.digests.add()
            self._preamble(message.preamble, "digest", name, [])
            message.type_spec.CopyFrom(self.type_spec(ty))

        self.later.append(write)

    # -- tables and actions -------------------------------------------------------------------------------

    def _action(self, decl: ast.ActionDecl, name: str) -> None:
        if name in self.symbols.wanted.get("action", {}):
            return
        self._add("action", name, decl)

        def write() -> None:
            message = self.info.actions.add()
            self._preamble(message.preamble, "action", name, decl.annotations)
            params = [param for param in decl.params if not param.direction]
            for number, param in enumerate(params, 1):
                entry = message.params.add()
                entry.id = _chosen_id(param.annotations) or number
                entry.name = control_plane_name(param)
                entry.bitwidth = width_of(param.type)
                entry.annotations.extend(_annotation_texts(param.annotations))

        self.later.append(write)

    def _action_name(self, reference: ast.ActionRef, path: str) -> str:
        decl = reference.decl
        assert decl is not None
        name = control_plane_name(decl)
        top = any(decl is each for each in self.program.decls)
        full = name.lstrip(".") if top else qualified(path, name)
        if top:
            self._action(decl, full)
        return full

    def _table(self, decl: ast.TableDecl, name: str) -> None:
        if name in self.symbols.wanted.get("table", {}):
            return
        self._add("table", name, decl)
        path = name.rpartition(".")[0]
        actions = [
            (reference, self._action_name(reference, self._home(decl, path))) for reference in decl.actions or []
        ]
        default = decl.default_action
        default_name = self._action_name(default, self._home(decl, path)) if default is not None else None
        implementation = self._implementation(decl, name)
        resources = self._direct_resources(decl, name)

        def write() -> None:
            message = self.info.tables.add()
            self._preamble(message.preamble, "table", name, decl.annotations)
            self._keys(message, decl)
            for reference, full in actions:
                entry = message.action_refs.add()
                entry.id = self.symbols.ids["action", full]
                kinds = {each.name for each in reference.annotations}
                if "defaultonly" in kinds:
                    entry.scope = p4info_pb2.ActionRef.DEFAULT_ONLY
                elif "tableonly" in kinds:
                    entry.scope = p4info_pb2.ActionRef.TABLE_ONLY
                entry.annotations.extend(_annotation_texts(reference.annotations))
            self._default(message, decl, default_name)
            if implementation is not None:
                message.implementation_id = self.symbols.ids["action_profile", implementation]
            message.direct_resource_ids.extend(self.symbols.ids[key] for key in resources)
            size = decl.property("size")
            message.size = int(size.value.const) if size and isinstance(size.value.const, int) else DEFAULT_TABLE_SIZE
            timeout = decl.property("support_timeout")
            if timeout is not None and timeout.value.const is True:
                message.idle_timeout_behavior = p4info_pb2.Table.NOTIFY_CONTROL
            message.is_const_table = decl.entries is not None and decl.entries_const
            message.has_initial_entries = bool(decl.entries)

        self.later.append(write)

    def _home(self, decl: ast.TableDecl, path: str) -> str:
        return path

    def _default(self, message: Any, decl: ast.TableDecl, name: str | None) -> None:
        if name is None or decl.default_action is None:
            return
        ident = self.symbols.ids["action", name]
        if decl.default_const:
            message.const_default_action_id = ident
        initial = message.initial_default_action
        initial.action_id = ident
        for number, arg in enumerate(decl.default_action.args or [], 1):
            value = arg.expr.const if arg.expr is not None else None
            if isinstance(value, bool):
                value = int(value)
            if isinstance(value, int):
                entry = initial.arguments.add()
                entry.param_id = number
                entry.value = value.to_bytes(max((value.bit_length() + 7) // 8, 1), "big")

    def _keys(self, message: Any, decl: ast.TableDecl) -> None:
        number = 0
        for element in decl.keys or []:
            kind = element.match_kind.name
            if kind == "selector":
                continue
            number += 1
            entry = message.match_fields.add()
            entry.id = _chosen_id(element.annotations) or number
            entry.name = key_name(element) or f"key{number}"
            entry.bitwidth = width_of(element.expr.type)
            entry.annotations.extend(_annotation_texts(element.annotations))
            entry.match_type = p4info_pb2.MatchField.MatchType.Value(kind.upper())

    def _implementation(self, decl: ast.TableDecl, name: str) -> str | None:
        prop = decl.property("implementation")
        if prop is None:
            return None
        if isinstance(prop.value, ast.Name) and isinstance(prop.value.decl, ast.Instantiation):
            found = self.objects.get(prop.value.decl)
            if found is not None:
                self.profile_tables.setdefault(found[1], []).append(name)
                return found[1]
        return None

    def _direct_resources(self, decl: ast.TableDecl, name: str) -> list[tuple[str, str]]:
        found = []
        for key in ("counters", "meters"):
            prop = decl.property(key)
            if prop is None or not isinstance(prop.value, ast.Name):
                continue
            target = prop.value.decl
            if isinstance(target, ast.Instantiation) and target in self.objects:
                self.direct[target] = ("table", name)
                found.append(self.objects[target])
        return found

    # -- types --------------------------------------------------------------------------------------------

    def type_spec(self, ty: t.Type) -> Any:
        """The type as P4Runtime describes it; structs and headers are entered into `type_info`."""
        spec = p4types_pb2.P4DataTypeSpec()
        if isinstance(ty, t.NewType):
            spec.new_type.name = ty.name
            self.info.type_info.new_types[ty.name].original_type.CopyFrom(self.type_spec(ty.base))
        elif isinstance(ty, t.BitType):
            kind = spec.bitstring.int if ty.signed else spec.bitstring.bit
            kind.bitwidth = ty.width
        elif isinstance(ty, t.VarbitType):
            spec.bitstring.varbit.max_bitwidth = ty.max_width
        elif isinstance(ty, t.BoolType):
            spec.bool.SetInParent()
        elif isinstance(ty, t.SerEnumType):
            spec.serializable_enum.name = ty.name
            entry = self.info.type_info.serializable_enums[ty.name]
            entry.underlying_type.bitwidth = ty.base.width
            if not entry.members:
                for member, value in ty.values.items():
                    made = entry.members.add()
                    made.name = member
                    made.value = value.to_bytes((ty.base.width + 7) // 8, "big")
        elif isinstance(ty, t.EnumType):
            spec.enum.name = ty.name
            if not self.info.type_info.enums[ty.name].members:
                for member in ty.members:
                    self.info.type_info.enums[ty.name].members.add().name = member
        elif isinstance(ty, t.StructType):
            spec.struct.name = ty.name
            if not self.info.type_info.structs[ty.name].members:
                for field, each in ty.fields.items():
                    member = self.info.type_info.structs[ty.name].members.add()
                    member.name = field
                    member.type_spec.CopyFrom(self.type_spec(each))
        elif isinstance(ty, t.TupleType):
            for each in ty.items:
                spec.tuple.members.add().CopyFrom(self.type_spec(each))
        return spec

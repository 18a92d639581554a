"""The P4Info message of a program (P4Runtime specification §6)."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.architecture import architecture
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend.names import control_plane_name
from p4lite.compiler.p4info.blocks import BlockItem, Extern, Flat, calls_in_action, flatten, top_externs
from p4lite.compiler.p4info.ids import Symbols, add_annotations, add_documentation, field_ids, is_hidden, pairs_of
from p4lite.compiler.p4info.tables import TableWriter, set_match_type
from p4lite.compiler.p4info.typeinfo import TypeInfo, flat_fields, type_name
from p4lite.messages import p4info_pb2

INDEXED = ("counter", "meter", "register")
PROFILES = ("action_profile", "action_selector")
PROFILE_NOTES = frozenset({"max_group_size", "selector_size_semantics", "max_member_weight"})
UNITS = {"bytes": 1, "packets": 2, "packets_and_bytes": 3}
"""Values of CounterSpec.Unit and MeterSpec.Unit, by the members of the architectures' enums in small letters."""


def generate(program: TypedProgram, tables: Set[str]) -> Any:
    """Return the P4Info message of a program (`p4.config.v1.P4Info`).

    Args:
        tables: the names of those in the BMv2 JSON. A table that no packet can reach is in neither of the two.

    Raises:
        CompileError: an `@id` is impossible.
    """
    from p4lite.compiler import frontend

    with frontend.guarded(program.reporter, program.source_name):
        return _Generator(program, tables).run()


class _Generator:
    def __init__(self, program: TypedProgram, tables: Set[str]) -> None:
        self.program = program
        self.architecture = architecture(program.main)
        self.reached = tables
        self.info = p4info_pb2.P4Info()
        self.symbols = Symbols()
        self.types = TypeInfo(self.info.type_info, program.errors)
        self.tables = TableWriter(self.info, self.symbols, self.types, self.architecture)
        self.top = top_externs(program.decls)
        self.flats = list(self._flatten())
        self.table_items = [item for item in self._items() if isinstance(item.decl, ast.TableDecl)]
        self.profile_tables: dict[str, set[str]] = {}
        self.written: set[tuple[str, str]] = set()

    def run(self) -> Any:
        self._collect()
        self.symbols.assign()
        for name, each in self._externs(top_only=True):
            self._extern(name, each)
        for flat in self.flats:
            self._block(flat)
        for flat in self.flats:
            for item in flat.items:
                if isinstance(item, Extern):
                    self._extern(item.name, item)
                elif isinstance(item.decl, ast.TableDecl) and not is_hidden(item.decl.annotations):
                    self._table(item)
        for header in self._controller_headers():
            if not is_hidden(header.annotations):
                self._controller_header(header)
        self._pkg_info()
        self._check_unique()
        return self.info

    def _check_unique(self) -> None:
        """Refuse two objects with one identifier, or two of a kind with one name (P4Runtime §6.1.1, §6.3)."""
        ids: set[int] = set()
        for kind, value in self.info.ListFields():
            names: set[str] = set()
            for each in value if kind.name not in ("pkg_info", "type_info") else ():
                preamble = each.preamble
                if preamble.name in names:
                    what = kind.name.replace("_", " ")
                    raise Unsupported(
                        self.program.main.pos, f"two {what} have the control-plane name '{preamble.name}': rename one"
                    )
                if preamble.id in ids:
                    raise Unsupported(self.program.main.pos, f"two objects have the identifier {preamble.id:#x}")
                names.add(preamble.name)
                ids.add(preamble.id)

    # -- the objects of the program -----------------------------------------------------------------------

    def _flatten(self) -> Iterator[Flat]:
        for _, instance in self.architecture.instances(self.program.main):
            flat = flatten(instance, self.top, self.reached)
            if flat is not None:
                yield flat

    def _kind(self, made: Extern) -> str:
        """Return what an extern object is to the control plane, "" if nothing."""
        return self.architecture.kind(made.type) or ""

    def _items(self) -> Iterator[BlockItem]:
        for flat in self.flats:
            for item in flat.items:
                if isinstance(item, BlockItem):
                    yield item

    def _externs(self, *, top_only: bool = False) -> Iterator[tuple[str, Extern]]:
        for each in self.top.values():
            yield each.name, each
        if not top_only:
            for flat in self.flats:
                for item in flat.items:
                    if isinstance(item, Extern):
                        yield item.name, item

    def _controller_headers(self) -> Iterator[ast.StructDecl]:
        for decl in self.program.decls:
            if isinstance(decl, ast.StructDecl) and decl.kind == "header" and decl.annotation("controller_header"):
                yield decl

    def _collect(self) -> None:
        """Note every object's name, for identifiers and aliases."""
        for name, each in self._externs():
            kind = self._kind(each)
            if kind in PROFILES:
                self.symbols.add("action_profile", name, each.notes)
            elif kind:
                self.symbols.add(kind, name, each.notes)
        for item in self._items():
            kind = {ast.TableDecl: "table", ast.ActionDecl: "action", ast.ValueSetDecl: "value_set"}[type(item.decl)]
            self.symbols.add(kind, item.name, item.decl)
        for item in self.table_items:
            for prop in ("implementation", "counters", "meters"):
                found = self.tables.property_extern(item, prop)
                if found is None:
                    continue
                made, in_place = found
                kind = "action_profile" if self._kind(made) in PROFILES else self._kind(made)
                if in_place:
                    self.symbols.add(kind, made.name)
                if kind == "action_profile":
                    self.profile_tables.setdefault(made.name, set()).add(item.name)
        for flat in self.flats:
            for call in self._calls(flat):
                if call.method == "digest":
                    self.symbols.add("digest", self._digest_name(call))
        for header in self._controller_headers():
            # The identifier comes from the type's name, though the object bears the name in the annotation.
            self.symbols.add("controller_header", control_plane_name(header).lstrip("."), header)

    # -- controls and parsers -----------------------------------------------------------------------------

    def _calls(self, flat: Flat) -> Iterator[ast.Call]:
        """Yield the calls of extern functions: those in actions, then those in the body."""
        if isinstance(flat.block.decl, ast.ControlDecl):
            for item in flat.items:
                if isinstance(item, BlockItem) and isinstance(item.decl, ast.ActionDecl):
                    yield from calls_in_action(item.decl, item.home)
            yield from flat.calls

    def _block(self, flat: Flat) -> None:
        for item in flat.items:
            if not isinstance(item, BlockItem):
                continue
            if isinstance(item.decl, ast.ActionDecl):
                if not is_hidden(item.decl.annotations) and ("action", item.name) not in self.written:
                    self.written.add(("action", item.name))
                    self.tables.action(item)
            elif isinstance(item.decl, ast.ValueSetDecl):
                self._value_set(item, item.decl)
        for call in self._calls(flat):
            self.info.type_info.SetInParent()
            if call.method == "digest":
                self._digest(self._digest_name(call), call.types[0] if call.types else None)

    def _digest_name(self, call: ast.Call) -> str:
        ty = call.types[0] if call.types else None
        if isinstance(ty, t.Nominal):
            return control_plane_name(ast.declaration_of(ty)).lstrip(".")
        known = self.__dict__.setdefault("_unnamed", {})
        return str(known.setdefault(call, f"digest_{len(known)}"))

    def _digest(self, name: str, ty: t.Type | None, notes: ast.Declaration | None = None) -> None:
        if ("digest", name) in self.written:
            return
        self.written.add(("digest", name))
        message = self.info.digests.add()
        self.tables.preamble(message.preamble, "digest", name, notes)
        message.type_spec.CopyFrom(self.types.spec(ty))

    def _value_set(self, item: BlockItem, decl: ast.ValueSetDecl) -> None:
        message = self.info.value_sets.add()
        self.tables.preamble(message.preamble, "value_set", item.name, decl)
        size = item.home.constant(decl.size) if item.home is not None else None
        message.size = int(size) if isinstance(size, int) else 0
        element = decl.type.element if isinstance(decl.type, t.SetType) else decl.type
        if isinstance(element, t.StructType) and isinstance(element.decl, ast.StructDecl):
            fields = element.decl.fields
            for each, number in zip(fields, field_ids([f.annotations for f in fields]), strict=True):
                entry = message.match.add()
                entry.id = number
                entry.name = control_plane_name(each).lstrip(".")
                entry.bitwidth = t.max_width_bits(element.fields[each.name]) or 0
                match = each.annotation("match")
                set_match_type(entry, match.tokens[0] if match is not None and match.tokens else "exact")
                add_annotations(entry, each.annotations, {"match"})
                add_documentation(entry, each.annotations)
            return
        names = list(element.values) if isinstance(element, t.SerEnumType) else [""]
        for number, name in enumerate(names, 1):
            entry = message.match.add()
            entry.id = number
            entry.name = name
            entry.bitwidth = t.max_width_bits(element) or 0 if element is not None else 0
            set_match_type(entry, "exact")

    # -- tables and their externs -------------------------------------------------------------------------

    def _table(self, item: BlockItem) -> None:
        message = self.tables.table(item)
        implementation = self.tables.property_extern(item, "implementation")
        if implementation is not None:
            made, in_place = implementation
            message.implementation_id = self.symbols.id("action_profile", made.name)
            if in_place:
                self._profile(made)
        for prop in ("counters", "meters"):
            direct = self.tables.property_extern(item, prop)
            if direct is not None:
                made, _ = direct
                message.direct_resource_ids.append(self.symbols.id(self._kind(made), made.name))
                self._counter_or_meter(made, table=item.name)

    def _extern(self, name: str, made: Extern) -> None:
        kind = self._kind(made)
        if kind in PROFILES:
            self._profile(made)
        elif kind in INDEXED:
            self._counter_or_meter(made)
        elif kind == "digest":
            self._digest(made.name, made.types[0], made.notes)
        # The rest of the message may follow: p4c enters the types of any object of the program.
        self.info.type_info.SetInParent()

    def _counter_or_meter(self, made: Extern, table: str | None = None) -> None:
        kind = self._kind(made)
        if (kind, made.name) in self.written:
            return
        self.written.add((kind, made.name))
        message = getattr(self.info, kind + "s").add()
        self.tables.preamble(message.preamble, kind, made.name, made.notes)
        if kind in INDEXED:
            message.size = made.number(self.architecture.externs[made.type].size)
            self._index_type(message, kind, made.types)
        if kind == "register":
            message.type_spec.CopyFrom(self.types.spec(made.types[0] if made.types else None))
            return
        unit = made.args.get("type")
        if isinstance(unit, ast.EnumValue):
            message.spec.unit = UNITS[unit.member.lower()]
        if table is not None:
            message.direct_table_id = self.symbols.id("table", table)

    def _index_type(self, message: Any, kind: str, types: tuple[t.Type, ...]) -> None:
        """Set the type of an array's index, if it has a name: the last type argument (a register's first is data)."""
        named = type_name(types[-1]) if len(types) > (kind == "register") else None
        if named is not None:
            self.types.spec(types[-1])
            message.index_type_name.name = named

    def _profile(self, made: Extern) -> None:
        if ("action_profile", made.name) in self.written:
            return
        self.written.add(("action_profile", made.name))
        message = self.info.action_profiles.add()
        self.tables.preamble(message.preamble, "action_profile", made.name, made.notes, PROFILE_NOTES)
        message.with_selector = self._kind(made) == "action_selector"
        message.size = made.number("size")
        tables = sorted(self.profile_tables.get(made.name, ()), key=str.encode)
        message.table_ids.extend(self.symbols.id("table", name) for name in tables)
        notes = {each.name: each for each in made.notes.annotations} if made.notes is not None else {}
        if not message.with_selector:
            return
        largest = _argument(notes.get("max_group_size"))
        if isinstance(largest, int):
            message.max_group_size = largest
        semantics = notes.get("selector_size_semantics")
        if semantics is not None:
            text = str(_argument(semantics)).lower()
            if text == "sum_of_weights":
                message.sum_of_weights.SetInParent()
            elif text == "sum_of_members":
                message.sum_of_members.SetInParent()
                weight = _argument(notes.get("max_member_weight"))
                if isinstance(weight, int):
                    message.sum_of_members.max_member_weight = weight
            else:
                raise Unsupported(semantics.pos, '@selector_size_semantics takes "sum_of_weights" or "sum_of_members"')

    # -- the rest -----------------------------------------------------------------------------------------

    def _controller_header(self, decl: ast.StructDecl) -> None:
        annotation = decl.annotation("controller_header")
        name = str(_argument(annotation))
        message = self.info.controller_packet_metadata.add()
        message.preamble.id = self.symbols.id("controller_header", control_plane_name(decl).lstrip("."))
        message.preamble.name = message.preamble.alias = name
        add_annotations(message.preamble, decl.annotations)
        add_documentation(message.preamble, decl.annotations)
        assert isinstance(decl.type, t.FieldsType)
        fields = list(flat_fields(decl.type))
        for (field_name, ty, notes), number in zip(fields, field_ids([f[2] for f in fields]), strict=True):
            if is_hidden(notes):
                continue
            entry = message.metadata.add()
            entry.id = number
            entry.name = field_name.lstrip(".")
            add_annotations(entry, notes)
            self.tables.named_type(entry, ty)

    def _pkg_info(self) -> None:
        package = self.info.pkg_info
        package.arch = self.architecture.name
        site = self.program.main.site
        if site is None:
            return
        for annotation in site.annotations:
            if annotation.name == "pkginfo":
                for key, value in pairs_of(annotation):
                    if key in ("name", "version", "organization", "contact", "url", "arch"):
                        setattr(package, key, str(value))
            elif annotation.name == "platform_property":
                for key, value in pairs_of(annotation):
                    if key in package.platform_properties.DESCRIPTOR.fields_by_name and isinstance(value, int):
                        setattr(package.platform_properties, key, value)
        add_annotations(package, site.annotations, {"pkginfo", "platform_property"})
        add_documentation(package, site.annotations)


def _argument(annotation: ast.Annotation | None) -> str | int | None:
    """Return the one argument of an annotation."""
    return annotation.args[0] if annotation is not None and annotation.args else None

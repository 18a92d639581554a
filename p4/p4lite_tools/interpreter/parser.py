"""The parser: states of operations and transitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p4lite.switch.bmv2.model import HeaderLayout
from p4lite.switch.bmv2.reader import JsonNode
from p4lite_tools.interpreter.events import (
    Extracted,
    NamedValue,
    ParserFailed,
    Place,
    StateEntered,
    StatementStarted,
    TransitionTaken,
    place_of,
)
from p4lite_tools.interpreter.expressions import Number, bits_of
from p4lite_tools.interpreter.packet import Packet, ParserFailure, wrap
from p4lite_tools.interpreter.primitives import PrimitiveCompiler, Step

MAX_STEPS = 1024
"""States that a packet may pass through, after which the parser stops with ParserTimeout."""
Operation = Callable[[Packet], None]


@dataclass(frozen=True, slots=True)
class ParserTransition:
    """`value_set` or `value` and `mask` of the key's bytes; neither: the default."""

    to: str | None
    where: Place | None
    value: bytes | None = None
    mask: bytes = b""
    value_set: str | None = None


@dataclass(frozen=True, slots=True)
class ParseState:
    """A state: its operations with their places and names, the parts of its key with their widths, its transitions."""

    name: str
    where: Place | None
    operations: tuple[tuple[Operation, Place | None, str], ...]
    key: tuple[tuple[Number, int], ...]
    transitions: tuple[ParserTransition, ...]


class Parser:
    """A parser; without a `node` of the document, one that accepts every packet."""

    def __init__(self, primitives: PrimitiveCompiler, node: JsonNode | None) -> None:
        self.primitives = primitives
        self.state = primitives.state
        self.model = primitives.model
        self.expr = primitives.expr
        self.init: str | None = None
        self.states: dict[str, ParseState] = {}
        if node is not None:
            init = node.get("init_state")
            self.init = init.str() if init is not None else None
            for state in node.items("parse_states"):
                self.states[state["name"].str()] = self._state(state)

    def run(self, packet: Packet) -> None:
        """Parse `packet.data`; an error ends it, with what was extracted kept."""
        name, packet.cursor, self.state.where = self.init, 0, None
        packet.parser_error = self.model.error("NoError")
        try:
            for _ in range(MAX_STEPS):
                if name is None:
                    break
                name = self._enter(packet, self.states[name])
            else:
                raise ParserFailure(self.model.error("ParserTimeout"))
        except ParserFailure as failure:
            packet.parser_error = failure.code
            if self.state.observers:
                error = next((e for e, code in self.model.errors.items() if code == failure.code), str(failure.code))
                self.state.emit(ParserFailed(self.state.where, name or "", error))
        packet.payload = packet.data[packet.cursor :]

    def _enter(self, packet: Packet, state: ParseState) -> str | None:
        watched = bool(self.state.observers)
        # A state of the compiler's own, as that of no match, is where the transition to it is.
        here = state.where or self.state.where
        if watched:
            self.state.where = here
            self.state.emit(StateEntered(here, state.name, packet.cursor))
        for operation, where, op in state.operations:
            if watched:
                self.state.where = where or here
                if op != "primitive":  # which says so itself
                    self.state.emit(StatementStarted(self.state.where, op))
            operation(packet)
        number, transition = self._transition(packet, state)
        to = None if transition is None else transition.to
        if watched:
            where = (transition.where if transition is not None else None) or here
            self.state.where = where
            self.state.emit(TransitionTaken(where, state.name, number, to))
        return to

    # --- operations ---

    def _state(self, node: JsonNode) -> ParseState:
        operations = tuple((self._operation(op), place_of(op), op["op"].str()) for op in node.items("parser_ops"))
        key = tuple((self.expr.number(part), self._width(part)) for part in node.items("transition_key"))
        return ParseState(
            node["name"].str(),
            place_of(node),
            operations,
            key,
            tuple(self._case(t, key) for t in node.items("transitions")),
        )

    def _operation(self, node: JsonNode) -> Operation:
        op, args = node["op"].str(), node["parameters"]
        if op in ("extract", "extract_VL"):
            return self._extract(args[0], None if op == "extract" else self.expr.number(args[1]))
        if op == "set":
            return self._set(args)
        if op == "verify":
            return self._verify(args)
        if op == "shift":
            count = 8 * args[0].int(0)
            return self._advance(lambda p, a: count)
        if op == "advance":
            return self._advance(self.expr.number(args[0]))
        if op == "primitive":
            step = self.primitives.step(args[0])
            return lambda packet: self._primitive(packet, step)
        raise node["op"].error(f"the parser operation '{op}' is not supported")

    def _primitive(self, packet: Packet, step: Step) -> None:
        self.primitives.run((step,), packet, ())

    def _set(self, args: JsonNode) -> Operation:
        if self.primitives.is_varbit(args[0]):
            assign = JsonNode({"op": "assign_VL", "parameters": [args[0].value, args[1].value]}, args.source, args.path)
            step = self.primitives.step(assign)
            return lambda packet: self._primitive(packet, step)
        ref = self.model.field_ref(args[0]["value"])
        value = self.expr.number(args[1])
        if ref.field.index < 0:  # as p4c wrote setValid and setInvalid until 2018
            header = ref.header.name

            def run(packet: Packet) -> None:
                change = self.primitives.add if value(packet, ()) & 1 else self.primitives.remove
                change(packet, header)

            return run
        store = self.primitives.store(self.expr.target(args[0]), value)
        return lambda packet: store(packet, ())

    def _verify(self, args: JsonNode) -> Operation:
        holds = self.expr.truth(args[0])
        code: Number
        if isinstance(args[1].value, int):
            number = args[1].int(0)
            code = lambda p, a: number  # noqa: E731
        else:
            code = self.expr.number(args[1])

        def run(packet: Packet) -> None:
            if not holds(packet, ()):
                raise ParserFailure(code(packet, ()))

        return run

    def _error(self, name: str) -> ParserFailure:
        return ParserFailure(self.model.error(name))

    def _advance(self, bits: Number) -> Operation:
        def run(packet: Packet) -> None:
            count = bits(packet, ())
            if count % 8:
                raise self._error("ParserInvalidArgument")
            if packet.cursor + count // 8 > len(packet.data):
                raise self._error("PacketTooShort")
            packet.cursor += count // 8

        return run

    def _extract(self, arg: JsonNode, length: Number | None) -> Operation:
        kind = arg["type"].str()
        if kind == "regular":
            header = self.model.find(self.model.headers, arg["value"], "header")
            name, type_ = header.name, header.type
            return lambda packet: self._extract_to(packet, name, type_, length)
        if kind == "stack":
            stack = self.model.find(self.model.stacks, arg["value"], "header stack")
            return self._next(stack.name, [h.name for h in stack.headers], stack.type, length)
        if kind == "union_stack":
            unions, member = self.model.union_member(JsonNode([*arg["value"].value, ""], arg.source, arg.path))
            headers = [u.headers[member] for u in unions.unions]
            return self._next(unions.name, [h.name for h in headers], headers[0].type, length)
        raise arg["type"].error(f"'{kind}' cannot be extracted")

    def _next(self, stack: str, names: list[str], type_: HeaderLayout, length: Number | None) -> Operation:
        def run(packet: Packet) -> None:
            index = packet.next_index[stack]
            if index >= len(names):
                raise self._error("StackOutOfBounds")
            self._extract_to(packet, names[index], type_, length)
            packet.next_index[stack] = index + 1

        return run

    def _extract_to(self, packet: Packet, name: str, type_: HeaderLayout, length: Number | None) -> None:
        left = len(packet.data) * 8 - packet.cursor * 8
        if type_.fixed_bits > left:
            raise self._error("PacketTooShort")
        varbit = self._varbit(packet, type_, length)
        if varbit % 8:
            raise self._error("ParserInvalidArgument")
        if type_.fixed_bits + varbit > left:
            raise self._error("PacketTooShort")
        if varbit // 8 > type_.varbit_max and type_.varbit is not None:
            raise self._error("HeaderTooShort")
        header, at, start = packet.headers[name], packet.cursor * 8, packet.cursor
        values = []
        for field in type_.fields:
            width = varbit if field.varbit else field.width
            raw = bits_of(packet.data, at, width) if width else 0
            header.fields[field.name] = wrap(raw, width, field.signed) if width else 0
            values.append(NamedValue(field.name, raw, width))
            at += width
        header.varbit_bits = varbit
        packet.cursor = at // 8
        if self.state.observers:
            self.state.emit(Extracted(self.state.where, name, start, tuple(values)))
        self.primitives.set_valid(packet, name, True)

    def _varbit(self, packet: Packet, type_: HeaderLayout, length: Number | None) -> int:
        if type_.varbit is None:
            return 0
        if length is not None:
            return length(packet, ())
        if type_.length_exp is None:
            return 0
        # Its locals are the header's own fields, those before the varbit being what it depends on.
        at, own = packet.cursor * 8, []
        for field in type_.fields:
            own.append(0 if field.varbit else bits_of(packet.data, at, field.width))
            at += field.width
        return self.expr.number(type_.length_exp)(packet, own)

    # --- transitions ---

    def _width(self, part: JsonNode) -> int:
        kind, value = part["type"].str(), part["value"]
        if kind == "lookahead":
            return value[1].int(1)
        if kind == "field":
            return self.model.field_ref(value).field.width
        if kind == "stack_field":
            return self.model.type_field(
                self.model.find(self.model.stacks, value[0], "header stack").type, value[1]
            ).width
        stack, member = self.model.union_member(value)
        return self.model.type_field(stack.unions[0].headers[member].type, value[2]).width

    @staticmethod
    def _case(node: JsonNode, key: tuple[tuple[Number, int], ...]) -> ParserTransition:
        following, kind, value = node.get("next_state"), node.get("type"), node.get("value")
        to, where = None if following is None else following.str(), place_of(node)
        if value is None or value.value == "default" or (kind is not None and kind.value == "default"):
            return ParserTransition(to, where)
        size = sum((width + 7) // 8 for _, width in key)
        mask = node.get("mask")
        masked = mask.hex_bytes() if mask is not None else b"\xff" * size
        if kind is not None and kind.value == "parse_vset":
            return ParserTransition(to, where, value_set=value.str())
        wanted = _negative(value.hex(), size) if value.str().startswith("-") else value.hex_bytes()
        if len(wanted) != size or len(masked) != size:
            value.fail(f"the value has {len(wanted)} bytes, the transition key has {size}")
        return ParserTransition(to, where, wanted, masked)

    def _transition(self, packet: Packet, state: ParseState) -> tuple[int | None, ParserTransition | None]:
        default: tuple[int | None, ParserTransition | None] = (None, None)
        key, packed = b"", 0
        if any(t.value is not None or t.value_set is not None for t in state.transitions):
            for get, width in state.key:
                value = get(packet, ()) & ((1 << width) - 1)
                key += value.to_bytes((width + 7) // 8, "big")
                packed = packed << width | value
        for number, transition in enumerate(state.transitions):
            if transition.value_set is not None:
                if packed in self.state.value_set_iter(transition.value_set):
                    return number, transition
            elif transition.value is None:
                default = number, transition
            elif all(k & m == w & m for k, w, m in zip(key, transition.value, transition.mask, strict=True)):
                return number, transition
        return default


def _negative(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)

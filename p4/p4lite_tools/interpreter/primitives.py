"""Actions: lists of primitives as Python functions, and the changes that they make to a packet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from operator import index
from typing import Any

from p4lite.switch.bmv2.model import FieldType, Stack, UnionStack
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.errors import InvalidArgument, ProgramError
from p4lite.switch.program.facts import MAX_JUMPS_BACK, Array
from p4lite_tools.interpreter.events import (
    Counted,
    ExternCalled,
    FieldChanged,
    Logged,
    Metered,
    Place,
    RegisterRead,
    RegisterWritten,
    StatementStarted,
    ValidityChanged,
    place_of,
)
from p4lite_tools.interpreter.expressions import (
    HEADER,
    STACK,
    UNION,
    UNION_STACK,
    Arguments,
    AssignmentTarget,
    CalculationCompiler,
    ExpressionCompiler,
    Number,
)
from p4lite_tools.interpreter.packet import HeaderState, Packet, header_bits, wrap
from p4lite_tools.interpreter.tables import InterpreterTables

BINARY = {"add": "+", "subtract": "-", "bit_xor": "^", "bit_or": "|", "bit_and": "&"}
BINARY |= {"shift_left": "<<", "shift_right": ">>"}
Run = Callable[[Packet, Arguments], None]
#: What v1model's meters store for green, yellow and red.
COLOURS = (0, 1, 2)
#: An extern object that is written in Python: its public methods are those of P4.
PythonExtern = Any


@dataclass(frozen=True, slots=True)
class Step:
    """A primitive; a jump has `to` instead of `run`, and jumps if `test` is absent or gives 0."""

    op: str
    where: Place | None
    run: Run | None = None
    to: int = 0
    test: Number | None = None


class PrimitiveCompiler:
    """Compiles primitives for one switch, and runs them."""

    def __init__(
        self, state: InterpreterTables, expr: ExpressionCompiler, drop_port: int, externs: Mapping[str, PythonExtern]
    ) -> None:
        self.state = state
        self.model = state.program.model
        self.expr = expr
        self.drop_port = drop_port
        self.externs = externs
        self.calculations = CalculationCompiler(self.model)
        self.methods: dict[str, Callable[[list[JsonNode]], Run]] = {}
        """Methods of the architecture's externs, by the names of their primitives."""

    # --- actions ---

    def action(self, nodes: Sequence[JsonNode]) -> list[Step]:
        """Return the steps of an action. Raises ProgramError."""
        return [self.step(node, len(nodes)) for node in nodes]

    def step(self, node: JsonNode, count: int = 0) -> Step:
        """Return one primitive of an action that has `count`."""
        op, where = node["op"].str(), place_of(node)
        args = list(node["parameters"].items())
        if op in ("_jump", "_jump_if_zero"):
            to = args[-1]["value"].hex()
            if not 0 <= to <= count:
                node.fail(f"a jump to primitive {to} of {count}")
            return Step(op, where, None, to, self.expr.number(args[0]) if op == "_jump_if_zero" else None)
        if op in BINARY:
            run = self._three(BINARY[op], args)
        elif op in ("add_to_field", "subtract_from_field"):
            run = self._three("+" if op == "add_to_field" else "-", [args[0], *args])
        elif op in self.methods:
            run = self.methods[op](args)
        elif op.startswith("_") and args and args[0]["type"].value == "extern":
            run = self._extern(op, args)
        else:
            compiled = getattr(self, "_do_" + op, None)
            if compiled is None:
                node["op"].fail(f"the primitive '{op}' is not known to the interpreter")
            run = compiled(args)
        return Step(op, where, run)

    def run(self, steps: Sequence[Step], packet: Packet, args: Arguments) -> None:
        """Run an action."""
        at = jumps_back = 0
        state = self.state
        while at < len(steps):
            step = steps[at]
            at += 1
            if step.run is not None:
                if state.observers:
                    state.where = step.where
                    state.emit(StatementStarted(step.where, step.op))
                step.run(packet, args)
            elif step.test is None or step.test(packet, args) & 0xFFFFFFFF == 0:
                jumps_back += step.to < at
                if jumps_back > MAX_JUMPS_BACK:
                    state.fault("an action jumped back a million times: it ends here")
                    return
                at = step.to

    # --- changes ---

    def set(self, packet: Packet, header: str, field: FieldType, value: int) -> None:
        """Store a number into a field, cut to its width."""
        if field.index < 0:
            self.set_valid(packet, header, bool(value & 1))
            return
        fields = packet.headers[header].fields
        if field.saturating:
            low, high = (
                (-(1 << field.width >> 1), (1 << field.width >> 1) - 1) if field.signed else (0, 2**field.width - 1)
            )
            value = max(low, min(value, high))
        value = wrap(value, field.width, field.signed)
        old = fields[field.name]
        fields[field.name] = value
        if old != value and self.state.observers:
            mask = (1 << field.width) - 1
            event = FieldChanged(self.state.where, f"{header}.{field.name}", old & mask, value & mask, field.width)
            self.state.emit(event)

    def store(self, target: AssignmentTarget, value: Number) -> Run:
        """Return the assignment of a number."""
        header, field = target.header, target.field

        def run(packet: Packet, args: Arguments) -> None:
            number = value(packet, args)
            name = header(packet, args)
            if name is not None:
                self.set(packet, name, field, number)

        return run

    def set_valid(self, packet: Packet, name: str, valid: bool) -> None:
        """Make a header valid or invalid; of a union only one member is valid."""
        union = self.model.headers[name].union
        if valid and union is not None:
            for other in union.headers:
                if other.name != name and packet.headers[other.name].valid:
                    self._mark(packet, other.name, False)
        self._mark(packet, name, valid)

    def _mark(self, packet: Packet, name: str, valid: bool) -> None:
        state = packet.headers[name]
        if state.valid != valid:
            state.valid = valid
            if self.state.observers:
                self.state.emit(ValidityChanged(self.state.where, name, valid))

    def add(self, packet: Packet, name: str) -> None:
        """Make a header valid, with fields of 0 unless it is valid already."""
        header = packet.headers[name]
        if not header.valid:
            header.fields = dict.fromkeys(header.fields, 0)
            header.varbit_bits = 0
            self.set_valid(packet, name, True)
            packet.length += header_bits(self.model, packet, name) // 8

    def remove(self, packet: Packet, name: str) -> None:
        """Make a header invalid."""
        if packet.headers[name].valid and not self.model.headers[name].metadata:
            packet.length -= header_bits(self.model, packet, name) // 8
            self.set_valid(packet, name, False)

    def copy(self, packet: Packet, target: str, source: HeaderState) -> None:
        """Copy a header with its validity."""
        if not source.valid:
            self.set_valid(packet, target, False)
            return
        into = packet.headers[target]
        values, varbit = dict(source.fields), source.varbit_bits
        self.set_valid(packet, target, True)
        for field in self.model.headers[target].fields:
            if field.varbit:
                into.fields[field.name] = values[field.name]
            else:
                self.set(packet, target, field, values[field.name])
        into.varbit_bits = varbit

    # --- assignments ---

    def is_varbit(self, node: JsonNode) -> bool:
        """Return whether a target is a variable-length field."""
        return node["type"].value == "field" and self.model.field_ref(node["value"]).field.varbit

    def _do_assign(self, args: list[JsonNode]) -> Run:
        if self.is_varbit(args[0]):
            return self._do_assign_VL(args)
        if args[0]["type"].value == "register":
            register = JsonNode({"type": "register_array", "value": args[0]["value"][0].value}, "", "")
            return self._do_register_write([register, args[0]["value"][1], args[1]])
        return self.store(self.expr.target(args[0]), self.expr.number(args[1]))

    _do_modify_field = _do_assign

    def _do_assign_VL(self, args: list[JsonNode]) -> Run:  # noqa: N802 - BMv2's name
        to, source = (self.model.field_ref(arg["value"]) for arg in args)

        def run(packet: Packet, arguments: Arguments) -> None:
            origin, into = packet.headers[source.header.name], packet.headers[to.header.name]
            into.varbit_bits = min(origin.varbit_bits, 8 * to.header.type.varbit_max)
            old, into.fields[to.field.name] = into.fields[to.field.name], origin.fields[source.field.name]
            if self.state.observers and old != into.fields[to.field.name]:
                name = f"{to.header.name}.{to.field.name}"
                new = into.fields[to.field.name]
                self.state.emit(FieldChanged(self.state.where, name, old, new, into.varbit_bits))

        return run

    def _three(self, op: str, args: list[JsonNode]) -> Run:
        compute = JsonNode({"op": op, "left": args[1].value, "right": args[2].value}, args[0].source, args[0].path)
        return self.store(self.expr.target(args[0]), self.expr.number(compute))

    def _do_assign_header(self, args: list[JsonNode]) -> Run:
        (to, _), (source, _) = self.expr.header(args[0]), self.expr.header(args[1])

        def run(packet: Packet, arguments: Arguments) -> None:
            target, origin = to(packet, arguments), source(packet, arguments)
            if target is not None and origin is not None and target != origin:
                self.copy(packet, target, packet.headers[origin].copy())

        return run

    _do_copy_header = _do_assign_header

    def _copies(self, pairs: Sequence[tuple[str, str]], stacks: tuple[str, str] | None = None) -> Run:
        def run(packet: Packet, arguments: Arguments) -> None:
            if stacks is not None:
                packet.next_index[stacks[0]] = packet.next_index[stacks[1]]
            for target, source in pairs:
                if target != source:
                    self.copy(packet, target, packet.headers[source].copy())

        return run

    def _members(self, node: JsonNode, kind: str) -> list[list[str]]:
        """Return the names of the headers of a stack, union or stack of unions, by element."""
        name = self.expr.name(node, kind)
        if kind == STACK:
            return [[h.name] for h in self.model.stacks[name].headers]
        if kind == UNION:
            return [[h.name for h in self.model.unions[name].headers]]
        return [[h.name for h in union.headers] for union in self.model.union_stacks[name].unions]

    def _assign_all(self, args: list[JsonNode], kind: str) -> Run:
        to, source = ([name for element in self._members(arg, kind) for name in element] for arg in args)
        if len(to) != len(source):
            args[1].fail("they are of different sizes")
        names = (self.expr.name(args[0], kind), self.expr.name(args[1], kind))
        return self._copies(list(zip(to, source, strict=True)), None if kind == UNION else names)

    def _do_assign_header_stack(self, args: list[JsonNode]) -> Run:
        return self._assign_all(args, STACK)

    def _do_assign_union(self, args: list[JsonNode]) -> Run:
        return self._assign_all(args, UNION)

    def _do_assign_union_stack(self, args: list[JsonNode]) -> Run:
        return self._assign_all(args, UNION_STACK)

    # --- validity and stacks ---

    def _on_header(self, node: JsonNode, change: Callable[[Packet, str], None]) -> Run:
        header, _ = self.expr.header(node)

        def run(packet: Packet, args: Arguments) -> None:
            name = header(packet, args)
            if name is not None:
                change(packet, name)

        return run

    def _do_add_header(self, args: list[JsonNode]) -> Run:
        return self._on_header(args[0], self.add)

    def _do_add_header_fast(self, args: list[JsonNode]) -> Run:
        return self._on_header(args[0], lambda packet, name: self.set_valid(packet, name, True))

    def _do_remove_header(self, args: list[JsonNode]) -> Run:
        return self._on_header(args[0], self.remove)

    def _shift(self, args: list[JsonNode], direction: int) -> Run:
        value = self.expr.value(args[0])
        name, amount = self.expr.name(args[0], value.kind), self.expr.number(args[1])
        stack: Stack | UnionStack = self.model.stacks[name] if value.kind == STACK else self.model.union_stacks[name]
        elements = self._members(args[0], value.kind)
        size = len(elements)

        def run(packet: Packet, arguments: Arguments) -> None:
            count = direction * min(amount(packet, arguments), size)
            old = [[packet.headers[name].copy() for name in element] for element in elements]
            for i, element in enumerate(elements):
                for j, name in enumerate(element):
                    inside = 0 <= i - count < size
                    empty = HeaderState(dict.fromkeys(packet.headers[name].fields, 0))
                    self.copy(packet, name, old[i - count][j] if inside else empty)
            packet.next_index[stack.name] = max(0, min(size, packet.next_index[stack.name] + count))

        return run

    def _do_push(self, args: list[JsonNode]) -> Run:
        return self._shift(args, 1)

    def _do_pop(self, args: list[JsonNode]) -> Run:
        return self._shift(args, -1)

    # --- fate of the packet ---

    def _do_exit(self, args: list[JsonNode]) -> Run:
        def run(packet: Packet, arguments: Arguments) -> None:
            packet.exited = True

        return run

    def _do_no_op(self, args: list[JsonNode]) -> Run:
        return lambda packet, arguments: None

    def _do_mark_to_drop(self, args: list[JsonNode]) -> Run:
        name = args[0]["value"].str()
        known = self.model.find(self.model.headers, args[0]["value"], HEADER).type.by_name

        def run(packet: Packet, arguments: Arguments) -> None:
            self.set(packet, name, known["egress_spec"], self.drop_port)
            if "mcast_grp" in known:
                self.set(packet, name, known["mcast_grp"], 0)

        return run

    def _do_drop(self, args: list[JsonNode]) -> Run:
        return self._do_mark_to_drop([JsonNode({"type": "header", "value": "standard_metadata"}, "", "")])

    def _do_generate_digest(self, args: list[JsonNode]) -> Run:
        list_id = self.expr.number(args[1])

        def run(packet: Packet, arguments: Arguments) -> None:
            packet.digest = list_id(packet, arguments) & 0xFFFF

        return run

    def _do_clone_ingress_pkt_to_egress(self, args: list[JsonNode]) -> Run:
        session, fields = self.expr.number(args[0]), self.expr.number(args[1])

        def run(packet: Packet, arguments: Arguments) -> None:
            packet.clone = (session(packet, arguments) & 0x7FFF, fields(packet, arguments) & 0xFFFF)

        return run

    _do_clone_egress_pkt_to_egress = _do_clone_ingress_pkt_to_egress

    def _do_resubmit(self, args: list[JsonNode]) -> Run:
        fields = self.expr.number(args[0])

        def run(packet: Packet, arguments: Arguments) -> None:
            packet.resubmit = fields(packet, arguments) & 0xFFFF

        return run

    def _do_recirculate(self, args: list[JsonNode]) -> Run:
        fields = self.expr.number(args[0])

        def run(packet: Packet, arguments: Arguments) -> None:
            packet.recirculate = fields(packet, arguments) & 0xFFFF

        return run

    def _do_truncate(self, args: list[JsonNode]) -> Run:
        length = self.expr.number(args[0])

        def run(packet: Packet, arguments: Arguments) -> None:
            wanted = length(packet, arguments)
            packet.truncate = wanted if packet.truncate is None else min(packet.truncate, wanted)

        return run

    # --- hashes and random numbers ---

    def _do_modify_field_with_hash_based_offset(self, args: list[JsonNode]) -> Run:
        base, size = self.expr.number(args[1]), self.expr.number(args[3])
        calculation = self.calculations.named(args[2]["value"])

        def value(packet: Packet, arguments: Arguments) -> int:
            many = size(packet, arguments) & (2**64 - 1)
            if many == 0:
                self.state.fault("hash() with a maximum of 0, taken as 1")
            return base(packet, arguments) + calculation(packet) % (many or 1)

        return self.store(self.expr.target(args[0]), value)

    def _do_modify_field_rng_uniform(self, args: list[JsonNode]) -> Run:
        target, low, high = self.expr.target(args[0]), self.expr.number(args[1]), self.expr.number(args[2])

        def run(packet: Packet, arguments: Arguments) -> None:
            least, most = low(packet, arguments), high(packet, arguments)
            if least > most:
                self.state.fault(f"random() from {least} to {most}: nothing is written")
                return
            self.store(target, lambda p, a: self.state.random(least, most))(packet, arguments)

        return run

    # --- arrays ---

    def _array(self, node: JsonNode, kind: str, known: dict[str, Array]) -> Array:
        if node["type"].value != kind:
            node.fail(f"expected a {kind}")
        return self.model.find(known, node["value"], kind.replace("_", " "))

    def _do_register_read(self, args: list[JsonNode]) -> Run:
        array = self._array(args[1], "register_array", self.state.program.registers)
        target, index = self.expr.target(args[0]), self.expr.number(args[2])

        def run(packet: Packet, arguments: Arguments) -> None:
            at = index(packet, arguments)
            value = self.state.read_cell(array, at)
            if value is None:
                return
            if self.state.observers:
                self.state.emit(RegisterRead(self.state.where, array.name, at, value))
            self.store(target, lambda p, a: value)(packet, arguments)

        return run

    def _do_register_write(self, args: list[JsonNode]) -> Run:
        array = self._array(args[0], "register_array", self.state.program.registers)
        index, value = self.expr.number(args[1]), self.expr.number(args[2])

        def run(packet: Packet, arguments: Arguments) -> None:
            at, new = index(packet, arguments), value(packet, arguments) & ((1 << array.width) - 1)
            old = self.state.write_cell(array, at, new)
            if old is not None and self.state.observers:
                self.state.emit(RegisterWritten(self.state.where, array.name, at, old, new))

        return run

    def _do_count(self, args: list[JsonNode]) -> Run:
        return self.counting(self._array(args[0], "counter_array", self.state.program.counters), args[1])

    def counting(self, array: Array, at_index: JsonNode) -> Run:
        """Return the call that counts a packet in a cell of a counter."""
        index = self.expr.number(at_index)

        def run(packet: Packet, arguments: Arguments) -> None:
            at = index(packet, arguments)
            cell = self.state.count_cell(array, at, packet.ingress_length)
            if cell is not None and self.state.observers:
                self.state.emit(Counted(self.state.where, array.name, at, cell.packets, cell.bytes))

        return run

    def _do_execute_meter(self, args: list[JsonNode]) -> Run:
        array = self._array(args[0], "meter_array", self.state.program.meters)
        return self.metering(array, args[1], args[2], COLOURS)

    def metering(self, array: Array, at_index: JsonNode, result: JsonNode, colours: Sequence[int]) -> Run:
        """Return the call that meters a packet by a cell of a meter; `colours`: what green, yellow and red are stored
        as.
        """
        index, target = self.expr.number(at_index), self.expr.target(result)

        def run(packet: Packet, arguments: Arguments) -> None:
            at = index(packet, arguments)
            colour = self.state.execute_meter(array, at, packet.ingress_length)
            if colour is None:
                return
            if self.state.observers:
                self.state.emit(Metered(self.state.where, array.name, at, colour))
            self.store(target, lambda p, a: colours[colour])(packet, arguments)

        return run

    # --- externs in Python ---

    def _extern(self, op: str, args: list[JsonNode]) -> Run:
        """Return the call of a method: it takes the in parameters, and returns the out parameters, which follow."""
        name = args[0]["value"].str()
        instance = self.externs.get(name)
        if instance is None:
            known = ", ".join(self.externs) or "none"
            args[0].fail(
                f"no Python object is given for the extern '{name}' (given: {known}); write "
                f"p4lite.Switch(program, externs={{'{name}': OBJECT}})"
            )
        if isinstance(instance, type):
            what = instance.__name__
            args[0].fail(f"the class {what} is given for the extern '{name}': give an object of it, as {what}()")
        kind = next((e["type"].str() for e in self.model.root.items("extern_instances") if e["name"].value == name), "")
        method = op.removeprefix(f"_{kind}_")
        call = getattr(instance, method, None)
        shown = f"{type(instance).__name__}.{method}"
        if not callable(call) or method.startswith("_"):
            args[0].fail(f"{type(instance).__name__}, given for the extern '{name}', has no method '{method}'")
        taken = len(signature(call).parameters)
        if taken > len(args) - 1:
            args[0].fail(f"{shown} takes {taken} arguments, the program gives {len(args) - 1}")
        values = [self.expr.number(arg) for arg in args[1 : 1 + taken]]
        targets = [self._out(arg, shown, taken) for arg in args[1 + taken :]]

        def run(packet: Packet, arguments: Arguments) -> None:
            given = tuple(value(packet, arguments) for value in values)
            if self.state.observers:
                self.state.emit(ExternCalled(self.state.where, name, method, given))
            result = call(*given)
            results = () if result is None else result if isinstance(result, tuple) else (result,)
            if len(results) != len(targets):
                raise InvalidArgument(
                    f"{shown} takes {_values(taken)} and returned {_values(len(results))}, but the program's call has "
                    f"{len(args) - 1} parameters: the method takes the 'in' parameters and returns the 'out' parameters"
                )
            checked = [_result(shown, target.field, each) for target, each in zip(targets, results, strict=True)]
            for target, number in zip(targets, checked, strict=True):
                header = target.header(packet, arguments)
                if header is not None:
                    self.set(packet, header, target.field, number)

        return run

    def _out(self, arg: JsonNode, method: str, taken: int) -> AssignmentTarget:
        """Return where an out parameter goes. Raises ProgramError if it is an in parameter."""
        try:
            return self.expr.target(arg)
        except ProgramError:
            arg.fail(
                f"{method} takes {_values(taken)}, but the program's call has more 'in' parameters: the method takes "
                "them all"
            )

    # --- diagnosis ---

    def _do_assert(self, args: list[JsonNode], what: str = "assert") -> Run:
        test = self.expr.truth(args[0])

        def run(packet: Packet, arguments: Arguments) -> None:
            if not test(packet, arguments):
                self.state.fault(f"{what} does not hold")

        return run

    def _do_assume(self, args: list[JsonNode]) -> Run:
        return self._do_assert(args, "assume")

    def _do_log_msg(self, args: list[JsonNode]) -> Run:
        pieces = args[0]["value"].str()
        # p4c writes an empty object, not an empty array, for a message without arguments.
        items = [] if args[1]["value"].value == {} else [self.expr.number(item) for item in args[1]["value"].items()]

        def run(packet: Packet, arguments: Arguments) -> None:
            text = pieces
            for item in items:
                text = text.replace("{}", str(item(packet, arguments)), 1)
            packet.messages.append(text)
            if self.state.observers:
                self.state.emit(Logged(self.state.where, text))

        return run


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"


def _result(method: str, field: FieldType, value: object) -> int:
    """Return what a method returned for an out parameter. Raises InvalidArgument unless it is an int that fits."""
    kind = f"{'int' if field.signed else 'bit'}<{field.width}>"
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"{method} returned {value!r}, which is no {kind}: an int is wanted") from None
    low, high = (-(1 << field.width >> 1), (1 << field.width >> 1) - 1) if field.signed else (0, (1 << field.width) - 1)
    if not low <= number <= high:
        raise InvalidArgument(f"{method} returned {number}, which is no {kind}: an int from {low} to {high} is wanted")
    return number

"""A debugger for P4 programs: breakpoints, steps, a look at packet and tables, the commands of simple_switch_CLI."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath

from p4lite.api.program import Program
from p4lite.api.switch import ALL_PORTS, Switch
from p4lite.api.values import find, number
from p4lite.errors import P4liteError
from p4lite.switch.bmv2.model import FieldType
from p4lite.switch.errors import InvalidArgument, NotFound
from p4lite_tools.commands import CommandError, Commands
from p4lite_tools.coverage import code_lines
from p4lite_tools.entries import load_entries
from p4lite_tools.interpreter import events as ev
from p4lite_tools.interpreter.machine import Interpreter
from p4lite_tools.interpreter.packet import Packet
from p4lite_tools.trace import Lines, hexadecimal

_CELL = re.compile(r"([\w.]+)\[(\w+)\]")


class Inspector:
    """Finds fields, headers, tables and arrays of a switch that is interpreted."""

    def __init__(self, switch: Switch) -> None:
        control = switch.control
        if not isinstance(control, Interpreter):
            raise InvalidArgument("only an interpreted switch can be looked into")
        self.interpreter = control
        self.facts = control.program

    @property
    def packet(self) -> Packet:
        """The packet that is processed. Raises NotFound."""
        if self.interpreter.current is None:
            raise NotFound("there is no packet in the switch: `run` sends the next, `packet HEX [PORT]` one of yours")
        return self.interpreter.current

    def field(self, name: str) -> tuple[str, FieldType]:
        """Return the header and the field that a name means: `ip.ttl`, or `hdr.ip.ttl` as the source has it."""
        for wanted in (name, name.partition(".")[2], f"scalars.{name}"):
            header, _, last = wanted.rpartition(".")
            found = self.facts.headers.get(header)
            if found is not None and last in found.type.by_name:
                return header, found.type.by_name[last]
        ends = [
            (h.name, f)
            for h in self.facts.headers.values()
            for f in h.type.fields
            if f"{h.name}.{f.name}".endswith("." + name.rpartition(".")[2])
        ]
        exact = [(h, f) for h, f in ends if f"{h}.{f.name}".endswith(name)]
        if len(exact) == 1:
            return exact[0]
        near = ", ".join(f"{h}.{f.name}" for h, f in ends) or "none of that name"
        raise NotFound(f"there is no field '{name}'; there are: {near}")

    def set(self, name: str, text: str) -> None:
        """Give a field of the packet another value. Raises NotFound, InvalidArgument or OutOfRange."""
        header, field = self.field(name)
        value = number(text, field.width, f"{header}.{field.name}")
        self.packet.headers[header].fields[field.name] = value

    def header(self, name: str) -> list[str]:
        """Return the lines that describe a header of the packet."""
        state = self.packet.headers[name]
        lines = [f"{name} ({'valid' if state.valid else 'invalid'})"]
        for f in self.facts.headers[name].type.fields:
            if f.name.startswith("_padding"):
                continue
            width = state.varbit_bits if f.varbit else f.width
            lines.append(f"  {f.name} = {hexadecimal(state.fields[f.name] & ((1 << width) - 1), width)}")
        return lines

    def describe(self, name: str) -> Iterator[str]:
        """Yield lines about what a name means; without a name about all valid headers. Raises ControlError."""
        if not name:
            for header, state in self.packet.headers.items():
                if state.valid and state.fields:
                    yield from self.header(header)
            return
        whole = self._header(name)
        if whole is not None:
            yield from self.header(whole)
            return
        array = _CELL.fullmatch(name)
        known = list(self._stateful(array[1] if array else name, array[2] if array else None))
        if known:
            yield from known
            return
        found, field = self.field(name)
        value = self.packet.headers[found].fields[field.name]
        width = self.packet.headers[found].varbit_bits if field.varbit else field.width
        valid = "" if self.packet.headers[found].valid else f"   ({found} is invalid)"
        yield f"{found}.{field.name} = {hexadecimal(value & ((1 << width) - 1), width)}{valid}"

    def _header(self, name: str) -> str | None:
        return next((n for n in (name, name.partition(".")[2]) if n in self.facts.headers), None)

    def _stateful(self, name: str, index: str | None) -> Iterator[str]:
        """Yield what the commands print of a table, register, counter or meter."""
        facts, lines = self.facts, list[str]()
        commands = Commands(self.interpreter, self.interpreter, lines.append)
        for known, whole, cell in (
            (facts.tables, "table_dump", "table_dump_entry"),
            (facts.registers, "register_read", "register_read"),
            (facts.counters, "", "counter_read"),
            (facts.meters, "", "meter_get_rates"),
        ):
            try:
                full = find(name, known, "")
            except NotFound:
                continue
            if index is not None:
                commands.run(f"{cell} {full} {index}")
            elif whole:
                commands.run(f"{whole} {full}")
            else:
                size = (
                    len(self.interpreter.counter_read_all(full)) if known is facts.counters else facts.meters[full].size
                )
                for at in range(size):
                    commands.run(f"{cell} {full} {at}")
            yield from lines
            return

    def names(self) -> list[str]:
        """Return all names, for completion."""
        facts = self.facts
        fields = [f"{h.name}.{f.name}" for h in facts.headers.values() for f in h.type.fields]
        return [*facts.headers, *fields, *facts.tables, *facts.registers, *facts.counters, *facts.meters]


PROMPT = "(p4) "
#: What stops a step. A table of the compiler's own stands for statements of a control, such as the call of an action.
STOPS = (ev.StateEntered, ev.StatementStarted, ev.ConditionTested, ev.TableApplied, ev.PipelineEntered)
#: What is always shown, besides what stops.
OUTCOMES = (ev.Sent, ev.Dropped, ev.ParserFailed, ev.Faulted, ev.Logged)


def _is_block(event: ev.Event) -> bool:
    """Return whether `next` goes over the statements that follow."""
    return isinstance(event, ev.StateEntered) or (isinstance(event, ev.TableApplied) and not event.hidden)


class Mode(Enum):
    """How far the packet runs on."""

    CONTINUE = "continue"
    STEP = "step"
    #: Like a step, but over the action of a table, or the operations of a parser state.
    NEXT = "next"


class Quit(Exception):
    """The session ends."""


@dataclass(frozen=True)
class Breakpoint:
    """`kind` is line, table, state, action or field; `name` is what is meant, of a line `file:line`."""

    number: int
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.name}"


class Debugger:
    """One session. `read` gives the next command, None at the end; `write` gets lines."""

    def __init__(
        self,
        program: Program,
        read: Callable[[], str | None],
        write: Callable[[str], None] = print,
        *,
        colour: bool = False,
    ) -> None:
        self.program = program
        self.switch = Switch(program, backend="interpreter", ports=ALL_PORTS, observers=[self._event])
        self.inspector = Inspector(self.switch)
        self.commands = Commands(self.switch.control, self.switch.replication, write)
        self.packets: deque[tuple[int, bytes]] = deque()
        self.failures = 0
        self._read, self._write = read, write
        self._lines = Lines(colour=colour)
        self._code = code_lines(program)
        self._mode = Mode.CONTINUE
        self._here: ev.Event | None = None
        self._last: ev.Event | None = None
        self._entering: str | None = None
        self._over = False
        """Whether the packet is in the action or state where it stopped, over which `next` goes."""
        self._tracing = False
        self._breakpoints: dict[int, Breakpoint] = {}
        self._verbs: dict[str, Callable[[list[str]], bool]] = {
            name.removeprefix("cmd_"): getattr(self, name) for name in dir(self) if name.startswith("cmd_")
        }
        self._short = {"b": "break", "c": "continue", "n": "next", "s": "step", "p": "print", "l": "list", "q": "quit"}

    # --- the session ---

    def loop(self) -> None:
        """Execute commands until the end of the input, or `quit`."""
        try:
            while self._command():
                pass
        except Quit:
            pass

    def _command(self) -> bool:
        """Execute commands until one lets the packet go on; return False at the end of the input."""
        while True:
            line = self._read()
            if line is None:
                raise Quit
            words = line.partition("#")[0].split()
            if not words:
                continue
            try:
                if self._execute(words, line):
                    return True
            except P4liteError as error:
                self.failures += 1
                self._write(f"error: {error}")

    def _execute(self, words: list[str], line: str) -> bool:
        verb = self._short.get(words[0], words[0])
        if verb in self._verbs:
            try:
                return self._verbs[verb](words[1:])
            except (IndexError, ValueError) as error:
                usage = str(self._verbs[verb].__doc__).partition(": ")[2].rstrip(".")
                raise CommandError(f"{verb}: wrong arguments ({error}); usage: {usage}") from None
        if verb not in self.commands.names:
            raise CommandError(f"there is no command '{verb}'; `help` lists them")
        self.commands.run(line)
        return False

    def complete(self, line: str, text: str) -> list[str]:
        """Return what the word `text` at the end of a line may become."""
        words = line[: len(line) - len(text)].split()
        if not words:
            known: Iterable[str] = [*self._verbs, *self.commands.names]
        elif words[0] in self.commands.names:
            return self.commands.complete(line, text)
        else:
            known = [*self.inspector.names(), *self.inspector.interpreter.states, *self._action_names()]
        return sorted({name for name in known if name.startswith(text)})

    def _action_names(self) -> list[str]:
        return [action.name for action in self.program.facts.actions.values()]

    # --- events ---

    def _event(self, event: ev.Event) -> None:
        if isinstance(event, OUTCOMES) or (self._tracing and not isinstance(event, ev.StatementStarted)):
            for line in self._lines.render([event]):
                self._write(line)
        if isinstance(event, STOPS) and not isinstance(event, ev.StatementStarted):
            self._over = False
        hit = self._hit(event)
        if hit is not None:
            self._write(f"Breakpoint {hit}")
        if hit is not None or self._steps_here(event):
            self._here, self._over = event, _is_block(event)
            self._show(event)
            self._command()
        if isinstance(event, STOPS) and event.where is not None:
            self._last = event

    def _steps_here(self, event: ev.Event) -> bool:
        if self._mode not in (Mode.STEP, Mode.NEXT) or not isinstance(event, STOPS):
            return False
        statement = isinstance(event, ev.StatementStarted)
        if statement or (isinstance(event, ev.TableApplied) and event.hidden):
            if event.where is None or self._is_line_of(event, self._last):
                return False
            return self._mode is Mode.STEP or not (statement and self._over)
        return True

    @staticmethod
    def _is_line_of(event: ev.Event, other: ev.Event | None) -> bool:
        """Return whether two events are on one line of the source."""
        return other is not None and event.where is not None and str(event.where) == str(other.where)

    def _hit(self, event: ev.Event) -> Breakpoint | None:
        hits = [point for point in self._breakpoints.values() if self._is_hit(point, event)]
        if isinstance(event, ev.TableApplied):
            self._entering = event.action
        elif isinstance(event, STOPS):
            self._entering = None
        return hits[0] if hits else None

    def _is_hit(self, point: Breakpoint, event: ev.Event) -> bool:
        match point.kind, event:
            case "table", ev.TableApplied(table=name):
                return name == point.name
            case "state", ev.StateEntered(state=name):
                return name == point.name
            case "field", ev.FieldChanged(field=name):
                return name == point.name
            case "action", ev.StatementStarted():
                return self._entering == point.name
            case "line", _:
                first = isinstance(event, STOPS) and not self._is_line_of(event, self._last)
                return first and str(event.where) == point.name
        return False

    def _show(self, event: ev.Event) -> None:
        if not isinstance(event, ev.StatementStarted):
            for line in self._lines.render([event]):
                self._write(line)
        if event.where is not None:
            self._source(event.where.file, event.where.line, event.where.line)

    def _source(self, file: str, first: int, last: int) -> None:
        here = self._here.where if self._here is not None else None
        lines = self.program.lines(file)
        for line in range(max(first, 1), min(last, len(lines)) + 1):
            mark = "=>" if here is not None and (here.file, here.line) == (file, line) else "  "
            self._write(f"{mark} {line:4} {lines[line - 1]}")

    # --- commands: they return whether the packet goes on ---

    def _go(self, mode: Mode) -> bool:
        self._mode = mode
        if self.inspector.interpreter.current is not None:
            return True
        if not self.packets:
            raise InvalidArgument("no packet is left: `packet HEX [PORT]` sends one")
        self._send(*self.packets.popleft())
        return False

    def _send(self, port: int, data: bytes) -> None:
        if self.inspector.interpreter.current is not None:
            raise InvalidArgument("a packet is in the switch: `continue` first")
        self._here = self._last = None
        self.switch.send(port, data)
        self._here = None

    def cmd_run(self, words: list[str]) -> bool:
        """Send the next packet, or let the present one go on, to the next breakpoint: run."""
        return self._go(Mode.CONTINUE)

    cmd_continue = cmd_run

    def cmd_step(self, words: list[str]) -> bool:
        """Go on to the next line, into actions and states: step."""
        return self._go(Mode.STEP)

    def cmd_next(self, words: list[str]) -> bool:
        """Go on to the next line, over the action of a table and the operations of a state: next."""
        return self._go(Mode.NEXT)

    def cmd_packet(self, words: list[str]) -> bool:
        """Send a packet: packet HEX [PORT]."""
        self._send(int(words[1], 0) if len(words) > 1 else 1, bytes.fromhex(words[0].removeprefix("0x")))
        return False

    def cmd_break(self, words: list[str]) -> bool:
        """Stop at a line, table, state or action: break LINE | FILE:LINE | NAME."""
        number = max(self._breakpoints, default=0) + 1
        point = Breakpoint(number, *self._target(words[0]))
        self._breakpoints[number] = point
        self._write(f"Breakpoint {point}")
        return False

    def cmd_watch(self, words: list[str]) -> bool:
        """Stop when a field changes: watch FIELD."""
        header, field = self.inspector.field(words[0])
        number = max(self._breakpoints, default=0) + 1
        self._breakpoints[number] = point = Breakpoint(number, "field", f"{header}.{field.name}")
        self._write(f"Breakpoint {point}")
        return False

    def _target(self, text: str) -> tuple[str, str]:
        file, _, line = text.rpartition(":")
        if line.isdecimal():
            return "line", self._line(file or self.program.name, int(line))
        states = self.inspector.interpreter.states
        actions = dict.fromkeys(self._action_names())
        for kind, known in (("table", self.program.facts.tables), ("state", states), ("action", actions)):
            try:
                return kind, find(text, known, kind)
            except NotFound:
                continue
        raise NotFound(f"there is no line, table, state or action '{text}'; `show_tables` and `show_actions` list them")

    def _line(self, file: str, line: int) -> str:
        """Return the first place with code from a line on."""
        files = [name for name in self._code if name == file or PurePath(name).name == PurePath(file).name]
        if not files:
            raise NotFound(f"there is no code of '{file}'; there is code in: {', '.join(self._code) or 'no file'}")
        code = self._code[files[0]]
        later = sorted(number for number in code if number >= line)
        if not later:
            raise NotFound(f"{file} has no code from line {line} on; the last is line {max(code)}")
        return f"{files[0]}:{later[0]}"

    def cmd_breakpoints(self, words: list[str]) -> bool:
        """List the breakpoints: breakpoints."""
        for point in self._breakpoints.values():
            self._write(str(point))
        return False

    def cmd_delete(self, words: list[str]) -> bool:
        """Delete a breakpoint: delete NUMBER."""
        if int(words[0]) not in self._breakpoints:
            raise NotFound(f"there is no breakpoint {words[0]}")
        del self._breakpoints[int(words[0])]
        return False

    def cmd_print(self, words: list[str]) -> bool:
        """Show a field, header, table, register, counter or meter: print [NAME | NAME[INDEX]]."""
        for line in self.inspector.describe(words[0] if words else ""):
            self._write(line)
        return False

    def cmd_set(self, words: list[str]) -> bool:
        """Give a field of the packet a value: set FIELD VALUE."""
        self.inspector.set(words[0], words[1])
        return False

    def cmd_list(self, words: list[str]) -> bool:
        """Show the source around the present line: list [LINE]."""
        here = self._here.where if self._here is not None else None
        line = int(words[0]) if words else here.line if here is not None else 1
        self._source(here.file if here is not None else self.program.name, line - 5, line + 5)
        return False

    def cmd_where(self, words: list[str]) -> bool:
        """Show where the packet is: where."""
        if self._here is None:
            raise NotFound("there is no packet in the switch")
        self._show(self._here)
        return False

    def cmd_trace(self, words: list[str]) -> bool:
        """Show every event, as `p4lite trace` does: trace on | off."""
        if words not in (["on"], ["off"]):
            raise ValueError("on or off")
        self._tracing = words == ["on"]
        return False

    def cmd_advance(self, words: list[str]) -> bool:
        """Move the switch's clock on: advance NANOSECONDS."""
        self.switch.advance(int(words[0], 0))
        return False

    def cmd_entries(self, words: list[str]) -> bool:
        """Read table entries from a file: entries FILE."""
        load_entries(Path(words[0]), self.switch.control, self.switch.replication)
        return False

    def cmd_help(self, words: list[str]) -> bool:
        """List the commands: help."""
        for name, method in sorted(self._verbs.items()):
            what, _, usage = str(method.__doc__).partition(": ")
            usage = name if name == "continue" else usage.rstrip(".")
            self._write(f"{usage:36} {what}")
        self._write(f"and those of simple_switch_CLI: {', '.join(self.commands.names)}")
        return False

    def cmd_quit(self, words: list[str]) -> bool:
        """End the session: quit."""
        raise Quit

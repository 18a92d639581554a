"""Reader and writer of GOAL schedules in text, the input of LogGOPSim's `txt2bin`.

    num_ranks 2
    rank 0 {
    a: calc 100 cpu 1
    b: send 8b to 1 tag 7
    b requires a
    }

`calc` is in ns; calcs of one `cpu` follow each other. `requires` waits for an end, `irequires` for a beginning: until
the other operation could begin as far as its own dependencies go. `nic`, and `cpu` of messages, are not used, because a
rank has one NIC here and messages take no time of a CPU; the graph's notes count them. Comments are `// ...` and
`/* ... */`. A receive from any rank or with any tag (`-1`) is refused: which message it takes would depend on who is
faster.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mrc_host.graph.graph import MAX_RANKS, MAX_READ, Compute, Graph, GraphProgram, Node, Receive, Send, at, one

_WORD = re.compile(r"[ \t\r]*(?:([A-Za-z]\w*)|(-1|\d{1,18})|([:{}]))")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
EXAMPLE = "lines are like 'a: calc 100', 'b: send 8b to 1 tag 7', 'c: recv 8b from 0 tag 7' and 'b requires a'"

#: Options of messages that a run does not use, and why.
UNUSED = {"nic": "a rank has one NIC", "cpu": "a message takes no time of a CPU"}


@dataclass
class _Rank:
    """A rank in the making: its operations, their labels, and who waits for whom (line, waiting, other, start)."""

    place: str
    nodes: list[Node] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    waits: list[tuple[str, str, str, bool]] = field(default_factory=list)
    unused: Counter[str] = field(default_factory=Counter)


class _Words:
    """The words of a line, one after another."""

    def __init__(self, line: str, place: str) -> None:
        self.line, self.place, self.at = line, place, 0

    def next(self) -> str:
        """Return the next word; empty at the end of the line.

        Raises:
            GraphError: something that is none.
        """
        if not self.line[self.at :].strip():
            return ""
        found = _WORD.match(self.line, self.at)
        if found is None:
            raise at(self.place, f"'{self.line[self.at :].strip()[:40]}' is not of GOAL; {EXAMPLE}")
        self.at = found.end()
        return found[1] or found[2] or found[3]

    def number(self, what: str) -> int:
        """Return the next word as a number."""
        word = self.next()
        if word == "-1":
            raise at(self.place, f"{what} -1 (any) would depend on which rank is faster; name one")
        if not word.isdigit():
            raise at(self.place, f"{what} is a whole number, not '{word[:40]}'; {EXAMPLE}")
        return int(word)

    def expect(self, *words: str) -> str:
        """Return the next word, which is one of these."""
        word = self.next()
        if word not in words:
            raise at(
                self.place, f"'{' or '.join(words)}' is expected, not '{word[:40] or 'the end of the line'}'; {EXAMPLE}"
            )
        return word


class _Reading:
    """A schedule as far as it is read."""

    def __init__(self, name: str) -> None:
        self.place = f"{name}: line 1"
        self.count: int | None = None
        self.ranks: dict[int, _Rank] = {}
        self.here: _Rank | None = None
        self.own = self.operations = 0

    def line(self, words: _Words) -> None:
        """Read a line."""
        self.place = words.place
        word = words.next()
        if self.here is None:
            self._outside(word, words)
        elif word == "}":
            self.here = None
        else:
            _operation(word, words, self.here)
            self.operations += 1
            if self.operations > MAX_READ:
                raise at(self.place, f"more than {MAX_READ} lines; use a shorter schedule")
        if rest := words.next():
            raise at(self.place, f"'{rest[:40]}' after the end of what this line says; {EXAMPLE}")

    def _outside(self, word: str, words: _Words) -> None:
        """Read a line outside of blocks."""
        if word == "num_ranks" and self.count is None:
            self.count = words.number("num_ranks")
            if not 1 <= self.count <= MAX_RANKS:
                raise at(self.place, f"{self.count} ranks; from 1 to {MAX_RANKS} can be run")
        elif word == "rank" and self.count is not None:
            self.own = words.number("rank")
            if self.own in self.ranks or self.own >= self.count:
                raise at(self.place, f"rank {self.own} is there already, or num_ranks ({self.count}) is too small")
            words.expect("{")
            self.here = self.ranks[self.own] = _Rank(self.place)
            if words.line[words.at :].strip() == "}":
                words.next()
                self.here = None
        else:
            raise at(self.place, f"'{word[:40]}': a schedule is 'num_ranks N', then 'rank R {{ ... }}' for each rank")


def parse(text: str, name: str) -> Graph:
    """Return the graph of a schedule.

    Raises:
        GraphError: it is none; names the line.
    """
    reading = _Reading(name)
    for place, line in _lines(text, name):
        reading.line(_Words(line, place))
    count = reading.count
    if reading.here is not None:
        raise at(reading.here.place, f"the block of rank {reading.own} has no end; close it with '}}'")
    if count is None:
        raise at(reading.place, f"no 'num_ranks N'; is this a GOAL schedule in text? {EXAMPLE}")
    programs = [GraphProgram(one(rank), _resolved(block)) for rank, block in sorted(reading.ranks.items())]
    for rank, block in reading.ranks.items():
        for node in block.nodes:
            if isinstance(node, Send | Receive) and node.peers[0] >= count:
                raise at(node.place, f"rank {node.peers[0]} of a message of rank {rank}: ranks are 0 to {count - 1}")
    unused: Counter[str] = sum((block.unused for block in reading.ranks.values()), Counter())
    notes = [
        f"{name}: not used: {key} of {number} message{'s' if number > 1 else ''}, because {UNUSED[key]}"
        for key, number in unused.items()
    ]
    return Graph(count, programs, {}, name, notes)


def _lines(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield lines with something in them beside comments, with their place."""
    bare = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), 1):
        if line.strip():
            yield f"{name}: line {number}", line


def _operation(word: str, words: _Words, rank: _Rank) -> None:
    """Add what a line inside a block says."""
    label = ""
    if word not in ("calc", "send", "recv"):
        if not re.fullmatch(r"[A-Za-z]\w*", word):
            raise at(words.place, f"'{word[:40]}' begins no line; {EXAMPLE}")
        label, follows = word, words.expect(":", "requires", "irequires")
        if follows != ":":
            rank.waits.append((words.place, label, words.next(), follows == "irequires"))
            return
        word = words.expect("calc", "send", "recv")
    if label in rank.labels:
        raise at(words.place, f"'{label[:40]}' is there already; give each operation of a rank its own label")
    if label:
        rank.labels[label] = len(rank.nodes)
    size = words.number("a time" if word == "calc" else "a size")
    if word == "calc":
        options = _options(words, ("cpu",))
        rank.nodes.append(Compute(place=words.place, ns=size, unit=options.get("cpu", 0)))
        return
    words.expect("b")
    words.expect("to" if word == "send" else "from")
    peer = words.number("a rank")
    options = _options(words, ("tag", "cpu", "nic"))
    rank.unused.update(key for key in UNUSED if key in options)
    made = Send if word == "send" else Receive
    rank.nodes.append(made(place=words.place, peers=one(peer), size=size, tag=options.get("tag", 0)))


def _options(words: _Words, known: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    while words.line[words.at :].strip():
        key = words.expect(*(each for each in known if each not in found))
        found[key] = words.number(key)
    return found


def _resolved(rank: _Rank) -> list[Node]:
    """Return a rank's operations with what they wait for."""
    ends: list[list[int]] = [[] for _ in rank.nodes]
    starts: list[list[int]] = [[] for _ in rank.nodes]
    for place, waiting, other, start in rank.waits:
        for label in (waiting, other):
            if label not in rank.labels:
                raise at(place, f"no operation '{label[:40]}' in this rank; label it with 'NAME: ...'")
        (starts if start else ends)[rank.labels[waiting]].append(rank.labels[other])
    made: list[Node] = []
    for node, after, after_start in zip(rank.nodes, ends, starts, strict=True):
        made.append(type(node)(**{**vars(node), "after": after, "after_start": after_start}))
    return made


def write(graph: Graph) -> str:
    """Return a graph of single ranks without collectives as a schedule."""
    lines = [f"num_ranks {graph.ranks}", ""]
    for program in sorted(graph.programs, key=lambda each: int(each.ranks[0])):
        lines.append(f"rank {program.ranks[0]} {{")
        waits = []
        for number, node in enumerate(program.nodes):
            lines.append(f"l{number}: {_written(node)}")
            waits += [f"l{number} requires l{other}" for other in node.after]
            waits += [f"l{number} irequires l{other}" for other in node.after_start]
        lines += [*waits, "}", ""]
    return "\n".join(lines)


def _written(node: Node) -> str:
    if isinstance(node, Compute):
        return f"calc {node.ns}" + (f" cpu {node.unit}" if node.unit else "")
    if isinstance(node, Send):
        return f"send {node.size}b to {node.peers[0]} tag {node.tag}"
    if isinstance(node, Receive):
        return f"recv {node.size}b from {node.peers[0]} tag {node.tag}"
    raise TypeError(f"GOAL has no {type(node).__name__}")

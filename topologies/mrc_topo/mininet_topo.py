"""Topologies of Mininet: files as for `mn --custom`, and objects of the class `Topo`.

Without Mininet, `Topo` here stands for its class, also in a file that imports `mininet.topo`, while that is read.
"""
# ruff: noqa: N802  (The methods have the names of Mininet's.)

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mrc_topo.base import document
from mrc_topo.base.document import Document, DocumentError, printable
from mrc_topo.drawn import Drawn, End
from mrc_topo.graph_file import lab_name, of_drawn

#: A delay without a unit is in microseconds, as tc takes it.
_UNITLESS_NS = 10**3
_ENDS = ("node1", "node2", "port1", "port2")
#: What files with topologies import from Mininet.
_MODULES = ("clean", "cli", "examples", "link", "log", "net", "node", "nodelib", "topo", "topolib", "util")


class Topo:
    """Hosts, switches and links, as a class that is derived from this one adds them in `build`."""

    def __init__(self, *args: Any, **params: Any) -> None:
        self.hopts, self.sopts, self.lopts = (params.pop(key, {}) for key in ("hopts", "sopts", "lopts"))
        self._nodes: dict[str, dict[str, Any]] = {}
        self._links: list[dict[str, Any]] = []
        self.build(*args, **params)

    def build(self, *args: Any, **params: Any) -> None:
        """Add nodes and links; a derived class has its own."""

    def addNode(self, name: str, **opts: Any) -> str:
        """Add a node and return its name."""
        self._nodes[name] = opts
        return name

    def addHost(self, name: str, **opts: Any) -> str:
        """Add a host and return its name."""
        return self.addNode(name, **(opts or self.hopts))

    def addSwitch(self, name: str, **opts: Any) -> str:
        """Add a switch and return its name."""
        return self.addNode(name, isSwitch=True, **(opts or self.sopts))

    def addLink(self, node1: str, node2: str, port1: int | None = None, port2: int | None = None, **opts: Any) -> None:
        """Add a link."""
        ends = dict(zip(_ENDS, (node1, node2, port1, port2), strict=True))
        self._links.append({**(opts or self.lopts), **ends})

    def nodeInfo(self, name: str) -> dict[str, Any]:
        """Return the options of a node."""
        return self._nodes.setdefault(name, {})

    def isSwitch(self, name: str) -> bool:
        """Return whether a node is a switch."""
        return bool(self.nodeInfo(name).get("isSwitch"))

    def nodes(self, *_: bool, **__: bool) -> list[str]:
        """Return the names of all nodes."""
        return list(self._nodes)

    def hosts(self, *_: bool, **__: bool) -> list[str]:
        """Return the names of the hosts."""
        return [name for name in self._nodes if not self.isSwitch(name)]

    def switches(self, *_: bool, **__: bool) -> list[str]:
        """Return the names of the switches."""
        return [name for name in self._nodes if self.isSwitch(name)]

    def links(self, *_: bool, withInfo: bool = False, **__: bool) -> list[tuple[Any, ...]]:  # noqa: N803
        """Return the two ends of all links, with their options if asked for."""
        return [(each["node1"], each["node2"], *[each] * withInfo) for each in self._links]


class _StandIn(ModuleType):
    """All modules of Mininet for the time that a file is read: with Topo, functions that do nothing, and classes that
    can be derived from and not called."""

    Topo = Topo

    @staticmethod
    def irange(start: int, end: int) -> range:
        """Return the numbers from `start` to `end`."""
        return range(start, end + 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: Any, **__: Any) -> None:
            if name[0].isupper():
                raise NotImplementedError(f"{name} needs Mininet, which is not installed; only Topo is here")

        return type(name, (), {"__init__": absent}) if name[0].isupper() else absent


@contextlib.contextmanager
def _mininet() -> Iterator[None]:
    """Let Mininet's modules be imported meanwhile: those that are installed, or what stands for them."""
    try:
        importlib.import_module("mininet.topo")
    except ImportError:
        kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "mininet"}
        stand_in = _StandIn("mininet")
        added = dict.fromkeys(("mininet", *(f"mininet.{name}" for name in _MODULES)), stand_in)
        sys.modules.update(added)
        try:
            yield
        finally:
            for name in added:
                del sys.modules[name]
            sys.modules.update(kept)
    else:
        yield


def is_topo(value: object) -> bool:
    """Return whether something is a Topo of Mininet or of this module, or a class of one."""
    return all(callable(getattr(value, name, None)) for name in ("addSwitch", "nodeInfo", "isSwitch", "links"))


def of_topo(topo: Any, name: str, keys: Mapping[str, Any]) -> Document:
    """Return the document of a lab with these keys and a topology of Mininet, or one of a class of these; `name` stands
    for it in errors.

    Raises:
        DocumentError: it is not a graph that a lab can be, or cannot be made.
    """
    if isinstance(topo, type):
        topo = _called(topo, (), {}, name, name)
    drawn = Drawn()
    for node in topo.nodes():
        options, switch = topo.nodeInfo(node), topo.isSwitch(node)
        drawn.nodes[str(node)] = "switch" if switch else "host"
        drawn.places[str(node)] = f"{name}: {printable(str(node))}"
        drawn.ignore("switches" if switch else "hosts", options.keys() - {"isSwitch"})
    for one, other, info in topo.links(withInfo=True):
        place = f"{name}: {printable(f'{one} -- {other}')}"
        # The ends of `info` are in the order of the ports; a host's port has its number by the order of the file.
        ends = [
            End(str(info[f"node{side}"]), port=info[f"port{side}"] if topo.isSwitch(info[f"node{side}"]) else None)
            for side in (1, 2)
        ]
        options = {key: value for key, value in info.items() if key not in _ENDS}
        drawn.add(ends[0], ends[1], drawn.settings(options, _UNITLESS_NS, place), place)
    return of_drawn(drawn, name, keys)


def load(file: str, topo: str | None) -> Document:
    """Run a Python file of the user's and return the lab of one of its topologies.

    Args:
        file: the file, which has a dictionary `topos`, or classes of Topo.
        topo: the name of one, and its arguments after commas, as for `mn --topo`.

    Raises:
        DocumentError: there is no such file or topology, something in it fails, or it is not a graph of a lab.
    """
    name, (wanted, *words) = printable(file), (topo or "").split(",")
    held: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}
    with _mininet():
        text = document.read_text(file, name)
        _called(lambda: exec(compile(text, file, "exec", dont_inherit=True), held), (), {}, file, name)
        topos = held.get("topos", {})
        if not isinstance(topos, dict) or not all(callable(make) for make in topos.values()):
            raise DocumentError([f"{name}: topos: must be a dictionary of functions, such as {{'mine': MyTopo}}"])
        known = topos | {key: made for key, made in held.items() if isinstance(made, type) and is_topo(made)}
        known.pop("Topo", None)
        if wanted not in known:
            raise DocumentError(
                [f"{name}: --topo: no topology '{printable(wanted)}'; there are {printable(', '.join(known))}"]
            )
        args = [_value(word) for word in words if "=" not in word]
        options = {key: _value(value) for key, equals, value in (word.partition("=") for word in words) if equals}
        made = _called(known[wanted], args, options, file, f"{name}: {wanted}")
    if isinstance(made, type) or not is_topo(made):
        raise DocumentError([f"{name}: {wanted}: gives {type(made).__name__}, not a Topo of mininet.topo; return one"])
    return of_topo(made, name, {"name": lab_name(wanted)})


def _called(make: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], file: str, name: str) -> Any:
    """Return what code of the user's returns. Raises DocumentError, with its line, if it fails."""
    try:
        return make(*args, **options)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == file else (lines or [None])[-1]
        where = f"{printable(file)}:{line}" if line else name
        why = printable(str(error.msg if isinstance(error, SyntaxError) else error))
        hint = "; arguments follow the name: --topo NAME,3" if isinstance(error, TypeError) else ""
        raise DocumentError([f"{where}: {type(error).__name__}: {why}{hint}"]) from error


def _value(text: str) -> int | float | str:
    """Return an argument of `--topo` as a number, where it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text

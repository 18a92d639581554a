"""Policies of one's own in the place of ours: congestion control, EVs, loss detection (`docs/extending.md`).

A policy is a class in a Python file, named as `FILE.py:Class`. It derives from one of ours and overrides what it does
otherwise; what ours do by themselves, it does too:

| kind | derives from | ours |
|---|---|---|
| `congestion` | `CongestionControl`, or `WindowPolicy`, which reads the profile | `Nscc` |
| `ev` | `EvSet` | `EvSet` |
| `loss` | `LossDetector` | `LossDetector` |

Units are ns and bytes. Everything random comes from the generator that a policy is given; it must not ask the machine
for the time, or two runs of one seed differ.

What a policy returns and leaves behind is checked after every call. A mistake ends the run by `PolicyError`.
"""

from __future__ import annotations

import inspect
import itertools
import math
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from mrc_host.proto.config import Policies
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.congestion.nscc import Nscc, NsccConfig
from mrc_host.proto.events import EvState
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.paths.ev import ASSUMED_BAD, DENIED, GOOD, SKIP, TRANSITIONS, EvInput, EvSet
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.reliability.recovery import LossDetector, Rtt
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT, Scoreboard, Transmission

__all__ = [
    "ASSUMED_BAD", "DENIED", "GOOD", "IN_FLIGHT", "KINDS", "SKIP", "TRANSITIONS", "CcConfig", "CongestionControl",
    "EvInput", "EvSet", "EvState", "EvUniverse", "LossDetector", "Nscc", "NsccConfig", "PolicyError", "Rtt",
    "Scoreboard", "Supplier", "Transmission", "WindowPolicy", "guarded", "load", "load_all", "load_class", "supplied",
    "supplier",
]  # fmt: skip

#: Called with a reference and a kind; makes what stands in for that class. Raises ConfigError.
Supplier = Callable[[str, str], Callable[..., Any]]
_SUPPLIER: ContextVar[Supplier | None] = ContextVar("supplier", default=None)
_LARGEST_WINDOW: Final = 1 << 40
_numbers = itertools.count(1)

#: Describes the error in the state that a method left; empty: none.
Judge = Callable[[Any, tuple[Any, ...], Any], str]


class PolicyError(BaseException):
    """A policy raised an error or broke its contract; the text names file, line, class and method.

    It is no `Exception`: an endpoint contains its own faults and goes on, but a policy's mistake ends the run.
    """


class WindowPolicy(CongestionControl):
    """A start for a congestion control of one's own: window and base RTT from the profile, as NSCC has them.

    `config` is the CC profile. `mtu`: nominal size of a full packet, bytes. Attributes: `cwnd` and `inflight` (bytes),
    `max_wnd`, `mtu`, `base_rtt_ns`, `rtt_ns` (latest sample), `srtt_ns`, `target_ns` (queueing delay to aim at). A
    policy changes `cwnd`; `inflight` is up to date and not its to change.
    """

    def __init__(self, config: CcConfig, mtu: int) -> None:
        like = Nscc(config if isinstance(config, NsccConfig) else NsccConfig(base_rtt_ns=config.base_rtt_ns), mtu)
        super().__init__(mtu, like.base_rtt_ns, like.cwnd, like.max_wnd)
        self.target_ns = like.target_ns


# --- checks ----------------------------------------------------------------------------------------------------------


def _window(policy: Any, _given: tuple[Any, ...], _result: Any) -> str:
    cwnd = policy.cwnd
    if isinstance(cwnd, bool) or not isinstance(cwnd, int | float) or not math.isfinite(cwnd):
        return f"cwnd is {cwnd!r}, not a finite number of bytes"
    if cwnd <= 0:
        return f"cwnd is {cwnd:g} bytes; a window is above 0, and at least one packet ({policy.mtu} bytes) by clause 8"
    if cwnd > _LARGEST_WINDOW:
        return f"cwnd is {cwnd:g} bytes; no window is above {_LARGEST_WINDOW}"
    if policy.base_rtt_ns <= 0:
        return f"base_rtt_ns is {policy.base_rtt_ns}; it must be above 0"
    return ""


def _index(policy: Any, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"returned {value!r}, not the index of an EV (-1: none)"
    count = len(policy.universe.values)
    if not -1 <= value < count:
        return f"returned EV {value}, which is not in the profile: it has {count} EVs, 0 to {count - 1} (-1: none)"
    return ""


def _chosen(policy: Any, given: tuple[Any, ...], ev: Any) -> str:
    plane, avoid = given[0], given[1] if len(given) > 1 else -1
    wrong = _index(policy, ev)
    if wrong or ev < 0:
        return wrong
    if policy.universe.planes[ev] != plane:
        return f"returned EV {ev} of plane {policy.universe.planes[ev]} for a packet on plane {plane}"
    if policy.state[ev] == DENIED:
        return f"returned EV {ev}, which is DENIED: only the controller undoes that (clause 7)"
    if ev == avoid:
        return f"returned EV {ev}, on which the packet was just lost: a retransmission takes another (clause 5)"
    return ""


def _replaced(policy: Any, given: tuple[Any, ...], other: Any) -> str:
    wrong = _index(policy, other)
    if wrong or other < 0:
        return wrong
    planes = policy.universe.planes
    plane = planes[given[0]]
    if planes[other] != plane:
        what = f"EV {other} of plane {planes[other]} for EV {given[0]} of plane {plane}"
        return f"returned {what}; a replacement is of the same plane (clause 7)"
    if other not in policy.backup[plane]:
        return f"returned EV {other}, which is not in the backup set of plane {plane}"
    return ""


def _changed(policy: Any, _given: tuple[Any, ...], result: Any) -> str:
    bad = next((ev for ev, state in enumerate(policy.state) if state > DENIED), None)
    if bad is not None:
        return f"left EV {bad} in state {policy.state[bad]}; states are GOOD, SKIP, ASSUMED_BAD, DENIED (0 to 3)"
    return "" if isinstance(result, bool) else f"returned {result!r}, not whether the state changed (True or False)"


def _planes(policy: Any, _given: tuple[Any, ...], mask: Any) -> str:
    everything = (1 << len(policy.order)) - 1
    if isinstance(mask, bool) or not isinstance(mask, int) or not 0 <= mask <= everything:
        return f"returned {mask!r}, not a bit mask of the {len(policy.order)} planes (0 to {everything})"
    return ""


def _lost(policy: Any, _given: tuple[Any, ...], result: Any) -> str:
    if result is None:
        return ""
    if not isinstance(result, list):
        return f"returned {result!r}, not a list of transmissions"
    for sent in result:
        if not isinstance(sent, Transmission):
            return f"returned {sent!r} among what is lost, not a transmission"
        if policy.board.outstanding.get(sent.psn) is not sent:
            return f"returned PSN {sent.psn} as lost, which has been acknowledged or sent again since"
    return ""


def _nothing(_policy: Any, _given: tuple[Any, ...], _result: Any) -> str:
    return ""


#: What a class derives from, and the methods that are watched.
KINDS: Final[Mapping[str, tuple[type, Mapping[str, Judge]]]] = {
    "congestion": (
        CongestionControl,
        {"__init__": _window, "on_sack": _window, "on_trim": _window, "on_loss": _window, "snapshot": _nothing},
    ),
    "ev": (
        EvSet,
        {
            "__init__": _nothing,
            "choose": _chosen,
            "apply": _changed,
            "answered": _nothing,
            "probe_answered": _changed,
            "replacement": _replaced,
            "usable_planes": _planes,
        },
    ),
    "loss": (LossDetector, {"__init__": _nothing, "infer": _lost, "arrived_late": _nothing}),
}


# --- guards ----------------------------------------------------------------------------------------------------------


def _line(cls: type, method: object, file: str) -> int:
    """Return where a method of a policy begins, or else its class."""
    code = getattr(method, "__code__", None)
    if isinstance(code, types.CodeType) and code.co_filename == file:
        return code.co_firstlineno
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return 1


def _blame(cls: type, name: str, method: object, error: BaseException | None, text: str) -> PolicyError:
    file = str(getattr(sys.modules.get(cls.__module__), "__file__", cls.__module__))
    line = _line(cls, method, file)
    if error is not None:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
        line = (frames[-1].lineno if frames else None) or line
    return PolicyError(f"{file}:{line}: {cls.__name__}.{name}: {text}")


def _watched(cls: type, name: str, judge: Judge) -> Callable[..., Any]:
    method = getattr(cls, name)
    ours = name in ("on_sack", "on_trim", "on_loss")

    def call(self: Any, *given: Any, **named: Any) -> Any:
        before = self.inflight if ours else 0
        try:
            result = method(self, *given, **named)
        except (Exception, SystemExit) as error:
            raise _blame(cls, name, method, error, f"{type(error).__name__}: {error}") from error
        try:
            wrong = judge(self, given, result)
        except AttributeError as error:
            wrong = f"{error}; does its __init__ call super().__init__?"
        if not wrong and ours and self.inflight != before:
            wrong = f"changed inflight from {before} to {self.inflight}, which is the endpoint's account"
        if wrong:
            raise _blame(cls, name, method, None, wrong)
        return result

    return call


def guarded(cls: type, kind: str) -> type:
    """Return the class with every call of the endpoint's watched: what raises or returns nonsense becomes a
    `PolicyError`.
    """
    base, judges = KINDS[kind]
    namespace: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    for name, judge in judges.items():
        namespace[name] = _watched(cls, name, judge)
    if base is EvSet:
        namespace["__init__"] = _asked(cls, namespace["__init__"])
    if base is LossDetector:
        namespace["infer"] = _listed(namespace["infer"])
    return type(cls.__name__, (cls,), namespace)


def _asked(cls: type, begin: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the constructor of a policy that overrides `choose`, so that every packet asks it for an EV, or `answered`,
    so that it is called.

    Where every packet asks, the requestor takes no EV from the order by itself.
    """
    chooses = cls.choose is not EvSet.choose  # type: ignore[attr-defined]
    listens = cls.answered is not EvSet.answered  # type: ignore[attr-defined]

    def call(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        if chooses:
            self.ready = [[] for _ in self.order]
        self.listens = listens or chooses

    return call


def _listed(infer: Callable[..., Any]) -> Callable[..., Any]:
    """Convert the arguments of a user's detector to lists."""

    def call(self: Any, acked: Any, overtaken: Any, base_rtt_ns: int, now: int) -> Any:
        return infer(self, acked, [] if overtaken is None else overtaken, base_rtt_ns, now)

    return call


# --- files -----------------------------------------------------------------------------------------------------------


@contextmanager
def supplied(by: Supplier) -> Iterator[None]:
    """Run no files that references name in this process while the context lasts: another process has the classes."""
    token = _SUPPLIER.set(by)
    try:
        yield
    finally:
        _SUPPLIER.reset(token)


def supplier() -> Supplier | None:
    """Return the supplier of the classes that references name; None if they are loaded in this process."""
    return _SUPPLIER.get()


def load_class(reference: str) -> type:
    """Return the class that `FILE.py:Class` names; the file is executed at each call.

    Raises:
        ConfigError: there is none, or the file cannot be run; with file and line.
    """
    file, _, name = reference.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"{file}: no such file; {reference} names a class in a Python file")
    if path.suffix != ".py":
        raise ConfigError(f"{file}: is not Python file, whose name ends in .py")
    module_name = f"mrclab_policy_{path.stem}_{next(_numbers)}"
    module = types.ModuleType(module_name)
    module.__file__ = str(path)
    sys.modules[module_name] = module
    try:
        # The import system would take compiled code from `__pycache__` beside the file, where others may have put it.
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = frames[-1].lineno if frames else 1
        raise ConfigError(f"{file}:{line}: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = sorted(
            key for key, each in vars(module).items() if isinstance(each, type) and not key.startswith("_")
        )
        raise ConfigError(f"{file}: has no class {name}; it has: {', '.join(classes) or 'none'}")
    return found


def load(reference: str, kind: str) -> Callable[..., Any]:
    """Return the policy of a kind that `FILE.py:Class` names, watched; or what a `supplier` has in its place.

    Raises:
        ConfigError: as `load_class`, or the class does not derive from the base class of its kind.
    """
    elsewhere = supplier()
    if elsewhere is not None:
        return elsewhere(reference, kind)
    cls = load_class(reference)
    base = KINDS[kind][0]
    if not issubclass(cls, base):
        file = reference.rpartition(":")[0]
        line = _line(cls, None, file)
        raise ConfigError(
            f"{file}:{line}: class {cls.__name__} is no {kind} policy: "
            f"it must derive from mrc_host.policy.{base.__name__}"
        )
    return guarded(cls, kind)


def load_all(references: Mapping[str, str]) -> Policies:
    """Return the policies of an endpoint, by kind. Raises ConfigError as `load`, and for a kind that does not exist."""
    unknown = set(references) - set(KINDS)
    if unknown:
        raise ConfigError(f"policies has no '{min(unknown)}'; known: {', '.join(KINDS)}")
    return Policies(**{kind: load(reference, kind) for kind, reference in references.items()})

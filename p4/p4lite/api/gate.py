"""The gate in front of a switch: one thread at a time, and no call once the switch is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, cast

from p4lite.api.values import Backend, Control
from p4lite.switch.errors import InvalidArgument
from p4lite.switch.multicast import Replication


class Gate:
    """Holds the backend; `with gate as backend:` makes other threads wait. Re-entrant, for observers and externs."""

    def __init__(self, backend: Backend) -> None:
        self._backend: Backend | None = backend
        self._lock = threading.RLock()

    def __enter__(self) -> Backend:
        self._lock.acquire()
        if self._backend is None:
            self._lock.release()
            raise InvalidArgument("the switch is closed")
        return self._backend

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def close(self) -> None:
        """Close the backend after the call that runs, if any; without effect the second time."""
        with self._lock:
            backend, self._backend = self._backend, None
            if backend is not None:
                backend.close()


class _Guarded:
    """Offers the methods of a part of the backend; each call goes through the gate.

    Code that keeps this object, one of its methods or an iterator that it returned can therefore not reach a closed
    switch: the part is looked up in each call, and iterators are read to their end within it.
    """

    def __init__(self, gate: Gate, part: Callable[[Backend], Any]) -> None:
        self._gate, self._part = gate, part
        with gate as backend:
            self._stands_for: type[object] = type(part(backend))

    @property  # type: ignore[misc]
    def __class__(self) -> type[object]:  # type: ignore[override]
        """The class of the part, for `isinstance`: who looks into the interpreter asks whether it is one."""
        return self._stands_for

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        with self._gate as backend:
            setattr(self._part(backend), name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a switch's operations do not include '{name}'")
        with self._gate as backend:
            found = getattr(self._part(backend), name)
        if not callable(found):
            return found

        @wraps(found)
        def call(*arguments: Any, **options: Any) -> Any:
            with self._gate as backend:
                result = getattr(self._part(backend), name)(*arguments, **options)
                return iter(list(result)) if isinstance(result, Iterator) else result

        return call


def guarded_control(gate: Gate) -> Control:
    """Return the control operations of the switch behind a gate."""
    return cast(Control, _Guarded(gate, lambda backend: backend.control))


def guarded_replication(gate: Gate) -> Replication:
    """Return the operations on multicast groups and mirror sessions of the switch behind a gate."""
    return cast(Replication, _Guarded(gate, lambda backend: backend.replication))

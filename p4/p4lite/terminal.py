"""Standard streams through which no text controls the terminal, wherever it comes from; and progress on standard
error.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

#: Characters that move the cursor, change colours, or reorder text: C0 without tab and newline, DEL, C1, line and
#: paragraph separators, and Unicode's directional controls. Each is shown as an escape of Python.
CONTROLS: Final = {
    number: chr(number).encode("unicode_escape").decode()
    for number in (
        *(each for each in range(0x20) if chr(each) not in "\t\n"), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F,
        0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF,
    )
}  # fmt: skip


def harmless(text: str) -> str:
    """Return text in which characters that control a terminal are escaped; tabs and newlines stay."""
    return text if text.isascii() and text.isprintable() else text.translate(CONTROLS)


class PlainStream:
    """A text stream that escapes what would control a terminal; all else is done by the stream behind it.

    `rich_proxied_file` is the stream behind: rich writes its own colours there, and `Terminal` has escaped its texts.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write text, escaped."""
        return self.rich_proxied_file.write(harmless(text))

    def writelines(self, lines: list[str]) -> None:
        """Write several texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def protect() -> None:
    """Let standard output and standard error escape what would control a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PlainStream):
            setattr(sys, name, cast(TextIO, PlainStream(stream)))


AFTER_S = 2.0
"""Seconds of silence."""


class _ShownLine:
    def __init__(self, name: str, after: float):
        self.name = name
        self.after = after
        self.began = time.monotonic()
        self.what = "starting"
        self.lock = threading.Lock()
        self.timer = threading.Timer(after, self.show)
        self.timer.daemon = True
        self.timer.start()

    def show(self) -> None:
        with self.lock:
            seconds = time.monotonic() - self.began
            print(f"{self.name}: {self.what} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    def step(self, what: str) -> None:
        self.what = what
        if time.monotonic() - self.began > self.after:
            self.show()


_current: _ShownLine | None = None
_look: Callable[[], object] = bool


def look_by(check: Callable[[], object]) -> None:
    """Call `check` while the C compiler works; it may raise, as when the command shall end."""
    global _look
    _look = check


def look() -> None:
    """See `look_by`."""
    _look()


@contextmanager
def shown(name: str, after: float | None = None) -> Iterator[None]:
    """Report the work within the context, once after `after` seconds (`AFTER_S`) and from then on at every step."""
    global _current
    if _current is not None:
        yield
        return
    _current = _ShownLine(name, AFTER_S if after is None else after)
    try:
        yield
    finally:
        _current.timer.cancel()
        _current = None


def step(what: str) -> None:
    """Show that the command is now at the step `what`."""
    if _current is not None:
        _current.step(what)


def notice(text: str) -> None:
    """Report something about the work that a waiting user should know."""
    if _current is not None:
        print(f"{_current.name}: {text}", file=sys.stderr, flush=True)

"""Lines of commands, typed on a terminal or read from a script that is shown as a terminal would show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO


def typed(prompt: str) -> str | None:
    """Return the next line that is typed; None at the end."""
    try:
        return input(prompt)
    except EOFError:
        print()
        return None


def scripted(lines: TextIO, prompt: str) -> str | None:
    """Return the next line of a script, and print it behind the prompt; None at the end."""
    line = lines.readline()
    if line.strip():
        print(f"{prompt}{line.rstrip()}")
    return line or None


def complete_words(words: Callable[[str, str], list[str]]) -> None:
    """Complete words by the Tab key, where Python has readline; `words` gets the line and the word, its last."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        found = words(readline.get_line_buffer()[: readline.get_endidx()], text)
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")

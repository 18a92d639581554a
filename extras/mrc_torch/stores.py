"""Stores by which ranks find each other: anything with torch's `set` and `get`, or a folder that all of them see."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Protocol

from mrc_torch.errors import CollectiveError

_RETRY_S = 0.01


class Store(Protocol):
    """The methods of a store that a group needs; the stores of torch have them."""

    def set(self, key: str, value: str, /) -> object:
        """Keep a value."""

    def get(self, key: str, /) -> bytes:
        """Wait for a value."""


class FolderStore:
    """A store in a folder; hosts of a lab see the same files.

    Args:
        folder: is made if it is missing; one for each group and run.
        timeout: seconds that `get` waits.
    """

    def __init__(self, folder: str | os.PathLike[str], timeout: float = 60.0) -> None:
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.timeout = timeout

    def _path(self, key: str) -> pathlib.Path:
        return self.folder / key.replace("/", "%")

    def set(self, key: str, value: str, /) -> None:
        """Keep a value; it is there whole, or not at all."""
        path = self._path(key)
        part = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        part.write_text(value, encoding="utf-8")
        part.replace(path)

    def get(self, key: str, /) -> bytes:
        """Wait for a value. Raises CollectiveError when it does not come."""
        path = self._path(key)
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise CollectiveError(f"{path}: no rank has written it within {self.timeout:.0f} s") from None
            time.sleep(_RETRY_S)

"""Results of runs in a folder, each kept under the digest of all that it depends on as soon as it is there.

`runs/DIGEST.json` is complete or absent. So what was done is not done again, and nothing is there twice.
"""

from __future__ import annotations

import json
import pathlib
from typing import Generic, TypeVar

from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrclab.results.reading import FolderError, document_of

T = TypeVar("T")
RUNS = "runs"


class DocumentStore(Generic[T]):
    """Documents of type `kind` by digest; the folder is made with the first."""

    def __init__(self, folder: pathlib.Path, kind: type[T]) -> None:
        self.folder = folder / RUNS
        self.kind = kind

    def get(self, digest: str) -> T | None:
        """Return the document that was kept; None if there is none, or it cannot be read."""
        try:
            document = document_of(self.folder / f"{digest}.json")
            if document.pop("digest") != digest:
                return None
            return decode(self.kind, document, lenient=True)
        except (FolderError, KeyError, DecodeError, RecursionError):
            return None

    def put(self, digest: str, value: T) -> None:
        """Keep a document.

        Raises:
            WriteError: it could not be written; what was kept before stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"digest": digest, **encode(value)}, sort_keys=True)
        write_whole(self.folder / f"{digest}.json", text + "\n")

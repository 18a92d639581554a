"""Runs a test document: build, one packet in, what came out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from p4lite.switch.runtime.loader import ProgramInstance, load_program
from support.switch.bmv2_json import Doc
from support.switch.runner import Result, Runner


@contextmanager
def running(doc: Doc | dict[str, Any]) -> Iterator[tuple[ProgramInstance, Runner]]:
    """Yield an instance of a document and a runner on it."""
    instance = load_program(doc.json() if isinstance(doc, Doc) else doc).instance()
    try:
        yield instance, Runner(instance)
    finally:
        instance.close()


def once(doc: Doc | dict[str, Any], data: bytes, port: int = 0) -> Result:
    with running(doc) as (_, runner):
        return runner.run(data, port)

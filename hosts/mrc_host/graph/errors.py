"""Errors in a graph or in the file that it comes from."""

from __future__ import annotations

from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError


class GraphError(UsageError):
    """A trace or a generator's parameters that make no graph; the text names file, place and remedy."""


def at(place: str, text: str) -> GraphError:
    """Return an error at a place of a file; what strangers wrote is made printable."""
    return GraphError(printable(f"{place}: {text}")[:600])

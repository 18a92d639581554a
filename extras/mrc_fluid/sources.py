"""Digest of the model's sources, by which numbers that were made with them are known to be as new as they are."""

from __future__ import annotations

import ast
import hashlib
import importlib.resources
from functools import cache

#: The modules that a number of the model follows from.
MODULES = (
    "carrier", "clusterfile", "dead_evs", "evs", "fabric", "grey", "jobs", "kernels/__init__", "kernels/loops",
    "kernels/plain", "pods", "queueing", "run", "schema", "shares", "shedding", "tails", "timeline", "transfers",
    "calibration/calibrate", "calibration/large", "validation/fluid", "validation/scenario",
)  # fmt: skip


@cache
def digest() -> str:
    """Return the digest of what the modules do: comments, docstrings and layout do not count."""
    found, root = hashlib.sha256(), importlib.resources.files("mrc_fluid")
    for name in MODULES:
        found.update(meaning((root / f"{name}.py").read_text("utf-8")).encode())
    return found.hexdigest()[:16]


def meaning(source: str) -> str:
    """Return a source without what does not change what it does."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)

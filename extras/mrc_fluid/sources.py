"""Digest of the model's sources, by which numbers that were made with them are known to be as new as they are."""

from __future__ import annotations

import ast
import hashlib
import importlib.resources
from functools import cache

#: The modules that steady states follow from, and with these the calibration.
STEADY = (
    "clusterfile", "evs", "fabric", "grey", "jobs", "kernels/__init__", "kernels/loops", "kernels/plain", "pods",
    "queueing", "run", "schema", "shares", "shedding", "timeline", "calibration/calibrate",
)  # fmt: skip
#: Those that times of flows follow from, too.
FLOWS = (
    *STEADY, "carrier", "dead_evs", "tails", "transfers", "calibration/large", "validation/fluid",
    "validation/scenario",
)  # fmt: skip


@cache
def digest(modules: tuple[str, ...]) -> str:
    """Return the digest of what modules do: comments, docstrings and layout do not count."""
    found, root = hashlib.sha256(), importlib.resources.files("mrc_fluid")
    for name in modules:
        found.update(meaning((root / f"{name}.py").read_text("utf-8")).encode())
    return found.hexdigest()[:16]


def meaning(source: str) -> str:
    """Return a source without what does not change what it does."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)

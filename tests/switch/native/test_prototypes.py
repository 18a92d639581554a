"""What Python believes of C's functions is what C says: the width and sign of each argument, and which there are."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence

import pytest

from p4lite.switch.fabric import core
from p4lite.switch.native import build
from p4lite.switch.runtime import abi

SCALARS: Mapping[str, object] = {
    "void": None,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}
FABRIC = (build.CORE_DIR / "fabric" / "fabric.h").read_text()
CONTROL = (build.CORE_DIR / "program" / "control.c").read_text()


def declared(text: str, prefix: str) -> dict[str, list[str]]:
    """By name of function: the types of its result and its arguments, as C has them."""
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for result, name, inside in re.findall(
        rf"^(?:P4_EXPORT )?([a-z][\w ]*?[ *]+)({prefix}\w+)\(([^()]*)\)\s*[;{{]", plain, re.M
    ):
        arguments = [] if inside.strip() == "void" else [" ".join(each.split()) for each in inside.split(",")]
        found[name] = [result.strip(), *(re.sub(r"\w+$", "", each).strip() for each in arguments)]
    return found


def wrong(declarations: Mapping[str, Sequence[str]], believed: Mapping[str, Iterable[object]]) -> list[str]:
    """Where the two differ."""
    found = []
    for name, types in declarations.items():
        if name not in believed:
            found.append(f"{name}: Python has none")
            continue
        ours = list(believed[name])
        if len(ours) != len(types):
            found.append(f"{name}: {len(types) - 1} arguments in C, {len(ours) - 1} in Python")
            continue
        for place, (theirs, own) in enumerate(zip(types, ours, strict=True)):
            if "*" in theirs:
                named = re.search(r"struct (\w+) \*$", theirs)
                good = (named is not None and named[1] == own) if isinstance(own, str) else _is_pointer(own)
            else:
                good = own is SCALARS[theirs.removeprefix("const ")]
            if not good:
                found.append(f"{name}, {place or 'result'}: {theirs} in C, {own} in Python")
    return [*found, *(f"{name}: C has none" for name in believed if name not in declarations)]


def _is_pointer(own: object) -> bool:
    return own in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(own, "contents")


def test_ctypes_prototypes_match_the_fabric_headers() -> None:
    declarations = declared(FABRIC, "pf_")
    del declarations["pf_description"]  # what says how structures lie, and is read before they are known
    assert len(declarations) > 50
    assert wrong(declarations, core._PROTOTYPES) == []


def test_compiled_programs() -> None:
    declarations = declared(CONTROL, "p4c_")
    believed = {name: [result, *arguments] for name, (result, arguments) in abi._SIGNATURES.items()}
    assert len(believed) > 20
    assert wrong({name: types for name, types in declarations.items() if name in believed}, believed) == []


@pytest.mark.parametrize(
    ("text", "believed", "told"),
    [
        (
            "int pf_a(struct fabric *f, uint64_t n);",
            [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32],
            "pf_a, 2: uint64_t",
        ),
        ("int pf_a(struct fabric *f, uint64_t n);", [ctypes.c_int, ctypes.c_void_p], "pf_a: 2 arguments in C, 1"),
        ("void pf_a(const struct pf_b *b);", [None, "pf_c"], "pf_a, 1: const struct pf_b \\* in C, pf_c"),
        ("uint64_t pf_a(void);", [ctypes.c_int], "pf_a, result: uint64_t"),
    ],
)
def test_what_differs_is_told(text: str, believed: list[object], told: str) -> None:
    (found,) = wrong(declared(text, "pf_"), {"pf_a": believed})
    assert re.match(told, found), found

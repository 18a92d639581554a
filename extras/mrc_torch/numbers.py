"""Types of elements and how two blocks of them are reduced, in NumPy; bfloat16, which NumPy lacks, as its 16 bits.

Half-precision sums are computed in float32 and rounded once a step (to nearest, ties to even), as others do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Reduce = Callable[[Array, Array], None]

BFLOAT16: Final = "bfloat16"
#: What arrays of each type are made of.
STORED: Final[dict[str, np.dtype[Any]]] = {
    **{
        name: np.dtype(name)
        for name in (
            "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
            "bool", "complex64", "complex128",
        )
    },
    BFLOAT16: np.dtype("uint16"),
}  # fmt: skip

SUM: Final = "sum"
AVERAGE: Final = "avg"
OPERATIONS: Final = (SUM, AVERAGE, "product", "min", "max", "band", "bor", "bxor")
_FUNCTIONS: Final[dict[str, np.ufunc]] = {
    SUM: np.add,
    AVERAGE: np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def widened(bits: Array) -> NDArray[np.float32]:
    """Convert bfloat16 to float32, which holds each of its values."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrowed(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Convert float32 to bfloat16, to nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def stored(kind: str) -> np.dtype[Any]:
    """Return the type of the elements in which an array of that type is stored.

    Raises:
        ValueError: there is no such type.
    """
    if kind not in STORED:
        raise ValueError(f"no reduction of {kind}; known: {', '.join(STORED)}")
    return STORED[kind]


def reduction(operation: str, kind: str) -> Reduce:
    """Return a function that takes a block into an accumulator of the same length.

    Raises:
        ValueError: the operation is not known, or not for elements of that type.
    """
    dtype = stored(kind)
    function = _FUNCTIONS.get(operation)
    if function is None:
        raise ValueError(f"no operation '{operation}'; known: {', '.join(OPERATIONS)}")
    bitwise = operation in ("band", "bor", "bxor")
    if bitwise and (kind == BFLOAT16 or dtype.kind not in "iub"):
        raise ValueError(f"{operation} is of integers, not of {kind}")
    if dtype.kind == "c" and operation in ("min", "max"):
        raise ValueError(f"{operation} is not defined for {kind}: complex numbers have no order")
    if kind == BFLOAT16:

        def half(accumulator: Array, block: Array) -> None:
            accumulator[:] = narrowed(function(widened(accumulator), widened(block)))

        return half

    def plain(accumulator: Array, block: Array) -> None:
        function(accumulator, block, out=accumulator)

    return plain


def divide(array: Array, by: int, kind: str) -> None:
    """Do the last step of an average; integers are rounded towards zero."""
    if kind == BFLOAT16:
        array[:] = narrowed(widened(array) / np.float32(by))
    elif array.dtype.kind in "iu":
        quotient = np.abs(array) // array.dtype.type(by) if array.dtype.kind == "i" else array // array.dtype.type(by)
        array[:] = np.where(array < 0, -quotient, quotient) if array.dtype.kind == "i" else quotient
    elif array.dtype.kind == "b":
        raise ValueError("an average of bool is not defined")
    else:
        array /= array.dtype.type(by)

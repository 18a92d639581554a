"""bfloat16 in NumPy, and reductions that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_torch.numbers import divide, narrowed, reduction, widened


def test_every_bfloat16_survives() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    numbers = every[~np.isnan(widened(every))]
    assert (narrowed(widened(numbers)) == numbers).all()
    assert np.isnan(widened(narrowed(np.array([np.nan, -np.nan], np.float32)))).all()


@given(st.integers(0, (1 << 32) - 1))
def test_rounding_is_to_nearest_and_ties_to_even(bits: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    if not np.isfinite(value).all():
        return
    found = int(narrowed(value)[0])
    low = bits >> 16  # the neighbour towards zero; the other one is its successor in magnitude
    rest = bits & 0xFFFF
    assert found == (low if rest < 0x8000 or (rest == 0x8000 and low % 2 == 0) else low + 1)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 9))
def test_an_average_of_integers_is_rounded_towards_zero(values: list[int], by: int) -> None:
    if min(values) == -(2**63):
        return  # has no absolute value of its type
    array = np.array(values, np.int64)
    divide(array, by, "int64")
    assert array.tolist() == [abs(value) // by * (1 if value >= 0 else -1) for value in values]


@pytest.mark.parametrize(
    ("operation", "kind", "said"),
    [
        ("sum", "float8", "no reduction of float8; known: float64"),
        ("mean", "int8", "no operation 'mean'; known: sum, avg"),
        ("band", "float32", "band is of integers, not of float32"),
        ("bxor", "bfloat16", "bxor is of integers, not of bfloat16"),
        ("max", "complex64", "complex numbers have no order"),
    ],
)
def test_unsupported_reduction_is_refused(operation: str, kind: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reduction(operation, kind)

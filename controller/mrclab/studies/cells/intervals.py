"""Means over seeds with their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL = 1.95996


def student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t; beyond the table by Cornish-Fisher, which is right to 1e-3 there."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean, and half of the width of its 95 % confidence interval; None where there are too few values.

    Student's t: values are taken for independent and about normal.
    """
    if not values:
        return None, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, student(len(values) - 1) * math.sqrt(variance / len(values))

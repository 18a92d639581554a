"""Settings of workloads and failures as options: `--set loss=0.2`, `--set rate=20Mbps`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from typing import Any

from mrc_topo.base.document import printable
from mrc_topo.units import LONGEST, quantity
from mrclab.lab.faults.action import FailureError


def parse_setting(text: str, texts: Collection[str] = ()) -> tuple[str, Any]:
    """Parse a setting such as `loss=0.2` into its name and value.

    The value is a finite number, a quantity with its unit (`rate_bps=20Mbps`, also `rate=20Mbps`; `loss=20%`), true,
    false, or a list of whole numbers, as in `sources=[1,2]`; of those named in `texts` it is the text itself.

    Raises:
        FailureError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise FailureError(f"'{printable(text)}' is not a setting; write one as name=value, like loss=0.2")
    if key in texts:
        return key, value
    if value in ("true", "false"):
        return key, value == "true"
    if re.fullmatch(r"\[(\d{1,9}(, ?\d{1,9})*)?\]", value):
        return key, [int(each) for each in value[1:-1].split(",") if each]
    try:
        found = quantity(key, value) if len(value) <= LONGEST else None
    except ValueError as error:
        raise FailureError(f"'{printable(text)}': {error}") from error
    if found is not None:
        return found
    try:
        if len(value) > LONGEST:
            raise ValueError
        number = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise FailureError(f"'{printable(text)}': the value must be a finite number, a list like [1,2], true or false")
    return key, number


def parse_settings(given: Iterable[str], texts: Collection[str] = ()) -> dict[str, Any]:
    """Return all `--set` options of a command; see `parse_setting`.

    Raises:
        FailureError: one is not of the form NAME=VALUE, or a name is given twice.
    """
    settings: dict[str, Any] = {}
    for text in given:
        key, value = parse_setting(text, texts)
        if key in settings:
            raise FailureError(f"--set {printable(key)} is given twice; keep one")
        settings[key] = value
    return settings

"""Known causes of differences between backends, and what shows that they are."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_studies.validation.scenario import Backend, Quantity


@dataclass(frozen=True)
class Cause:
    """Why a backend differs from packets in some quantities of some scenarios; the text says what shows it."""

    backend: Backend
    scenarios: frozenset[str]
    quantities: frozenset[Quantity]
    text: str


CAUSES: tuple[Cause, ...] = ()

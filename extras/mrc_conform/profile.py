"""Profile of a device: what its maker says that it cannot do, has fixed, and does otherwise.

The kit judges a device with a profile by what it claims: nothing is skipped without a reason that stands there, and a
rule that is our reading of the specification is one that the device claims to follow or names.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any, Final

import pydantic
from pydantic import Field

from mrc_conform.case import Basis, Case, catalogue
from mrc_conform.device import Need, Settings
from mrc_topo.base import document
from mrc_topo.base.document import Document, DocumentError, Model

EXAMPLE: Final = "a profile is a mapping with `device: NAME`, `cannot`, `fixed`, `readings` and `departs`"
FOLDER: Final = pathlib.Path(__file__).parent / "profiles"

Reason = Annotated[str, Field(min_length=1, max_length=300)]


class Profile(Model):
    """Claims of a device; without anything but its name it claims all."""

    device: Annotated[str, Field(min_length=1, max_length=200, description="name and version")]
    cannot: Annotated[
        dict[str, Reason], Field(description="what the kit cannot ask of it, by need, with the reason")
    ] = {}
    fixed: Annotated[
        dict[str, Any], Field(description="settings that cannot be chosen, with the value that they have")
    ] = {}
    departs: Annotated[
        dict[str, Reason], Field(description="cases whose rule it does not follow by intent, with what it does")
    ] = {}
    readings: Annotated[
        bool, Field(description="whether it follows the rules that are only our reading, but for those in `departs`")
    ] = True

    @pydantic.field_validator("cannot")
    @classmethod
    def _names_of_needs(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = next((key for key in value if key not in Need.__members__), None)
        if unknown is not None:
            raise document.PlacedError(f"no need has this name; needs: {', '.join(Need.__members__)}", (unknown,))
        return value

    @pydantic.field_validator("fixed")
    @classmethod
    def _values_of_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        known = [field.name for field in dataclasses.fields(Settings)]
        for key in value:
            if key not in known:
                raise document.PlacedError(f"no setting has this name; settings: {', '.join(known)}", (key,))
        checked = pydantic.TypeAdapter(Settings).validate_python(value)
        return {key: getattr(checked, key) for key in value}

    @pydantic.field_validator("departs")
    @classmethod
    def _names_of_cases(cls, value: dict[str, str]) -> dict[str, str]:
        known = {case.name for case in catalogue()}
        for key in value:
            if key not in known:
                raise document.PlacedError("no case has this name; `mrclab conform --list` has them", (key,))
        return value

    def outside(self, case: Case) -> str | None:
        """Return why a case is outside of what the device claims; None for one that it must pass."""
        unmet = sorted({need.name for need in case.needs} & self.cannot.keys())
        if unmet:
            return f"{unmet[0]}: {self.cannot[unmet[0]]}"
        if Need.SETTINGS in case.needs:
            for key, value in self.fixed.items():
                if getattr(case.settings, key) != value:
                    return f"{key} is {_plain(value)}, the case needs {_plain(getattr(case.settings, key))}"
        return None

    def claims(self, case: Case) -> bool:
        """Return whether the device claims to follow the rule of a case."""
        return case.name not in self.departs and (self.readings or case.basis is not Basis.OURS)


def _plain(value: object) -> str:
    return str(getattr(value, "value", value))


def load(name: str) -> Profile:
    """Return the profile of a file, or one that comes with the kit.

    Raises:
        DocumentError: it cannot be read, or is none; each problem has its line and a remedy.
    """
    shipped = FOLDER / f"{name}.yaml"
    path = shipped if name.isidentifier() and shipped.exists() else pathlib.Path(name)
    read: Document = document.load(path, str(path if path != shipped else path.name), EXAMPLE)
    try:
        return Profile.model_validate(read.data)
    except pydantic.ValidationError as error:
        raise DocumentError(read.explain(Profile, error, "profile")) from None

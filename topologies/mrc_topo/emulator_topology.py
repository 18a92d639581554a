"""Reading topo.yaml of segmentrouting/srv6-mrc-emulator: planes of spines and leaves, each with a host per tenant."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, ValidationError

from mrc_topo.base.document import Document, DocumentError, Model

#: The prefixes that this emulator gives its two tenants, and where their packets are decapsulated; the file has only
#: their names. Others get the prefixes that follow.
_KNOWN: Final = {"green": ("2001:db8:bbbb::/48", "t0"), "yellow": ("2001:db8:cccc::/48", "host")}
_LEFT_OUT: Final = ("clab", "images", "reference_pairs_spines")


class EmulatorTopology(Model):
    """What a lab takes over of the file."""

    name: str
    description: str = ""
    planes: int = Field(ge=1, le=8)
    spines_per_plane: int = Field(ge=1, le=256)
    leaves_per_plane: int = Field(ge=1, le=256)
    tenants: list[str] = Field(min_length=1, max_length=16)


def is_one(data: dict[str, Any]) -> bool:
    """Return whether a document is such a file, as far as its keys say."""
    return "spines_per_plane" in data and "leaves_per_plane" in data


def lab_of(read: Document, name: str) -> Document:
    """Return the lab that such a file describes. Host `hI` is that of tenant I modulo their number, at leaf I divided
    by it. Raises DocumentError for a wrong file."""
    try:
        spec = EmulatorTopology.model_validate({key: read.data[key] for key in read.data if key not in _LEFT_OUT})
    except ValidationError as error:
        raise DocumentError(read.explain(EmulatorTopology, error, "file")) from error
    count = len(spec.tenants)
    if len(set(spec.tenants)) < count:
        raise DocumentError([read.problem(("tenants",), "has a name twice; leave one of them out")])
    hosts = count * spec.leaves_per_plane
    tenants = {}
    for number, tenant in enumerate(spec.tenants):
        addresses, place = _KNOWN.get(tenant, (f"2001:db8:{0xDD00 + number:x}::/48", "host"))
        members = [f"h{index}" for index in range(number, hosts, count)]
        tenants[tenant] = {"hosts": members, "addresses": addresses, "decapsulation": place}
    data = {
        "name": name, "description": spec.description, "planes": spec.planes, "t0_per_plane": spec.leaves_per_plane,
        "t1_per_plane": spec.spines_per_plane, "hosts": hosts, "hosts_per_t0": count, "tenants": tenants,
    }  # fmt: skip
    left = [key for key in _LEFT_OUT if key in read.data]
    notes = (f"left out, as a lab has nothing of the kind: {', '.join(left)}",) if left else ()
    return Document(read.name, data, read.lines, notes)

"""Lab files: whatever is valid stays valid; one thing wrong is an error that names its line and key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_topo.labfile import LabError, parse_lab
from mrc_topo.schema import Lab, LinkRates, Override, QueueSpec, ReliabilitySpec
from mrc_topo.topology import Topology
from support.schema_documents import Wrong, check_wrong, documents, dump, same, wrong
from topo.strategies import topologies


@st.composite
def labs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a lab file's document: the shape of a topology, other parts after the schema."""
    lab = draw(topologies()).lab
    document: dict[str, Any] = lab.model_dump(mode="json")
    parts = {"links": LinkRates, "queues": QueueSpec, "reliability": ReliabilitySpec}
    for key in sorted(draw(st.sets(st.sampled_from(sorted(parts))))):
        document[key] = draw(documents(parts[key], {}))  # type: ignore[arg-type]
    links = sorted(Topology(lab).links)
    document["overrides"] = draw(st.dictionaries(st.sampled_from(links), documents(Override, {}), max_size=2))
    # Credits are of all links or of none, and hold a full packet.
    credits: Any = draw(st.none() | st.builds(dict, buffer=st.integers(1 << 15, 1 << 31 - 1)))
    for queues in (document["queues"], *(each.get("queue") for each in document["overrides"].values())):
        if queues is not None:
            queues |= {"credits": credits} | ({} if credits is None else {"pfc": None})
    document["description"] = draw(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20))
    gone = ["links", "cc", "reliability", "overrides", "clock", *(["queues"] if credits is None else [])]
    for key in sorted(draw(st.sets(st.sampled_from(gone)))):
        del document[key]
    return document


@given(labs())
@settings(max_examples=30)
def test_valid_stays_valid(document: dict[str, Any]) -> None:
    read = parse_lab(dump(document)).lab
    assert same(read, Lab.model_validate(document))
    again = read.model_dump(mode="json")
    assert same(parse_lab(dump(again)).lab, read)


@st.composite
def wrong_labs(draw: st.DrawFn) -> Wrong:
    return draw(wrong(draw(labs()), set()))


@given(wrong_labs())
@settings(max_examples=80)
def test_one_thing_wrong_is_an_error_that_names_its_place(case: Wrong) -> None:
    with pytest.raises(LabError) as caught:
        parse_lab(case.text, "some.yaml")
    check_wrong(caught.value.problems, case, "some.yaml")

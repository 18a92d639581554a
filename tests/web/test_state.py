"""The schema of the live view."""

from __future__ import annotations

import json

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.kinds import KINDS
from mrclab.web.state import kinds_layout, layout_of

TARGETS = {"link": "p0-t0.0--p0-t1.0", "port": "h0:0", "switch": "p0-t1.0"}


def test_layout_says_of_each_link_where_it_leads() -> None:
    topology = load_lab("tiny")
    layout = layout_of(topology, "simulation", clock="virtual", transport="mrc", began_ns=0, can=["fail"])
    assert json.loads(json.dumps(layout)) == layout
    nodes = {each["name"] for each in (*layout["hosts"], *layout["switches"])}
    assert len(layout["links"]) == len(topology.links)
    assert all({each["low"], each["high"]} <= nodes for each in layout["links"])


def test_kinds_fit_what_the_failures_themselves_accept() -> None:
    topology = load_lab("tiny")
    for row in kinds_layout():
        kind = KINDS[row["name"]]
        fits = {name for name, target in TARGETS.items() if kind.fits(topology.element(target))}
        assert fits == set(row["fits"]), row["name"]
        directed = Action("fail", TARGETS[row["fits"][0]], kind.name, "up", {"loss": 0.5} if row["takes"] else {})
        if row["directed"]:
            kind.check(topology, directed)

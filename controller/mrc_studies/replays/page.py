"""The report of a graph's run on the fluid model: one page that opens offline."""

from __future__ import annotations

from mrc_results.performance import training_tables
from mrc_scale.caveat import caveat
from mrc_studies.cells import pages
from mrc_studies.replays.fluid import FluidResult
from mrc_topo.units import format_time


def about(made: FluidResult) -> str:
    """Return in one line how the result was made."""
    way = "each message" if made.detail == "messages" else "one message per rank and collective"
    return (
        f"{made.ranks:,} ranks, {made.messages:,} messages per step ({way}), resolution "
        f"{format_time(round(made.resolution_ns))}, {made.states:,} steady states, {made.seconds:.1f} s on this machine"
    )


def render(made: FluidResult) -> str:
    """Return the report as HTML."""
    given = made.document()["source"]
    assert isinstance(given, dict)
    return pages.render(
        "replay.html",
        f"{made.source.model or made.source.file.rpartition('/')[2]} on {made.bed.name}",
        "",
        about=about(made),
        caveat=caveat(),
        given=given,
        events=[(each.at / 1e9, "fails" if each.by > 0 else "is back", each.name) for each in made.events],
        tables=training_tables(made.summary),
    )

"""The report of a graph's run on the fluid model: one page that opens offline."""

from __future__ import annotations

from dataclasses import replace

from mrc_fluid.cases import Modelled, accuracy, not_modelled, own_errors
from mrc_fluid.caveat import NATURE
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.replays.fluid import FluidResult
from mrc_topo.units import format_rate, format_time
from mrclab.results.performance import training_tables
from mrclab.studies.cells import pages

#: Elements that a note names.
SHOWN = 3


def about(made: FluidResult) -> str:
    """Return in one line how the result was made."""
    way = "each message" if made.detail == "messages" else "one message per rank and collective"
    return (
        f"{made.ranks:,} ranks, {made.messages:,} messages per step ({way}), resolution "
        f"{format_time(round(made.resolution_ns))}, {made.states:,} steady states, {made.seconds:.1f} s on this machine"
    )


def goodput(made: FluidResult) -> str:
    """Return the goodput in one line."""
    found = made.carried
    if why := not_modelled(_loaded(made)).get(Modelled.GOODPUT):
        return f"goodput of all ranks: not modelled ({why})"
    if not found.under_way_s:
        return "goodput: no message carries data"
    return (
        f"goodput of all ranks: {format_rate(found.goodput_bps)} over {_seconds(found.seconds)}; "
        f"{format_rate(found.goodput_under_way_bps)} over the {_seconds(found.under_way_s)} in which messages "
        "were under way"
    )


def _seconds(value: float) -> str:
    return format_time(round(value * 1e9))


def notes(made: FluidResult) -> list[str]:
    """Return what must be known beside the tables: what of a file is not used, which spread the tables lack, and what
    failures could strike."""
    found = [goodput(made), *made.notes]
    if made.detail == "phases":
        found.append(
            "no spread in a group: a ring or an all-to-all is one message per rank, and ends at all ranks when the "
            "slowest message does, so P50, P99 and max say nothing of tails; take tails from packets (mrclab run trace)"
        )
    elif made.events:
        found.append("little spread: all ranks find dead EVs equally fast; take tails from packets (mrclab run trace)")
    if made.events:
        pairs = made.carried
        found.append(
            f"{pairs.crossing:,} of {pairs.queue_pairs:,} queue pairs cross links between switches; the others stay "
            "below a T0 and lose nothing to a T1 or to such a link"
        )
    if made.known:
        few = ", ".join(made.known[:SHOWN]) + (
            f" and {len(made.known) - SHOWN} more" if len(made.known) > SHOWN else ""
        )
        found.append(
            f"broken from the start, and known to all hosts (denylist): {few}; no packet is lost to it, and only the "
            "capacity that is missing counts"
        )
    if why := not_modelled(_loaded(made)).get(Modelled.STEPS):
        found.append(f"times of steps during a failure are not modelled, so not told ({why})")
    return [*found, *(f"beside packets: {each.text}" for each in own_errors(_loaded(made)))]


def caveat(made: FluidResult) -> str:
    """Return what stands beside the result, with the errors of its own cases."""
    return accuracy(_loaded(made))


def _loaded(made: FluidResult) -> Loaded:
    """Return the cluster with the failures that this run had."""
    return replace(made.bed.loaded, events=list(made.events))


def render(made: FluidResult) -> str:
    """Return the report as HTML."""
    given = made.document()["source"]
    assert isinstance(given, dict)
    return pages.render(
        "replay.html",
        f"{made.source.model or made.source.file.rpartition('/')[2]} on {made.bed.name}",
        "",
        about=about(made),
        caveat=NATURE,
        given=given,
        events=[(each.at / 1e9, "fails" if each.by > 0 else "is back", each.name) for each in made.events],
        tables=training_tables(made.summary),
        notes=notes(made),
    )

"""Pictures of a lab: SVG with one panel per plane, or Graphviz DOT.

Every element carries its name in `data-name`, so that a report can colour it by state.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from mrc_topo.addressing import Tier
from mrc_topo.topology import Switch, Topology
from mrc_topo.units import format_rate

SWITCH_WIDTH, SWITCH_HEIGHT, GAP = 46, 24, 10
PANEL_GAP, MARGIN = 24, 20
T1_Y, T0_Y, HOST_Y = 60, 170, 320
HOST_WIDTH, HOST_HEIGHT = 40, 24
#: The width of a letter.
LETTER = 7
#: The colours of planes. The first eight are those of the reports and the live view, which colour-blind readers can
#: distinguish.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8a5a00", "#4b4bb8", "#7f7f7f",
    "#7a9e2c", "#5a53b8", "#a3632d", "#2f7fa8", "#a04f86", "#6b8f71", "#94703d", "#4a5f8f",
)  # fmt: skip

STYLE = (
    "text{font:11px sans-serif;text-anchor:middle;dominant-baseline:central}"
    ".title{font-size:14px;font-weight:bold}.link{stroke-width:1.2;fill:none;opacity:.75}"
    ".t0,.t1,.host{stroke:#333;stroke-width:1}.t0{fill:#eef2f8}.t1{fill:#dbe4f0}.host{fill:#fff4dc}"
    ".panel{fill:none;stroke:#bbb;stroke-dasharray:4 3}"
)


def _row_width(count: int, width: int) -> int:
    return count * width + max(0, count - 1) * GAP


def to_svg(topology: Topology) -> str:
    """Return a self-contained SVG document: planes side by side, T1s on top, hosts shared by all at the bottom."""
    lab = topology.lab
    rows: dict[int, dict[Tier, list[Switch]]] = {}
    for switch in topology.switches:
        rows.setdefault(switch.plane, {Tier.T1: [], Tier.T0: []})[switch.tier].append(switch)
    switch_width = _width(SWITCH_WIDTH, (_label(switch) for switch in topology.switches))
    host_width = _width(HOST_WIDTH, (host.name for host in topology.hosts))
    longest = max(len(row) for plane in rows.values() for row in plane.values())
    panel = max(_row_width(longest, switch_width), 80) + 2 * GAP
    planes_width = len(rows) * panel + (len(rows) - 1) * PANEL_GAP
    width = 2 * MARGIN + max(planes_width, _row_width(lab.hosts, host_width), 300)
    height = HOST_Y + HOST_HEIGHT + 30
    where: dict[str, tuple[float, float]] = {}
    left = (width - planes_width) / 2
    shapes: list[str] = []
    for number, (plane, tiers) in enumerate(rows.items()):
        x = left + number * (panel + PANEL_GAP)
        shapes.append(
            f'<rect class="panel" x="{x:g}" y="34" width="{panel}" height="{T0_Y + SWITCH_HEIGHT - 24}" rx="6"/>'
        )
        shapes.append(f'<text x="{x + panel / 2:g}" y="46">plane {plane}</text>')
        for tier, y in ((Tier.T1, T1_Y), (Tier.T0, T0_Y)):
            start = x + (panel - _row_width(len(tiers[tier]), switch_width)) / 2
            for switch in tiers[tier]:
                sx = start + switch.index * (switch_width + GAP)
                where[switch.name] = (sx + switch_width / 2, y + SWITCH_HEIGHT / 2)
                shapes.append(_switch(switch, sx, y, switch_width))
    pitch = (width - 2 * MARGIN) / lab.hosts
    for host in topology.hosts:
        hx = MARGIN + (host.index + 0.5) * pitch - host_width / 2
        where[host.name] = (hx + host_width / 2, HOST_Y + HOST_HEIGHT / 2)
        shapes.append(
            f'<g data-name="{host.name}"><title>{host.name}</title><rect class="host" x="{hx:g}" y="{HOST_Y}" '
            f'width="{host_width}" height="{HOST_HEIGHT}" rx="10"/>'
            f'<text x="{hx + host_width / 2:g}" y="{HOST_Y + HOST_HEIGHT / 2:g}">{host.name}</text></g>'
        )
    lines = []
    for link in topology.links.values():
        (x1, y1), (x2, y2) = where[link.low.node], where[link.high.node]
        colour = COLOURS[link.plane % len(COLOURS)]
        title = f"{link.name} {format_rate(link.spec.rate)}"
        if y1 == y2:  # An arc, because a line would be hidden behind the switches of the row.
            bow = min(abs(x2 - x1) / 3, (T0_Y - T1_Y) / 2)
            arc = f"M{x1:g} {y1:g}Q{(x1 + x2) / 2:g} {y1 + bow:g} {x2:g} {y2:g}"
            shape = f'path class="link" data-name="{link.name}" d="{arc}"'
        else:
            shape = f'line class="link" data-name="{link.name}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
        lines.append(f'<{shape} stroke="{colour}"><title>{title}</title></{shape.split()[0]}>')
    heading = escape(f"{lab.name}: {lab.description}" if lab.description else lab.name)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" '
            f'height="{height}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="{width / 2:g}" y="16">{heading}</text>',
            *lines,
            *shapes,
            "</svg>",
            "",
        )
    )


def _width(least: int, labels: Iterable[str]) -> int:
    return max(least, *(LETTER * len(label) + 8 for label in labels))


def _label(switch: Switch) -> str:
    """Return the name without the plane, which is written above."""
    return switch.name.removeprefix(f"p{switch.plane}-")


def _switch(switch: Switch, x: float, y: float, width: int) -> str:
    kind = switch.tier.name.lower()
    return (
        f'<g data-name="{switch.name}"><title>{switch.name} uSID {switch.usid:04x}</title>'
        f'<rect class="{kind}" x="{x:g}" y="{y}" width="{width}" height="{SWITCH_HEIGHT}" rx="3"/>'
        f'<text x="{x + width / 2:g}" y="{y + SWITCH_HEIGHT / 2:g}">{_label(switch)}</text></g>'
    )


def to_dot(topology: Topology) -> str:
    """Return Graphviz source: a cluster per plane, and port numbers at the ends of the edges."""
    lines = [f'graph "{topology.lab.name}" {{', "  node [shape=box fontsize=10];", "  edge [fontsize=8];"]
    for plane in dict.fromkeys(switch.plane for switch in topology.switches):
        lines.append(f'  subgraph cluster_p{plane} {{ label="plane {plane}";')
        lines += [f'    "{s.name}" [label="{s.name}"];' for s in topology.switches if s.plane == plane]
        lines.append("  }")
    lines += [f'  "{host.name}" [shape=oval kind=host];' for host in topology.hosts]
    for link in topology.links.values():
        lines.append(
            f'  "{link.high.node}" -- "{link.low.node}" [taillabel="{link.high.port}" headlabel="{link.low.port}"];'
        )
    return "\n".join([*lines, "}", ""])

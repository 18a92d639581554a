"""Tables of the page of accuracy, from the files that runs quote. Run as a module it puts them into the documentation:
`python -m mrc_fluid.calibration.tables docs/reference/scale-accuracy.md docs/explanation/scale-model.md`."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Callable, Iterator

from mrc_fluid.cases import MOST_OFF, Comparison, comparisons
from mrc_fluid.caveat import measured

#: A table in a page: its name, and what stands there now.
_PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
#: Units of quantities, and by what stored values are divided.
_COLUMNS = (("goodput", "goodput, Tb/s", 1000.0, 2), ("p50", "P50, µs", 1.0, 0), ("p99", "P99, µs", 1.0, 0))
REFUSED = "not modelled"
#: What the calibration compares, by its kinds of values.
_STREAMS = {
    "goodput": "goodput",
    "load": "load of an uplink on average",
    "links": "load of a single uplink, of the average",
    "lost": "lost packets",
    "lost, overloaded": "lost packets, where links are overloaded",
    "evs": "EVs found dead",
    "evs, overloaded": "EVs found dead, where links are overloaded",
    "found": "time until the last dead EV is found",
    "found, overloaded": "that time, where links are overloaded",
}


def size(made: Comparison) -> Iterator[str]:
    """Yield the table of the comparison at one size."""
    yield f"| {made.nics} NICs | seeds | {' | '.join(f'{title}: packets, model' for _, title, _, _ in _COLUMNS)} |"
    yield "|---|---|---|---|---|"
    for case, values in made.cases.items():
        cells = [str(len(values.packets["p50"]))]
        for name, _, unit, digits in _COLUMNS:
            packets = f"{values.mean(name) / unit:.{digits}f} ± {values.spread(name):.0%}"
            off = values.error(name)
            told = f"{values.mean(name, of_model=True) / unit:.{digits}f}"
            cells.append(f"{packets}, {told if abs(off) <= MOST_OFF else REFUSED} ({round(off * 100):+d} %)")
        yield f"| {case} | {' | '.join(cells)} |"


def summary() -> Iterator[str]:
    """Yield the errors of all sizes."""
    sizes = comparisons()
    at = ", ".join(str(each.nics) for each in sizes)
    heads = [title.partition(",")[0] for _, title, _, _ in _COLUMNS]
    yield f"| case | {' | '.join(f'{head} at {at} NICs' for head in heads)} |"
    yield "|---|---|---|---|"
    for case in sizes[0].cases:
        cells = []
        for name, *_ in _COLUMNS:
            cells.append(", ".join(f"{round(each.cases[case].error(name) * 100):+d} %" for each in sizes))
        yield f"| {case} | {' | '.join(cells)} |"


def streams() -> Iterator[str]:
    """Yield the errors of the calibration."""
    found = measured() or {}
    yield "| measure | largest error |"
    yield "|---|---|"
    for kind, title in _STREAMS.items():
        yield f"| {title} | {found[kind]:.1%} |"


def tables() -> dict[str, Callable[[], Iterator[str]]]:
    """Return all tables by their names in pages."""
    return {
        "summary": summary,
        "streams": streams,
        **{f"compared-{each.nics}": lambda made=each: size(made) for each in comparisons()},  # type: ignore[misc]
    }


def filled(page: str) -> str:
    """Return a page with its tables as they are now."""
    made = tables()
    return _PLACE.sub(lambda found: found[1] + "\n".join(made[found[2]]()) + "\n" + found[4], page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        path.write_text(filled(path.read_text("utf-8")), "utf-8")

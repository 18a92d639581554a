"""What each surface shows of a run, parsed, and the raw statistics of the run, summed by no function of the product."""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np
import numpy.typing as npt

#: Reasons for which a requestor takes a packet for lost, and the counters of samples by name: of requestors, of
#: responders, and of endpoints of RoCE.
LOST = ("lost_nack", "lost_port_down", "lost_rack", "lost_same_ev", "lost_timeout")
COUNTERS: dict[str, tuple[Sequence[str], Sequence[str], Sequence[str]]] = {
    "packets": (["packets_sent"], [], ["packets_sent"]),
    "retransmissions": (["retransmissions"], [], ["retransmissions"]),
    "spurious_retransmissions": ([], ["duplicates"], ["duplicates"]),
    "trims": ([], ["trimmed", "trimmed_duplicates"], []),
    "marks": ([], ["ecn_marked", "ecn_refused"], ["ecn_marked"]),
    "timeouts": (["lost_timeout"], [], ["timeouts"]),
    "losses": (LOST, [], ["naks_sent"]),
    "delivered_bytes": ([], ["payload_bytes_placed"], ["payload_bytes_placed"]),
}
BIN_S = 0.1


def host_counter(statistics: Mapping[str, Any], name: str) -> int:
    """Sum a counter of a host since its agent's start, over queue pairs that are there and those that are gone."""
    asked, answered, ends = COUNTERS[name]
    if statistics.get("transport") == "roce":
        return sum(statistics["endpoint"].get(each, 0) for each in ends)
    halves = [(statistics["gone_requestors"], asked), (statistics["gone_responders"], answered)]
    for qp in statistics["qps"]:
        halves += [(qp["requestor"], asked), (qp["responder"], answered)]
    return sum(half.get(each, 0) for half, names in halves for each in names)


def columns(folder: pathlib.Path, series: str) -> dict[str, npt.NDArray[np.int64]]:
    """Read all values of a series of samples.npz; columns that came later are 0 before."""
    with np.load(folder / "samples.npz") as file:
        names = file[f"{series}/columns"].tolist()
        parts = sorted(name for name in file.files if re.fullmatch(rf"{series}/\d+", name))
        chunks = [np.cumsum(file[name], axis=1) for name in parts]
    padded = [np.pad(each, ((0, len(names) - len(each)), (0, 0))) for each in chunks]
    return dict(zip(names, np.concatenate(padded, axis=1), strict=True))


class Raw:
    """The raw statistics of a run that began on a lab where no workload had run before, or after the run `earlier`."""

    def __init__(self, folder: pathlib.Path, earlier: Raw | None = None) -> None:
        self.folder = folder
        self.document: dict[str, Any] = json.loads((folder / "result.json").read_text())
        self.verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
        self.ranks: list[str] = self.document["ranks"]
        self.start: int = self.document["started_ns"]
        self.seconds: float = (self.document["finished_ns"] - self.start) / 1e9
        self.progress: dict[str, dict[str, Any]] = self.document["progress"]
        self.hosts = {name: columns(folder, f"hosts/{name}") for name in self.ranks}
        self.fabric = columns(folder, "fabric")
        self.earlier = earlier
        with gzip.open(folder / "events.jsonl.gz", "rt") as file:
            self.events = [json.loads(line) for line in file]

    def of_host(self, host: str, name: str) -> int:
        """Return how much a counter of a host grew, by its statistics."""
        before = 0 if self.earlier is None else host_counter(self.earlier.document["statistics"][host], name)
        return host_counter(self.document["statistics"][host], name) - before

    def total(self, name: str) -> int:
        """Return how much a counter of all hosts grew, by their statistics."""
        return sum(self.of_host(host, name) for host in self.ranks)

    def sampled(self, name: str) -> int:
        """Return the same by the first and the last sample."""
        return sum(int(each[name][-1] - each[name][0]) for each in self.hosts.values())

    def fabric_grown(self, ending: str) -> int:
        """Return how much a counter of all ports grew, by the first and the last sample."""
        return sum(int(values[-1] - values[0]) for name, values in self.fabric.items() if name.endswith(f".{ending}"))

    def over_ranks(self, name: str) -> int:
        """Return the sum of a number of the ranks' progress."""
        return sum(each[name] for each in self.progress.values())

    @property
    def iterations(self) -> list[int]:
        """The iterations of the ranks that take part."""
        return [each["iterations"] for each in self.progress.values() if each["takes_part"]]

    @property
    def evs_lost(self) -> int:
        """How often a host took an EV for bad."""
        return sum(each["kind"] == "ev" and each["new"] == "ASSUMED_BAD" != each["old"] for each in self.events)

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """The bins of goodput, s: until the last rank had ended, or the run if one did not end."""
        taking = [each for each in self.progress.values() if each["takes_part"]]
        end = self.seconds
        if taking and all(each["done"] and each["finished_ns"] for each in taking):
            end = (max(each["finished_ns"] for each in taking) - self.start) / 1e9
        return np.append(np.arange(max(int(end / BIN_S + 0.5), 1)) * BIN_S, end)

    def placed_at(self, host: str, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return how many bytes a host had placed at some times (s)."""
        each = self.hosts[host]
        return np.interp(times, (each["t_ns"] - self.start) / 1e9, each["delivered_bytes"].astype(float))

    def placed(self, host: str) -> npt.NDArray[np.float64]:
        """Return how many bytes a host had placed at each edge; at the last one, all."""
        return np.append(self.placed_at(host, self.edges[:-1]), float(self.hosts[host]["delivered_bytes"][-1]))

    def goodput(self) -> npt.NDArray[np.float64]:
        """Return the goodput in each bin, bit/s."""
        return 8 * np.diff(sum(self.placed(host) for host in self.hosts)) / np.diff(self.edges)

    @property
    def mean_bps(self) -> float:
        """The goodput from the first start to the last end of a rank, bit/s; that of the run if one did not end."""
        taking = [each for each in self.progress.values() if each["takes_part"]]
        seconds = self.seconds
        if taking and all(each["done"] and each["finished_ns"] for each in taking):
            ends, starts = ([each[key] for each in taking] for key in ("finished_ns", "started_ns"))
            seconds = (max(ends) - min(starts)) / 1e9
        return 8 * self.total("delivered_bytes") / seconds

    def deepest_kib(self, plane: int) -> float:
        """Return the most bytes that waited together in all data queues of a plane, KiB."""
        depths = [
            values
            for name, values in self.fabric.items()
            if name.endswith(".depth_bytes") and name.startswith(f"ports.p{plane}-")
        ]
        return float(np.sum(depths, axis=0).max()) / 1024

    def recoveries(self) -> Iterator[dict[str, Any]]:
        """Yield time, goodput before, lowest and settled share, and recovery of each action that has enough time."""
        edges, rates = self.edges, self.goodput()
        actions = [(each["done_ns"] - self.start) / 1e9 for each in self.document["happenings"]]
        ended = [each["finished_ns"] for each in self.progress.values() if each["takes_part"] and each["done"]]
        last = min(self.seconds, (min(ended) - self.start) / 1e9)
        loss = 0.0
        for (begin, at, end), each in zip(
            zip([0.0, *actions], actions, [*actions[1:], last], strict=False), self.document["happenings"], strict=True
        ):
            expected, loss = (1 - each["expected_loss"]) / (1 - loss), each["expected_loss"]
            if end - at < 0.3 or at - begin < 0.3:
                continue
            before = _mean(rates, edges, max((begin + at) / 2, at - 2.0), at)
            # A bin is behind an action that was made in its first tenth.
            inside = (BIN_S / 10 - (at - edges[:-1]) > -1e-9) & (edges[1:] <= end)
            shares, starts = rates[inside] / before, edges[:-1][inside]
            bound = 0.95 * min(expected, 1.0)
            settled = _mean(rates, edges, (at + end) / 2, end) / before
            yield {
                "at_s": at, "before_bps": before, "dip": shares.min(), "dip_s": max(starts[shares.argmin()] - at, 0.0),
                "after": settled, "left": 1 - loss, "expected": min(expected, 1.0),
                "recovery_s": _recovery(shares, starts - at, bound),
            }  # fmt: skip


def _mean(rates: npt.NDArray[np.float64], edges: npt.NDArray[np.float64], begin: float, end: float) -> float:
    inside = (edges[:-1] >= begin - 1e-9) & (edges[1:] <= end + 1e-9)
    return float(rates[inside].mean())


def _recovery(shares: npt.NDArray[np.float64], starts: npt.NDArray[np.float64], bound: float) -> float | None:
    """Return when the last bin below the bound ended, before three together held it, and all behind them; 0 if none was
    below. Three are not looked for before the first that is below."""
    three = min(3, len(shares))
    begin = min(next((at for at, share in enumerate(shares) if share < bound), 0), len(shares) - three)
    for first in range(begin, len(shares) - three + 1):
        if min(shares[first : first + three].mean(), shares[first:].mean()) >= bound:
            low = [at for at in range(first + three) if shares[at] < bound and at >= first] or [first - 1]
            return float(starts[low[-1]] + BIN_S) if low[-1] >= 0 else 0.0
    return None


class Page(HTMLParser):
    """The tables of a page as rows of text, under the heading before each, and its tiles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.tiles: list[str] = []
        self._heading = self._chart = ""
        self._into: list[str] | None = None
        self._in_heading = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Begin a part."""
        given = dict(attributes)
        if tag in ("h2", "h3", "summary") and not self._chart:
            self._heading, self._chart, self._into, self._in_heading = "", "", None, True
        elif tag == "figure":
            self._chart = given.get("id") or ""
        elif tag == "table":
            self.tables.setdefault(self._chart or self._heading, []).append([])
        elif tag == "tr":
            next(reversed(self.tables[self._chart or self._heading])).append([])
        elif tag in ("td", "th"):
            self._into = self.tables[self._chart or self._heading][-1][-1]
            self._into.append("")
        elif tag == "div" and given.get("class") == "tile":
            self.tiles.append("")
            self._into = self.tiles

    def handle_endtag(self, tag: str) -> None:
        """End a part."""
        if tag in ("h2", "h3", "summary"):
            self._in_heading = False
        elif tag in ("td", "th", "div"):
            self._into = None
        elif tag == "figure":
            self._chart = ""

    def handle_data(self, data: str) -> None:
        """Add a text to its part."""
        if self._in_heading:
            self._heading += data
        elif self._into is not None:
            self._into[-1] += data + ("|" if self._into is self.tiles else "")

    def table(self, heading: str) -> list[list[str]]:
        """Return the rows of the only table under a heading, or of a chart."""
        (rows,) = self.tables[heading]
        return rows

    def facts(self, heading: str) -> dict[str, str]:
        """Return a table of two columns."""
        return {row[0]: row[1] for row in self.table(heading) if len(row) == 2}


def boxes(text: str) -> dict[str, list[list[str]]]:
    """Return the tables of a terminal by title: rows of cells."""
    found: dict[str, list[list[str]]] = {}
    title = ""
    for before, line in itertools.pairwise(["", *text.splitlines()]):
        if line.startswith("┏"):
            title = before.strip()
            found[title] = []
        elif line.startswith(("│", "┃")):
            found[title].append([cell.strip() for cell in re.split("[│┃]", line)[1:-1]])
    return found


def sums(text: str) -> dict[str, str]:
    """Return the line of sums of `mrclab run` by name."""
    line = next(each for each in text.splitlines() if "; the hosts counted: " in each)
    head, _, counted = line.partition("; the hosts counted: ")
    seconds, iterations, verified = head.split(", ", 2)
    rows = {"seconds": seconds, "iterations": iterations.removeprefix("iterations "), "verified": verified}
    return rows | {name: value for name, _, value in (each.rpartition(" ") for each in counted.split(", "))}

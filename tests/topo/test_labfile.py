"""Lab files: the labs that come with the project, units, and what is said about bad ones."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import pathlib
import socket

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_topo.labfile import LabError, at_rate, builtin_labs, load_lab, parse_lab
from mrc_topo.rules import check_routes
from mrc_topo.schema import Lab
from mrc_topo.units import format_rate, format_size, parse_rate_bps, parse_size_bytes, parse_time_ns

# (what the file says, line, key, words that the message must have)
BAD = [
    ("planes: 0\nname: a", 1, "planes", "greater than or equal to 1, not 0"),
    ("name: a\nplanes: 17", 2, "planes", "less than or equal to 16, not 17"),
    ("name: a\nhosts: 5000", 2, "hosts", "less than or equal to 2048, not 5000"),
    ("name: a\nplans: 3", 2, "plans", "did you mean 'planes'"),
    ("name: a\nlinks:\n  host:\n    rte: 3", 4, "links.host.rte", "did you mean 'rate'"),
    ("name: a\nlinks:\n  host: {rate: 0}", 3, "links.host.rate", "1000, not 0"),
    ("name: a\nlinks:\n  host: {rate: 3 furlongs}", 3, "links.host.rate", "such as 100Mbps"),
    ("name: a\nlinks:\n  host: {rate: 1.5}", 3, "links.host.rate", "such as 100Mbps"),
    ("name: a\nlinks:\n  fabric: {delay: -1}", 3, "links.fabric.delay", "greater than or equal to 0, not -1"),
    ("name: a\nlinks:\n  fabric: {delay: 0.5ns}", 3, "links.fabric.delay", "whole number of ns"),
    ("name: a\nqueues:\n  ecn: {kmin: 4KiB, kmax: 1KiB}", 3, "queues.ecn", "must be above kmin"),
    ("name: a\nqueues:\n  limit: 4KiB", 2, "queues", "must not be above limit"),
    ("name: a\nqueues: {limit: 0}", 2, "queues", "forwards nothing"),
    ("name: a\npath_mtu: 1001", 2, "path_mtu", "multiple of 4"),
    ("name: a\nrouting: {mode: bgp}", 2, "routing.mode", "'structured_ev'"),
    ("name: a\nev: {active: 300}", 2, "ev", "active (300) <= size (128)"),
    ("name: a\nplanes: 3\nev: {size: 128}", 1, "lab", "multiples of the 3 planes"),
    ("name: a\nhosts: 9", 1, "lab", "9 hosts do not fit"),
    ("name: a\nhosts: 6", 1, "lab", "leave a T0 of 4 empty"),
    ("name: a\nt1_per_plane: 0", 1, "lab", "give at least 1"),
    ("name: a\nt0_per_plane: 64\nhosts: 128", 1, "lab", "264 switches"),
    ("name: a\nradix: 3", 1, "lab", "a T0 needs 4 ports, the radix is 3"),
    ("name: a\nmax_oversubscription: 0.5", 1, "lab", "oversubscribed 1:1"),
    ("name: a\noverrides:\n  p0-t0.9--p0-t1.0: {}", 3, "overrides.p0-t0.9--p0-t1.0", "near ones: p0-t0"),
    ("name: a\noverrides:\n  h3:2: {loss: 2}", 3, "overrides.h3:2.loss", "less than or equal to 1, not 2"),
    ("name: a\noverrides:\n  h3:2: {los: 2}", 3, "overrides.h3:2.los", "did you mean 'loss'"),
    ("name: a\nplanes: 2\nplanes: 4", 3, "planes", "given twice"),
    ("name: A lab", 1, "name", "lower-case letters"),
    ("planes: 4", 1, "name", "is required; add 'name: ...'"),
    ("- 1", 1, "", "a lab file is a mapping"),
    ("", 1, "", "a lab file is a mapping"),
    ("name: a\nlinks: [", 2, "", "not YAML"),
    ("name: a\n\tx: 1", 2, "", "not YAML"),
    ("a: &a [*a]", 1, "", ""),
    ("name: a\nplanes: true", 2, "planes", "true is not a value"),
    ("name: a\nmax_oversubscription: .inf", 2, "max_oversubscription", "a finite number is needed, not .inf"),
    ("name: a\nmax_oversubscription: .nan", 2, "max_oversubscription", "a finite number"),
    ("name: a\nmax_oversubscription: 1.0e+400", 2, "max_oversubscription", "a finite number"),
    ("name: a\nmax_oversubscription: 'inf'", 2, "max_oversubscription", "finite number"),
    ("name: a\nhosts: " + "9" * 5001, 2, "hosts", "a number of 5001 digits; at most 40"),
    ("name: a\nhosts: " + "9" * 30, 2, "hosts", "less than or equal to 2048, not 9999"),
    ("name: a\nlinks:\n  host: {rate: '" + "9" * 5000 + "bps'}", 3, "links.host.rate", "less than or equal to"),
    ("name: a\nlinks:\n  host: {rate: '" + "x" * 5000 + "'}", 3, "links.host.rate", "not a rate"),
    ("name: a\nev:\n  size: 8\n  size: 9", 4, "ev.size", "given twice"),
    ("name: a\nplanes: [" + "[" * 20_000, 2, "", "nested deeper than 32"),
    ("name: a\nplanes: " + "{a: " * 20_000, 2, "", "nested deeper than 32"),
    ("name: a\nx:\n" + "- 1\n" * 50_000, 20_000, "", "more than 20000 values"),
    ('name: a\ndescription: "\\e[31m"', 2, "description", "U+001B cannot stand in a text"),
    ('name: a\ndescription: "\\0"', 2, "description", "U+0000"),
    ('name: a\n"\\e[2J": 1', 2, "", "U+001B"),
    ("name: a\ndescription: 2020-01-01", 2, "description", "a timestamp is nothing that can stand here"),
    ("name: a\ndescription: !!python/object:os.system x", 2, "description", "nothing that can stand here"),
    ("name: a\n1: 2", 2, "1", "a key is a word"),
    ("name: a\n---\nname: b", 2, "", "not YAML"),
    (
        "a: &a [x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 8)}]\n" for a, b in itertools.pairwise("abcdefg")),
        2,
        "",
        "aliases make this too large",
    ),
]


@pytest.mark.parametrize(("text", "line", "key", "words"), BAD)
def test_bad_lab_names_file_line_key_and_remedy(text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(LabError) as caught:
        parse_lab(text, "some.yaml")
    message = caught.value.problems[0]
    # Where a file as a whole is too large it does not matter on which line that shows.
    assert message.startswith("some.yaml:" if "too large" in words or "more than" in words else f"some.yaml:{line}:")
    assert len(message) < 450
    assert f"{key}: " in message
    assert words in message
    assert all("\n" not in problem for problem in caught.value.problems)


def test_every_problem_of_a_file_is_told() -> None:
    with pytest.raises(LabError) as caught:
        parse_lab("name: a\nplans: 1\nlinks: {host: {rate: x}}\nseed: -1\n")
    assert len(caught.value.problems) == 3


def test_unknown_lab_names_the_known_ones(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match=r"no lab of that name.*default"):
        load_lab("defalt")
    with pytest.raises(LabError, match="cannot be read"):
        load_lab(tmp_path)
    bad = tmp_path / "x.yaml"
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LabError, match="not UTF-8"):
        load_lab(bad)


@pytest.mark.parametrize(
    "name", ["/dev/zero", "/dev/null", "./pipe", "./socket", "./large", "x" * 5000, "a\0b", "\x1b[31m\n"]
)
def test_what_is_no_file_is_refused_at_once(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    (tmp_path / "large").write_text("name: a\n" + "#" * 1_000_000)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        with pytest.raises(LabError) as caught:
            load_lab(name)
    (message,) = caught.value.problems
    assert message.isprintable()
    assert len(message) < 600, "the name shortened, and the known ones"
    words = {"/dev/zero": "a device", "/dev/null": "a device", "./pipe": "a pipe", "./socket": "a socket"}
    wrong = "larger than 1000000 bytes" if name == "./large" else "no lab of that name"
    assert words.get(name, wrong) in message


@pytest.mark.parametrize(
    "text", ["a: [" + "1," * 499_000, "a: '" + "x" * 900_000 + "'", "[" * 10**6, "a: b\n" * 200_000]
)
def test_a_megabyte_of_anything_is_read_to_an_end(text: str) -> None:
    with pytest.raises(LabError):
        parse_lab(text)


@pytest.mark.parametrize("name", sorted(builtin_labs()))
def test_built_in_labs_are_good(name: str) -> None:
    topology = load_lab(name)
    assert topology.lab.name == name
    assert topology.lab.description
    hosts = topology.lab.hosts
    sources = range(hosts) if hosts < 100 else (0, hosts - 1)
    assert check_routes(topology, sources) >= len(sources) * (hosts - 1) * topology.lab.planes


def test_default_lab_is_the_one_the_demo_promises() -> None:
    lab = load_lab("default").lab
    assert (lab.planes, lab.t0_per_plane, lab.t1_per_plane, lab.hosts) == (4, 4, 2, 8)
    assert lab.oversubscription == 1.0


def test_overrides_change_their_link_only() -> None:
    topology = load_lab("mixed-links")
    slow = topology.links["p0-t0.0--p0-t1.0"]
    assert slow.spec.rate == 5_000_000
    assert slow.spec.delay == topology.lab.links.fabric.delay
    assert topology.links["p1-t0.0--p1-t1.1"].loss == 0.01
    assert topology.links["h3:1"].queue.ecn is None
    assert [link.name for link in topology.links.values() if link.spec.rate == 5_000_000] == [slow.name]


@pytest.mark.parametrize(
    ("text", "value"),
    [("100Mbps", 10**8), ("1.6 Gbps", 1_600_000_000), ("40kbps", 40_000), (7, 7), ("2.5gbps", 2_500_000_000)],
)
def test_rates_parse_with_their_units(text: str | int, value: int) -> None:
    assert parse_rate_bps(text) == value


def test_times_and_sizes_parse_with_their_units() -> None:
    assert parse_time_ns("1.5us") == 1500
    assert parse_time_ns("2ms") == 2_000_000
    assert parse_size_bytes("64KiB") == 65536
    assert parse_size_bytes("9kB") == 9000
    assert format_rate(1_600_000_000) == "1.6 Gb/s"
    assert format_rate(19_999_999.7) == "20 Mb/s"
    assert format_rate(0.2) == "0 b/s"
    assert format_rate(11_666_000_000_000_000) == "11.67 Pb/s"
    assert format_size(65536) == "64 KiB"
    for bad in (True, None, 1.0, "", "5", "5 parsecs", "-5us", "1e3us"):
        with pytest.raises(ValueError, match="such as 5us"):
            parse_time_ns(bad)


KEYS = st.sampled_from([*Lab.model_fields, "host", "rate", "kmin", "h0:0", "mode", "x", 1, None])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2**70) | st.floats() | st.sampled_from(["5us", "1Mbps", "ecmp", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
@settings(max_examples=60)
def test_any_yaml_is_a_lab_or_an_error(data: dict[object, object]) -> None:
    text = yaml.safe_dump({"name": "any"} | data)
    problems = []
    try:
        parse_lab(text)
    except LabError as error:
        problems = error.problems
    assert all(problem.startswith("<lab>") for problem in problems)


@given(st.text(max_size=200))
def test_any_text_is_a_lab_or_an_error(text: str) -> None:
    with contextlib.suppress(LabError):
        parse_lab(text)


@pytest.mark.parametrize("name", sorted(builtin_labs()))
@pytest.mark.parametrize("factor", [0.01, 0.5, 1, 3])
def test_a_lab_at_another_rate_has_queues_for_as_much_time(name: str, factor: float) -> None:
    lab = load_lab(name).lab
    rate = int(lab.links.host.rate * factor)
    other = Lab.model_validate(at_rate(lab, rate))
    assert other.links.host.rate == rate
    assert other.links.fabric.rate == lab.links.fabric.rate * rate // lab.links.host.rate
    packet = other.interface_mtu + 14
    for key, least in (("limit", 8), ("ecn.kmin", 1), ("ecn.kmax", 4), ("trim.threshold", 5)):
        was, now = (operator.attrgetter(key)(each.queues) for each in (lab, other))
        assert now == max(int(was * factor), least * packet)
    unlike = {"links", "queues", "overrides"}
    assert other.model_dump(exclude=unlike) == lab.model_dump(exclude=unlike)
    if factor == 1:
        assert other == lab


def test_overridden_links_follow_the_rate() -> None:
    lab = parse_lab(
        "name: x\noverrides:\n  p0-t0.0--p0-t1.0: {rate: 10Mbps}\n"
        "  p1-t0.0--p1-t1.0:\n    queue: {limit: 1MiB, ecn: null}\n"
    ).lab
    other = Lab.model_validate(at_rate(lab, 2 * lab.links.host.rate))
    assert other.overrides["p0-t0.0--p0-t1.0"].rate == 20_000_000
    queue = other.overrides["p1-t0.0--p1-t1.0"].queue
    assert queue is not None
    assert (queue.limit, queue.ecn) == (2 << 20, None)


@pytest.mark.parametrize("planes", range(1, 9))
def test_default_ev_counts_fit_any_number_of_planes(planes: int) -> None:
    ev = parse_lab(f"name: a\nplanes: {planes}\n").lab.ev
    assert ev.size % planes == ev.active % planes == 0
    assert 128 <= ev.size < 128 + planes
    assert 64 <= ev.active < 64 + planes
    # What is given stays, and the other fits it.
    own = parse_lab(f"name: a\nplanes: {planes}\nev: {{size: {40 * planes + 64 * planes}}}\n").lab.ev
    assert (own.size, own.active) == (104 * planes, ev.active)

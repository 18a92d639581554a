"""Fabrics computed without building them."""

from __future__ import annotations

import pathlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.addressing import Tier
from mrc_topo.plan import CostError, PlanError, bill, compared, load_costs, plan
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology


def test_the_papers_fabric() -> None:
    """131 072 NICs in 8 planes of radix 512 (mrc-protocol.md §9, §11)."""
    result = plan(512, 8)
    multi, single = result.multi_plane, result.three_tier
    assert multi.nics == single.nics == 131_072
    assert multi.switches == {"T0": 8 * 512, "T1": 8 * 256}
    assert multi.links == {"NIC-T0": 8 * 131_072, "T0-T1": 8 * 131_072}
    assert multi.paths_per_pair == 8 * 256
    assert single.radix == 64
    # Three fifths of the switches and two thirds of the optics.
    assert Fraction(multi.total_switches, single.total_switches) == Fraction(3, 5)
    assert Fraction(multi.optics, single.optics) == Fraction(2, 3)
    # "Losing a T0-T1 link costs a node 0.4 %, 3 % in a single-plane network; losing a NIC port 1/planes".
    assert round(float(multi.slowed["T0-T1 link"]) * 100, 1) == 0.4
    assert round(float(single.slowed["T0-T1 link"]) * 100) == 3
    assert multi.lost["NIC port"] == Fraction(1, 8)
    assert single.lost["NIC port"] == 1
    assert "65536" in single.note


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 40))
def test_counts_agree_with_a_built_fabric(half: int, planes: int, nics: int) -> None:
    radix = 2 * half
    nics = min(nics, radix * radix // 2)
    t0 = -(-nics // half)
    try:
        design = plan(radix, planes, nics).multi_plane
    except PlanError:
        assert radix % planes or radix // planes < 2
        return
    lab = Lab.model_validate(
        {
            "name": "built",
            "planes": planes,
            "t0_per_plane": t0,
            "t1_per_plane": 0 if t0 == 1 else half,
            "hosts": nics,
            "hosts_per_t0": half,
            "ev": {"size": 4 * planes, "active": 4 * planes},
        }
    )
    built = Topology(lab)
    assert design.links["NIC-T0"] == sum(link.is_host_link for link in built.links.values())
    assert design.links["T0-T1"] == sum(not link.is_host_link for link in built.links.values())
    assert design.switches["T0"] == sum(switch.tier is Tier.T0 for switch in built.switches)
    # A partial fabric packs its uplinks into fewer, full T1s; the full one has radix/2 of them.
    if t0 == radix:
        assert design.switches["T1"] == sum(switch.tier is Tier.T1 for switch in built.switches)
    assert design.switches["T1"] * radix >= design.links["T0-T1"]


@pytest.mark.parametrize(
    ("radix", "planes", "nics", "words"),
    [
        (0, 8, None, "radix 0"),
        (511, 8, None, "even number"),
        (512, 0, None, "0 planes"),
        (64, 3, None, "does not divide into 3 planes"),
        (64, 8, 0, "0 NICs"),
        (64, 8, 3000, "connect 1 to 2048"),
    ],
)
def test_plan_refuses_numbers_that_no_fabric_can_have(radix: int, planes: int, nics: int | None, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(radix, planes, nics)


def test_one_plane_beside_itself() -> None:
    """With one plane the T0s of both designs are the same, and the third tier is what is added."""
    result = plan(64, 1)
    assert result.multi_plane.switches["T0"] == result.three_tier.switches["T0"]
    assert result.multi_plane.total_switches < result.three_tier.total_switches
    assert result.multi_plane.lost["NIC port"] == 1
    assert result.three_tier.note == ""


def test_as_dict_is_plain() -> None:
    data = plan(512, 8).multi_plane.as_dict()
    assert data["total_switches"] == 6144
    assert data["lost"]["NIC port"] == 0.125


def test_a_bill_adds_up_and_follows_its_inputs() -> None:
    costs = load_costs()
    result = plan(512, 8)
    multi, single = (bill(design, costs) for design in (result.multi_plane, result.three_tier))
    # 51.2 Tb/s each, of either design.
    assert multi.switch_kw == pytest.approx(6144 * 51.2 * costs.switch_watts_per_tbps / 1000)
    assert multi.transceiver_usd == 524_288 * costs.transceiver_usd
    assert multi.usd / single.usd == pytest.approx(
        (6144 * 51.2 * costs.switch_usd_per_tbps + 524_288 * costs.transceiver_usd)
        / (10240 * 51.2 * costs.switch_usd_per_tbps + 786_432 * costs.transceiver_usd)
    )
    assert multi.electricity_usd == pytest.approx(multi.kw * costs.pue * 8760 * costs.usd_per_kwh)
    dearer = costs.model_copy(update={"transceiver_usd": 2 * costs.transceiver_usd})
    assert bill(result.multi_plane, dearer).usd == multi.usd + multi.transceiver_usd


def test_designs_are_compared_and_pairs_that_cannot_be_are_left_out() -> None:
    found = compared("4, 512 x 4,8", 32)
    assert [(design.radix, design.planes) for design in found] == [(512, 4), (512, 8)]
    for text, told in (
        ("512", "two lists"),
        ("a x 4", "two lists"),
        ("4 x 8", "no pair"),
        ("2," * 50 + "2x1,2", "100 at"),
    ):
        with pytest.raises(PlanError, match=told):
            compared(text, 10_000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pue: 1", "nic_gbps: is required"),
        ("pue: 0.5", "c.yaml:1: pue: "),
        ("prize: 1", "prize: unknown key"),
        ("[", "not"),
    ],
)
def test_costs_that_cannot_be_are_named(tmp_path: pathlib.Path, text: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(CostError, match=told):
        load_costs(tmp_path / "c.yaml")
    with pytest.raises(CostError, match="cannot be read"):
        load_costs(tmp_path / "none.yaml")

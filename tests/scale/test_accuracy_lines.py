"""What `mrclab scale` says of its accuracy: which figure is of all runs, and which of the case at hand."""

from mrc_cli.scale import _accuracy
from mrc_scale import limits
from mrc_scale.caveat import caveat
from mrc_scale.clusterfile import parse_cluster

CLUSTER = "name: c\nradix: 16\nplanes: 4\nnics: 64\nev: {size: 32, active: 16}\njobs: [{name: j}]\n"


def test_without_a_limit_only_the_calibration_is_quoted() -> None:
    assert list(_accuracy(parse_cluster(CLUSTER))) == [caveat()]


def test_the_figures_of_limits_are_said_to_be_of_other_cases() -> None:
    loaded = parse_cluster(CLUSTER.replace("radix: 16", "radix: 16\ntiers: 3"))
    first, between, *cases = list(_accuracy(loaded))
    assert first == caveat()
    assert "the calibration's fabrics" in between
    assert "may be off by more" in between
    assert limits.PAGE in between
    assert [case.strip() for case in cases] == limits.limits_of(loaded)
    assert cases

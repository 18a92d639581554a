"""Verbs of the fluid model in `mrclab --help`."""

from __future__ import annotations

from mrclab.cli.verbs import Group, Verb

VERBS = {
    "validate": Verb(
        Group.LEARN,
        "Compare packets with a fluid model, closed forms and uet-htsim on a fixed suite.",
        ("mrclab validate --list", "mrclab validate incast-8 --seeds 2"),
        "mrc_fluid.cli_validate",
    ),
    "scale": Verb(
        Group.SCALE,
        "Simulate a whole cluster with its jobs and failures in a fluid model.",
        ("mrclab scale --list", "mrclab scale cluster-131k"),
        "mrc_fluid.cli_scale",
    ),
    "replay": Verb(
        Group.SCALE,
        "Run a trace or a generated step of training on the fluid model of a cluster, or of a lab's fabric.",
        ("mrclab replay --list", "mrclab replay --set model=gpt3-175b --cluster cluster-16k"),
        "mrc_fluid.cli_replay",
    ),
}

"""The README of the suite's folder: every column with its unit, how to repeat it, and with what it was made."""

from __future__ import annotations

from mrc_fluid.validation.check import SAME
from mrc_fluid.validation.differences import POINTS_BOUND, RELATIVE_BOUND
from mrc_fluid.validation.suite import SuiteResult
from mrc_fluid.validation.summary import SUMMARY, Software, SuiteSummary
from mrclab.studies.cells.pages import has_parquet

_RUN = {
    "scenario": "name of the scenario (`mrclab validate --list`)",
    "backend": "what ran it: packets, fluid or htsim",
    "seed": "seed of the run; it draws flows, EVs and marks",
}
_QUANTITY = {"quantity": "what was measured, with its unit", "value": "in the unit that `quantity` names"}
#: The columns of each table, in their order, with units.
COLUMNS: dict[str, dict[str, str]] = {
    "flows": _RUN
    | {
        "flow": "number of the flow in the run, from 0",
        "source": "number of the host that sends",
        "target": "number of the host that receives",
        "bytes": "payload, bytes",
        "start_us": "start, µs of simulated time",
        "completion_us": "from its start until all of it is acknowledged, µs",
    },
    "values": _RUN | _QUANTITY,
    "variants": {
        "variant": "algorithm that stands for MRC's own",
        "part": "what it replaces: sprayer or control (congestion control)",
        "scenario": _RUN["scenario"],
        "seed": _RUN["seed"],
    }
    | _QUANTITY,
    "differences": {
        "scenario": _RUN["scenario"],
        "backend": "the other backend: fluid or htsim",
        "quantity": _QUANTITY["quantity"],
        "packets": "mean over the seeds by packets, in the quantity's unit",
        "other": "mean over the seeds by the other backend, in the quantity's unit",
        "off": "other against packets: relative (0.05 is 5 %), or percentage points for shares of packets",
        "bound": "from here on a cause is asked for, as `off`",
        "beyond": "whether `off` is beyond the bound",
        "cause": "what a run shows to be the cause; empty within the bound, or where none is known",
        "corrected": "`off` with the bytes of headers taken into account, where they count",
    },
    "closed-forms": {
        "scenario": _RUN["scenario"],
        "what": "what is compared, with its unit",
        "bound": "`equal` or `at most`",
        "expected": "by the closed form",
        "measured": "mean over the seeds by packets",
        "tolerance": "relative",
        "holds": "whether the measured value is as it must be",
    },
}


def text(made: SuiteResult, document: SuiteSummary, command: str) -> str:
    """Return the README as Markdown."""
    kind = "Parquet, and CSV beside it" if has_parquet() else "CSV (pyarrow is not installed, so there is no Parquet)"
    seeds = ", ".join(map(str, made.plan.seeds))
    tables = "\n\n".join(
        f"### `{name}`\n\n| column | what |\n|---|---|\n"
        + "\n".join(f"| `{column}` | {what} |" for column, what in columns.items())
        for name, columns in COLUMNS.items()
        if name != "variants" or made.variant_values
    )
    return f"""# Validation of mrclab: {len(made.plan.scenarios)} scenarios, seeds {seeds}

Packets are simulated with the endpoints and P4 switches of mrclab, in simulated time. The fluid model is that of
`mrclab scale`. uet-htsim is not part of mrclab: build `htsim_uec` from its sources and name it with `--htsim`.

Beyond the bound and without a cause: {len(made.unexplained)} of {len(made.differences)} differences.

## Repeat it

All of it takes minutes on a laptop, and less than an hour on one core:

    {command}

Check these numbers with a sample (one scenario, one seed; seconds), or with all:

    mrclab validate --check FOLDER incast-8 --seeds 1
    mrclab validate --check FOLDER

It runs them in a folder of its own, and ends with 1 if a value differs. With the same sources every value must be equal
(relative {SAME:g}). With other sources means over the same seeds may differ by {RELATIVE_BOUND:.0%}, shares of
packets by {POINTS_BOUND:g} percentage point, or by the 95 % confidence interval if that is wider.

## Made with

{_software(document.software)}
## Files

| file | what |
|---|---|
| `{SUMMARY}` | all of the below but the flows, for programs |
| `index.html`, `plots` | the same for readers |
| `htsim` | input and output of uet-htsim, where it ran |
| `runs` | results of the runs by packets; a run that is here is not repeated |

Tables ({kind}):

{tables}
"""


def _software(made: Software) -> str:
    commit = "no git checkout" if made.commit is None else made.commit + (" with changes" if made.changed else "")
    rows = {
        "mrclab": made.mrclab,
        "commit": commit,
        "sources (SHA-256)": made.sources,
        "Python": made.python,
        "packages": ", ".join(f"{name} {version}" for name, version in made.packages.items()),
        "machine": f"{made.system}, {made.processor}, {made.cpus} processors",
    }
    return "| what | version |\n|---|---|\n" + "".join(f"| {key} | {value} |\n" for key, value in rows.items())

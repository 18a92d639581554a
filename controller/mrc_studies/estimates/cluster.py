"""What a cluster takes in the fluid model: `mrclab scale` without running it.

`python -m benchmarks scale` measured the costs; they are per queue pair, plane and steady state.
"""

from __future__ import annotations

from mrc_scale import jobs, timeline
from mrc_scale.clusterfile import Loaded
from mrc_studies.estimates.estimate import Estimate, Machine, Part, Share, memory_warnings

#: CPU seconds of imports, of loading compiled loops, and of a report.
IMPORTS_S, KERNELS_S, REPORT_S = 1.2, 0.2, 0.12
#: CPU seconds of a run: in all, and for each queue pair in each plane in each steady state, with this many active EVs.
RUN_S, SHARE_S, ACTIVE = 0.33, 2.9e-6, 16
#: Resident bytes: in all, and for each queue pair at 256 EVs.
BASE_BYTES, PAIR_BYTES = 285e6, 3.2e3
#: EVs to which `PAIR_BYTES` belongs.
EVS = 256
#: The share of a run that its threads do at the same time on several cores.
PARALLEL = 0.6
SOURCE = "measured by python -m benchmarks scale, scaled to this machine's speed"


def estimate(loaded: Loaded, machine: Machine) -> Estimate:
    """Return what a cluster will take in the fluid model."""
    cluster, shape = loaded.cluster, loaded.shape
    pairs = jobs.count(cluster.jobs, shape.nics)
    states = len(timeline.times(cluster, list(loaded.events)))
    # A plane with more active EVs takes as much as several.
    units = pairs * max(shape.planes, cluster.ev.active // ACTIVE) * states
    running = machine.slowness * (RUN_S + SHARE_S * units)
    parts = [
        Part("imports", machine.slowness * IMPORTS_S),
        Part("start", machine.slowness * KERNELS_S),
        Part("simulate", running),
        Part("report", machine.slowness * REPORT_S),
    ]
    cpu = sum(part.cpu_seconds for part in parts)
    memory = BASE_BYTES + PAIR_BYTES * pairs * max(cluster.ev.size / EVS, 0.25)
    warnings = memory_warnings(memory, machine, "use fewer NICs, or peers of an all-to-all")
    wall = cpu - running * PARALLEL * (1 - 1 / machine.cores)
    return Estimate(
        name=cluster.name,
        level="fluid model",
        lab=cluster.name,
        hosts=shape.nics,
        switches=shape.planes * (shape.t0s + shape.all_t1s + shape.t2s),
        simulated_seconds=cluster.duration / 1e9,
        messages=0,
        data_packets=0,
        hops=0,
        payload_bytes=0,
        goodput_bps=0,
        extrapolated=0,
        parts=parts,
        cpu_seconds=cpu,
        wall_seconds=wall * machine.waiting,
        memory_bytes=memory,
        cores=cpu / wall,
        dominates=[
            Share("simulate", "queue pairs x planes x steady states", units, machine.slowness * SHARE_S * units)
        ],
        fits=not warnings,
        warnings=warnings,
        costs=SOURCE,
        assumptions=["the loops are compiled already; the first run compiles them, about 10 s of CPU"],
        machine=machine,
    )

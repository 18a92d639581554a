"""The fluid model of whole clusters: what `mrclab scale` takes by the number of NICs, each size in its own process.

The fabric grows with its NICs as `mrclab topo plan` has it, with the same planes, EVs and failures as `cluster-131k`.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import scaled
from benchmarks.child import measured

#: NICs, and the radix that connects this number in two tiers.
SIZES = scaled(((8_192, 128), (32_768, 256), (131_072, 512)), ((2_048, 64),))
FAILURES = [{"at": "2s", "fail": "p1-t1.7", "for": "4s"}, {"at": "4s", "fail": "links", "count": 100, "for": "2s"}]


def measure(nics: int, radix: int) -> dict[str, Any]:
    """One run in this process."""
    import pathlib
    import resource
    import tempfile

    from mrc_fluid.calibration import produce
    from mrc_fluid.clusterfile import load_cluster

    loaded = load_cluster("cluster-131k", {"nics": nics, "radix": radix, "failures": FAILURES})
    compiled = produce.load_kernels()
    began, cpu = time.monotonic(), time.process_time()
    made = produce.run(loaded, compiled)
    ran = time.process_time() - cpu
    with tempfile.TemporaryDirectory() as folder:
        produce.write(made, pathlib.Path(folder))
    return {
        "cpu": ran,
        "whole": time.process_time() - cpu,
        "wall": time.monotonic() - began,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "steps": len(made.result.steps),
        "lost": sum(step.lost for step in made.result.steps),
    }


def run() -> None:
    """Print the table; the first, smallest run also compiles what is not compiled yet and is done again."""
    measured("bench_scale", *SIZES[0])
    columns = ("CPU s", "µs CPU/NIC", "with report s", "wall s", "memory MB", "steps")
    print(f"{'NICs':>10}" + "".join(f"{column:>15}" for column in columns))
    for nics, radix in SIZES:
        found = measured("bench_scale", nics, radix)
        cells = (
            f"{found['cpu']:.1f}",
            f"{1e6 * found['cpu'] / nics:.0f}",
            f"{found['whole']:.1f}",
            f"{found['wall']:.1f}",
            f"{found['memory']:.0f}",
            f"{found['steps']}",
        )
        print(f"{nics:>10}" + "".join(f"{cell:>15}" for cell in cells))

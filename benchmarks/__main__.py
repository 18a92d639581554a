"""Run every `bench_*.py` beside this file, or those named: `python -m benchmarks compiler switch`.

`--smoke` runs all of their code with next to no work, to see that they still run.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import sys


def main() -> int:
    """Each benchmark module offers `run() -> None` and prints its own table."""
    here = pathlib.Path(__file__).parent
    known = sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    wanted = [name for name in sys.argv[1:] if name != "--smoke"] or known
    if "--smoke" in sys.argv:
        # Read when a benchmark is imported, by its processes too.
        os.environ["MRCLAB_SMOKE"] = "1"
    for name in wanted:
        if name not in known:
            print(f"no benchmark '{name}'; known: {', '.join(known)}", file=sys.stderr)
            return 2
    for name in wanted:
        importlib.import_module(f"benchmarks.bench_{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

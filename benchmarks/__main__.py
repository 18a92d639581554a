"""Runs every `bench_*.py` beside this file, or those named: `python -m benchmarks compiler switch`."""

from __future__ import annotations

import importlib
import pathlib
import sys


def main() -> int:
    """Each benchmark module offers `run() -> None` and prints its own table."""
    here = pathlib.Path(__file__).parent
    known = sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    wanted = sys.argv[1:] or known
    for name in wanted:
        if name not in known:
            print(f"no benchmark '{name}'; known: {', '.join(known)}", file=sys.stderr)
            return 2
    for name in wanted:
        importlib.import_module(f"benchmarks.bench_{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One rank of a job: `python -m mrc_torch.train CONFIGURATION` (JSON).

`job` is train or perf; `rank`, `size`, `backend` (gloo or mrc), `store` (a file that all ranks see), `timeout_s`; the
rest is the job's own. Exit code 1: the job failed, as its last line says; 2: unusable configuration; 3: the
process that started it is gone.
"""

from __future__ import annotations

import json
import os
import sys

from mrc_torch.train.orders import OrderReader, say


def plain(error: Exception) -> str:
    """Return an error in one line, without the wrappers and the trace that torch's futures put around it."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    inner = text.rpartition("Got the following error when running the callback: ")[2]
    return inner.partition(" At: ")[0]


def main(argv: list[str]) -> int:
    """Run the program; return its exit code."""
    try:
        config = json.loads(argv[0])
    except (IndexError, ValueError) as error:
        print(f"unusable configuration: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    orders = OrderReader()
    import torch

    from mrc_torch.train import groups, operations, training

    torch.set_num_threads(1)
    say("ready")
    orders.wait()
    try:
        groups.join(config)
        {"train": training, "perf": operations}[config["job"]].run(config, orders)
    except Exception as error:  # noqa: BLE001 - whatever ends a rank is reported; the job ends by it
        say("error", text=plain(error)[:600])
        return 1
    orders.wait()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Threads of a backend may still wait for peers that are gone.
    os._exit(code)

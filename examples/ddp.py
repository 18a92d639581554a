"""Data-parallel training of a small network on scikit-learn's digits: `ddp.py MEET RANKS RANK`, one rank on each host.

Every rank has its share of each batch; after each step all have the same weights. It prints the loss of each step at
rank 0, and what ended the job at the others, if something did.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mrc_torch  # noqa: F401 - makes the backend known

BATCH = 64


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("meet", help="a file that all ranks can reach and that is not there yet, like /run/lab/job")
    parser.add_argument("ranks", type=int)
    parser.add_argument("rank", type=int)
    parser.add_argument("--backend", default="mrc", help="of torch.distributed (%(default)s)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=64, help="of the hidden layer (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    dist.init_process_group(
        options.backend, init_method=f"file://{options.meet}", world_size=options.ranks, rank=options.rank
    )
    network = nn.Sequential(nn.Linear(64, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))
    print(json.dumps({"rank": options.rank, "pid": os.getpid()}), flush=True)
    for step in range(options.steps):
        began = time.monotonic()
        at = step * BATCH % (len(order) - BATCH)
        share = order[at + options.rank : at + BATCH : options.ranks]
        loss = nn.functional.cross_entropy(model(pixels[share]), labels[share])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total, dist.ReduceOp.SUM)
        if options.rank == 0:
            said = {"step": step, "loss": total.item() / options.ranks, "seconds": time.monotonic() - began}
            print(json.dumps(said), flush=True)
        time.sleep(options.pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""One rank of a job with FSDP2: `fsdp_job.py MEET RANKS RANK`; prints its losses, and those of one process alone."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import mrc_torch  # noqa: F401

STEPS = 5
BATCH = 8


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 33), nn.Tanh(), nn.Linear(33, 7), nn.LayerNorm(7), nn.Linear(7, 1))


def train(model: nn.Module, rows: torch.Tensor, share: float) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach() * share)
    return losses


def main() -> None:
    meet, ranks, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=f"file://{meet}", world_size=ranks, rank=rank)
    rows = torch.rand(BATCH * ranks, 10, generator=torch.Generator().manual_seed(2))
    model = network()
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = train(model, rows[rank * BATCH : (rank + 1) * BATCH], 1 / ranks)
    for loss in losses:
        dist.all_reduce(loss)
    subgroup = dist.new_group([0, ranks - 1])
    if rank in (0, ranks - 1):
        told: list[object] = [None, None]
        dist.all_gather_object(told, {"rank": rank}, group=subgroup)
        assert told == [{"rank": 0}, {"rank": ranks - 1}]
    alone = [loss.item() for loss in train(network(), rows, 1.0)]
    print(json.dumps({"fsdp": [loss.item() for loss in losses], "alone": alone}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

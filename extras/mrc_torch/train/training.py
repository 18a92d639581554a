"""Training by DistributedDataParallel: step by step, each reported; checkpoints; an end that all ranks share."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from mrc_torch.train import models
from mrc_torch.train.orders import OrderReader, say

#: Gradients are reduced in buckets of this many MB, small as models are here: there shall be some to overlap.
BUCKET_MB = 0.125


class Times:
    """How long each bucket's all-reduce took (ns), from when it was ready to when its result was there."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def hook(self, state: object, bucket: dist.GradBucket) -> Future[Tensor]:
        """Compute DDP's own mean over ranks, and measure how long it takes."""
        begin = time.monotonic_ns()
        buffer = bucket.buffer().div_(dist.get_world_size())
        future = dist.all_reduce(buffer, async_op=True).get_future()

        def ended(done: Future[list[Tensor]]) -> Tensor:
            value = done.value()[0]
            self.taken.append(time.monotonic_ns() - begin)
            return value

        made: Future[Tensor] = future.then(ended)
        return made


def run(config: Mapping[str, Any], orders: OrderReader) -> None:
    """Train until `steps` are done (null: until the order `stop_after`), from the checkpoint on if there is one."""
    task = models.make(config["model"], int(config["seed"]))
    model = task.model
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    times = Times()
    # DDP looks at a hook's annotations, and takes none that are text.
    ddp.register_comm_hook(None, lambda state, bucket: times.hook(state, bucket))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=task.learning_rate, momentum=0.9)
    file = pathlib.Path(config["checkpoint"])
    step = _resume(file, model, optimizer) if config["resume"] else 0
    rank, size, batch = int(config["rank"]), int(config["size"]), int(config["batch"])
    limit: int | None = config["steps"]
    rows = models.batches(len(task.inputs), size, rank, batch, int(config["seed"]), step)
    say("connected", step=step, unit=task.unit, per_step=task.per_sample * batch * size)
    orders.wait()
    while True:
        while (order := orders.look()) is not None:
            if order.get("hold"):
                # No rank begins the step behind this one without this rank.
                say("held", step=step)
                order = orders.wait()
            limit = int(order["stop_after"])
        if limit is not None and step >= limit:
            break
        begin = time.monotonic_ns()
        times.taken.clear()
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(ddp, next(rows))
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        end = time.monotonic_ns()
        step += 1
        reduced = list(times.taken)
        say("step", step=step, begin_ns=begin, end_ns=end, loss=float(mean) / size, all_reduce_ns=reduced)
        if rank == 0 and step % int(config["checkpoint_every"]) == 0:
            _keep(file, step, model, optimizer)
    orders.done(step=step, accuracy=task.accuracy(model))


def _keep(file: pathlib.Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    part = file.with_suffix(".part")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part)
    os.replace(part, file)


def _resume(file: pathlib.Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the step of the checkpoint; 0 without one."""
    with contextlib.suppress(FileNotFoundError):
        kept = torch.load(file, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        return int(kept["step"])
    return 0

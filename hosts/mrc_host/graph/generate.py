"""3-D parallel training of a model as a graph: data, tensor, pipeline and expert parallelism.

Ranks are NICs, tensor parallelism the fastest to vary, then data, then pipeline: rank = (stage x data + replica) x
tensor + part. A step is `micro_batches` forwards and backwards in the order 1F1B. A backward computes twice what a
forward does. Activations go from stage to stage, each tensor-parallel part sending its share (sequence parallelism).
Experts exchange tokens before and after each MLP, forward and backward. In the last backward gradients are reduced
bucket by bucket, each while the next is computed. Computation takes FLOPs over the GPU's rate and its utilisation.

What is left out: interleaved stages, recomputation of activations, sharded optimisers, the optimiser's own time, and
NICs that are not on the GPUs' side of a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrc_host.graph.collectives import split
from mrc_host.graph.graph import (
    Collective,
    CollectiveKind,
    Compute,
    Graph,
    GraphError,
    GraphProgram,
    Ints,
    Node,
    Receive,
    Send,
)

#: Bytes of a parameter, an activation and a gradient: BF16.
WORD = 2


@dataclass(frozen=True)
class ModelShape:
    """A transformer: `kv_heads` of grouped-query attention, `ffn` the inner width of an MLP, `gated` MLPs with three
    matrices (SwiGLU), `experts` per layer of which each token takes `chosen`, `sequence` tokens, `source` of the shape.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool
    source: str
    experts: int = 1
    chosen: int = 1

    @property
    def attention(self) -> int:
        """Parameters of a layer's attention: queries, keys, values, output."""
        return 2 * self.hidden * self.hidden * (self.heads + self.kv_heads) // self.heads

    @property
    def expert(self) -> int:
        """Parameters of one MLP."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of the output layer."""
        return self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All parameters, with an output layer of its own."""
        return self.layers * (self.attention + self.experts * self.expert) + 2 * self.embedding

    def layer_flops(self, sequence: int) -> float:
        """Return FLOPs of a token in one layer, forward: two per active parameter, and scores and values of attention
        over the whole sequence (no saving for its causal half)."""
        return 2.0 * (self.attention + self.chosen * self.expert) + 4.0 * sequence * self.hidden


_GPT3 = "Brown et al., Language Models are Few-Shot Learners, 2020, Table 2.1"
_LLAMA3 = "Llama Team, The Llama 3 Herd of Models, 2024, Table 3"
_MIXTRAL = "Jiang et al., Mixtral of Experts, 2024, Table 1"

MODELS = {
    "gpt3-6.7b": ModelShape(32, 4096, 32, 32, 16384, 50257, 2048, False, _GPT3),
    "gpt3-175b": ModelShape(96, 12288, 96, 96, 49152, 50257, 2048, False, _GPT3),
    "llama3-8b": ModelShape(32, 4096, 32, 8, 14336, 128000, 8192, True, _LLAMA3),
    "llama3-70b": ModelShape(80, 8192, 64, 8, 28672, 128000, 8192, True, _LLAMA3),
    "llama3-405b": ModelShape(126, 16384, 128, 8, 53248, 128000, 8192, True, _LLAMA3),
    "mixtral-8x7b": ModelShape(32, 4096, 32, 8, 14336, 32000, 8192, True, _MIXTRAL, 8, 2),
    "mixtral-8x22b": ModelShape(
        56, 6144, 48, 8, 16384, 32768, 8192, True, "Mistral AI, config of Mixtral-8x22B-v0.3, 2024", 8, 2
    ),
}


#: Tags of messages from stage to stage.
FORWARD, BACKWARD = 0, 1


def order(stage: int, stages: int, micro_batches: int) -> list[tuple[bool, int]]:
    """Return the schedule of a stage in a step, 1F1B: (forward or backward, micro batch)."""
    warm = min(stages - 1 - stage, micro_batches)
    rows = [(True, micro) for micro in range(warm)]
    for micro in range(micro_batches - warm):
        rows += [(True, warm + micro), (False, micro)]
    return rows + [(False, micro) for micro in range(micro_batches - warm, micro_batches)]


@dataclass(frozen=True)
class Parallelism:
    """How a model is trained. `tensor`, `pipeline`, `data`, `experts`: degrees; `experts` divides `data`.

    `micro_batch`: sequences of one; `global_batch`: sequences of a step (0: as `micro_batches` has it); `buckets` of
    gradients; `exchanges`: exchanges of experts (and of tensors over the fabric) per pass of a stage, each of as many
    layers together (0: one per layer); `gpus_per_nic`: GPUs of a tensor-parallel group that share a NIC.
    """

    model: str
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: int = 1
    micro_batches: int = 8
    micro_batch: int = 1
    global_batch: int = 0
    sequence: int = 0
    layers: int = 0
    buckets: int = 4
    exchanges: int = 0
    gpus_per_nic: int = 1
    tensor_over: str = "nvlink"
    nvlink_gbps: int = 3600
    gpu_tflops: int = 989
    utilisation_percent: int = 40

    @property
    def shape(self) -> ModelShape:
        """The model's shape.

        Raises:
            GraphError: no model has this name.
        """
        if self.model not in MODELS:
            raise GraphError(f"no model '{self.model[:60]}'; known: {', '.join(MODELS)}")
        return MODELS[self.model]

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.tensor * self.pipeline * self.data

    @property
    def depth(self) -> int:
        """Layers of the model."""
        return self.layers or self.shape.layers

    @property
    def micros(self) -> int:
        """Micro batches of a step and replica."""
        if not self.global_batch:
            return self.micro_batches
        return self.global_batch // (self.data * self.micro_batch)

    def check(self) -> None:
        """Check that the degrees fit the model and each other.

        Raises:
            GraphError: they do not; names the parameter.
        """
        shape = self.shape
        ones = ("tensor", "pipeline", "data", "experts", "micro_batches", "micro_batch", "buckets", "gpus_per_nic")
        for name in (*ones, "nvlink_gbps", "gpu_tflops", "utilisation_percent"):
            if getattr(self, name) < 1:
                raise GraphError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.tensor_over not in ("nvlink", "fabric"):
            raise GraphError(f"tensor_over is nvlink or fabric, not '{self.tensor_over[:40]}'")
        if self.utilisation_percent > 100:
            raise GraphError(f"utilisation_percent is 100 at most, not {self.utilisation_percent}")
        if self.pipeline > self.depth:
            raise GraphError(f"pipeline: {self.pipeline} stages of {self.depth} layers; at most one stage a layer")
        if self.tensor > shape.heads or shape.heads % self.tensor:
            raise GraphError(f"tensor: {self.tensor} parts of {shape.heads} attention heads; use a divisor")
        if self.tensor % self.gpus_per_nic:
            raise GraphError(
                f"gpus_per_nic: {self.gpus_per_nic} GPUs of groups of {self.tensor}; use a divisor of tensor"
            )
        if self.data % self.experts or shape.experts % self.experts:
            text = f"{self.experts} ranks share {shape.experts} experts of {self.data} replicas"
            raise GraphError(f"experts: {text}; use a divisor of both")
        if self.global_batch and self.global_batch % (self.data * self.micro_batch):
            text = f"{self.data} replicas of micro batches of {self.micro_batch}"
            raise GraphError(f"global_batch: {self.global_batch} sequences cannot be divided over {text}")


@dataclass(frozen=True)
class _Stage:
    """What a stage costs: ns of a forward, bytes over links, and its parameters by who reduces them."""

    number: int
    layers: int
    forward_ns: float
    nvlink_ns: float
    dense_bytes: int
    expert_bytes: int


def generate(plan: Parallelism) -> Graph:
    """Return a step of training.

    Raises:
        GraphError: the parameters make none.
    """
    plan.check()
    parts, stages = plan.tensor // plan.gpus_per_nic, plan.pipeline
    per_stage = plan.data * parts
    ranks = np.arange(stages * per_stage)
    # [stage, replica, part]
    grid = ranks.reshape(stages, plan.data, parts)
    replicas = np.moveaxis(grid, 1, 2).reshape(-1, plan.data)
    teams = replicas.reshape(-1, plan.data // plan.experts, plan.experts)
    groups = {
        "data": replicas,
        "experts": teams.reshape(-1, plan.experts),
        "replicas": np.moveaxis(teams, 1, 2).reshape(-1, plan.data // plan.experts),
        "tensor": grid.reshape(-1, parts),
    }
    depths = split(plan.depth, stages)
    programs = []
    for number in range(stages):
        own = grid[number].ravel()
        programs.append(GraphProgram(own, _program(plan, _stage(plan, number, int(depths[number])), own, per_stage)))
    name = f"{plan.model} on {plan.gpus} GPUs"
    return Graph(len(ranks), programs, groups, name)


def _stage(plan: Parallelism, number: int, layers: int) -> _Stage:
    """Return what a stage of this many layers costs."""
    shape, nic = plan.shape, plan.gpus_per_nic
    sequence = plan.sequence or shape.sequence
    tokens = plan.micro_batch * sequence
    flops = tokens * layers * shape.layer_flops(sequence)
    outer = 0
    if number == 0:
        outer += shape.embedding
    if number == plan.pipeline - 1:
        outer += shape.embedding
        flops += 2.0 * tokens * shape.embedding
    rate = plan.gpu_tflops * 1e12 * plan.utilisation_percent / 100
    # Two all-reduces a layer of the activations, as a ring among the GPUs of a node.
    moved = layers * 2 * 2 * (plan.tensor - 1) / plan.tensor * tokens * shape.hidden * WORD
    dense = (layers * shape.attention + outer) * nic // plan.tensor
    expert = layers * shape.experts * shape.expert * nic // (plan.tensor * plan.experts)
    if plan.experts == 1:
        dense, expert = dense + expert, 0
    nvlink_ns = moved * 8 / plan.nvlink_gbps if plan.tensor_over == "nvlink" else 0.0
    return _Stage(number, layers, flops / plan.tensor / rate * 1e9, nvlink_ns, dense * WORD, expert * WORD)


class _Making:
    """A stage's operations in the making; computations follow each other."""

    def __init__(self, plan: Parallelism, stage: _Stage, own: Ints, per_stage: int) -> None:
        self.plan, self.stage, self.own, self.per_stage = plan, stage, own, per_stage
        self.nodes: list[Node] = []
        self.last: list[int] = []
        shape = plan.shape
        tokens = plan.micro_batch * (plan.sequence or shape.sequence) * plan.gpus_per_nic // plan.tensor or 1
        self.transfer = tokens * shape.hidden * WORD
        self.exchanged = tokens * shape.chosen * shape.hidden * WORD
        self.reduced = plan.micro_batch * (plan.sequence or shape.sequence) * shape.hidden * WORD
        self.groups = min(plan.exchanges or stage.layers, stage.layers)

    def add(self, node: Node) -> int:
        """Add a node; return its number."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def compute(self, ns: float, label: str = "compute") -> None:
        """Compute next, after what came last."""
        if round(ns):
            made = Compute(after=self.last, ns=round(ns), label=label, counts=label == "compute")
            self.last = [self.add(made)]

    def together(self, size: int, groups: str, kind: CollectiveKind) -> None:
        """Take part in a collective next, and go on when it has ended."""
        self.last = [self.add(Collective(after=self.last, kind=kind, size=size, groups=groups))]

    def layers(self, ns: float) -> None:
        """Compute all layers of a pass, with their exchanges."""
        plan, stage = self.plan, self.stage
        many = stage.layers // self.groups
        tensor = plan.tensor_over == "fabric" and plan.tensor > 1
        if not tensor and plan.experts == 1:
            self.compute(stage.nvlink_ns, "tensor_parallel")
            self.compute(ns)
            return
        for _ in range(self.groups):
            self.compute(stage.nvlink_ns / self.groups, "tensor_parallel")
            self.compute(ns / self.groups / 2)
            if plan.experts > 1:
                self.together(self.exchanged * many, "experts", CollectiveKind.ALL_TO_ALL)
            if tensor:
                self.together(self.reduced * many, "tensor", CollectiveKind.ALL_REDUCE)
            self.compute(ns / self.groups / 2)
            if plan.experts > 1:
                self.together(self.exchanged * many, "experts", CollectiveKind.ALL_TO_ALL)
            if tensor:
                self.together(self.reduced * many, "tensor", CollectiveKind.ALL_REDUCE)

    def run(self, forward: bool, last: bool) -> None:
        """Add a forward or backward of a micro batch; the `last` one ends with the gradients."""
        plan, stage = self.plan, self.stage
        step = self.per_stage if forward else -self.per_stage
        tag = FORWARD if forward else BACKWARD
        stages = range(plan.pipeline)
        if stage.number + (-1 if forward else 1) in stages:
            got = self.add(Receive(peers=self.own - step, size=self.transfer, tag=tag))
            self.last = [*self.last, got]
        ns = stage.forward_ns * (1 if forward else 2)
        buckets = plan.buckets if last else 0
        if buckets:
            self._gradients(ns, buckets)
        else:
            self.layers(ns)
        if stage.number + (1 if forward else -1) in stages:
            self.add(Send(after=self.last, peers=self.own + step, size=self.transfer, tag=tag))

    def _gradients(self, ns: float, buckets: int) -> None:
        """Compute the last backward in as many parts as there are buckets, and reduce each behind the next."""
        stage = self.stage
        dense, expert = (split(each, buckets) for each in (stage.dense_bytes, stage.expert_bytes))
        before: list[int] = []
        exchanging = self.plan.experts > 1 or (self.plan.tensor_over == "fabric" and self.plan.tensor > 1)
        for number in range(buckets):
            # Layers are exchanged whole: where they exchange, their backward comes first, and buckets follow it.
            if exchanging and number == 0:
                self.layers(ns)
            elif not exchanging:
                self.compute(stage.nvlink_ns / buckets, "tensor_parallel")
                self.compute(ns / buckets)
            for size, groups in ((int(dense[number]), "data"), (int(expert[number]), "replicas")):
                if size and (self.plan.data if groups == "data" else self.plan.data // self.plan.experts) > 1:
                    made = Collective(
                        after=[*self.last, *before], kind=CollectiveKind.ALL_REDUCE, size=size, groups=groups
                    )
                    before = [self.add(made)]


def _program(plan: Parallelism, stage: _Stage, own: Ints, per_stage: int) -> list[Node]:
    making = _Making(plan, stage, own, per_stage)
    rows = order(stage.number, plan.pipeline, plan.micros)
    for number, (forward, _) in enumerate(rows):
        making.run(forward, number == len(rows) - 1)
    return making.nodes


def bubble(stages: int, micro_batches: int) -> float:
    """Return the share of a step without computation in a pipeline of equal stages: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


__all__ = ["Parallelism", "bubble", "generate", "order"]

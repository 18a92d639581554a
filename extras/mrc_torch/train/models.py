"""Models, and data that need no download: scikit-learn's digits, and a text that is made here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

#: Characters that a sample of gpt-tiny has.
CONTEXT = 48


@dataclass(frozen=True)
class Task:
    """A training task: samples, their targets, a model, its loss, and the learning rate.

    `held_out` is the share of right answers on held-out data, where there are any.
    """

    inputs: Tensor
    targets: Tensor
    model: nn.Module
    learning_rate: float
    unit: str
    per_sample: int
    test_inputs: Tensor | None = None
    test_targets: Tensor | None = None

    def loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Return the loss of the samples with these numbers."""
        outputs = model(self.inputs[rows])
        found: Tensor = nn.functional.cross_entropy(outputs.flatten(0, -2), self.targets[rows].flatten())
        return found

    def accuracy(self, model: nn.Module) -> float | None:
        """Return the accuracy on the held-out samples; None if there are none."""
        if self.test_inputs is None or self.test_targets is None:
            return None
        with torch.no_grad():
            return float((model(self.test_inputs).argmax(-1) == self.test_targets).float().mean())


def make(name: str, seed: int) -> Task:
    """Return a task by its model's name; the same for all ranks."""
    torch.manual_seed(seed)
    if name == "gpt-tiny":
        return _text(seed)
    from sklearn.datasets import load_digits

    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(seed))
    inputs = (torch.tensor(data.data, dtype=torch.float32) / 16)[order]
    targets = torch.tensor(data.target, dtype=torch.long)[order]
    held = 297
    model, rate = (_convolutions(), 0.1) if name == "digits" else (_perceptron(), 0.2)
    learnt, test = (inputs[held:], targets[held:]), (inputs[:held], targets[:held])
    return Task(*learnt, model, rate, "samples", 1, *test)


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 96), nn.ReLU(), nn.Linear(96, 10))


def _convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(-1, (1, 8, 8)), nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 16, 10)),
    )


class GptTiny(nn.Module):  # type: ignore[misc]
    """A small transformer that predicts the next character."""

    def __init__(self, characters: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.place = nn.Parameter(torch.zeros(CONTEXT, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.out = nn.Linear(width, characters)
        ahead = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (samples, characters) as numbers to (samples, characters, characters of the alphabet)."""
        hidden = self.embed(rows) + self.place
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.ahead)
        found: Tensor = self.out(hidden)
        return found


def sentences(seed: int, count: int) -> str:
    """Return a text with some order in it."""
    rng = random.Random(seed)
    who = ["the switch", "a host", "the spine", "every leaf", "one packet", "the receiver", "a sender", "the fabric"]
    does = ["sends", "drops", "marks", "trims", "repairs", "counts", "routes", "forgets", "acknowledges"]
    what = ["a packet", "the header", "every path", "two planes", "its window", "the queue", "an entropy value"]
    when = ["", " again", " at once", " while a link is down", " before the timeout", " and goes on"]
    return "".join(f"{rng.choice(who)} {rng.choice(does)} {rng.choice(what)}{rng.choice(when)}. " for _ in range(count))


def _text(seed: int) -> Task:
    text = sentences(seed, 1500)
    alphabet = sorted(set(text))
    numbers = torch.tensor([alphabet.index(each) for each in text])
    starts = torch.arange(0, len(text) - CONTEXT - 1, 7)
    inputs = torch.stack([numbers[start : start + CONTEXT] for start in starts.tolist()])
    targets = torch.stack([numbers[start + 1 : start + CONTEXT + 1] for start in starts.tolist()])
    return Task(inputs, targets, GptTiny(len(alphabet)), 0.3, "tokens", CONTEXT)


def batches(count: int, size: int, rank: int, batch: int, seed: int, step: int) -> Iterator[Tensor]:
    """Yield the sample numbers of a rank for each step from `step` on.

    All ranks together cover an epoch evenly, in an order that depends only on the seed.
    """
    per_epoch = max(count // (size * batch), 1)
    while True:
        epoch, place = divmod(step, per_epoch)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 7919 + epoch))
        for number in range(place, per_epoch):
            first = (number * size + rank) * batch
            yield order[torch.arange(first, first + batch) % count]
        step = (epoch + 1) * per_epoch

"""Published shapes of models that training is generated for, and what follows from a shape: parameters and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

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

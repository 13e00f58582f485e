"""Drawing dead leaves code by code, as a lesson of the common trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from sooner.errors import SoonerError

from .. import cards
from ..recipes import plain
from ..training import save_half
from . import world
from .recipe import LeafRecipe, LeafShape, LeafStage

FIXED = ("shape", "fitted", "seed")
"""Fields of the recipe in which a resumed run must agree."""
BOOK = "codebook.safetensors"
CHECK_SEED, CHECK_PICTURES = 10_250, 64
CARD_SEED, CARD_PICTURES = 90_250, 256
"""Worlds that training never draws from."""


def build_model(shape: LeafShape) -> LlamaForCausalLM:
    """A fresh fp32 decoder over codes and the id that opens a drawing."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=world.CODES + 1,
            hidden_size=shape.width,
            intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=2 * world.TOKENS,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
            bos_token_id=world.OPENING,
            eos_token_id=None,
            pad_token_id=None,
            tie_word_embeddings=False,
        )
    )


def load(folder: Path) -> tuple[Any, Tensor]:
    """The fp32 model of a checkpoint folder, in evaluation mode, and its codebook.

    Raises:
        SoonerError: there is none.
    """
    if not (folder / BOOK).is_file():
        raise SoonerError(f"no checkpoint at '{folder}'; train it: sooner train miniature leaves")
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval().requires_grad_(False), load_file(folder / BOOK)["codebook"]


def nats(model: Any, drawn: Tensor, batch: int = 32) -> Tensor:
    """Minus the log-probability of each code of drawings `[n, TOKENS]`, `[n, TOKENS]`."""
    found = []
    for some in drawn.split(batch):
        opening = torch.full((len(some), 1), world.OPENING)
        logits = model(torch.cat([opening, some[:, :-1]], 1), use_cache=False).logits
        loss = cross_entropy(logits.float().transpose(1, 2), some, reduction="none")
        found.append(loss)
    return torch.cat(found)


class LeafLesson:
    """Textures, fresh ones every step, and the decoder."""

    def __init__(self, config: LeafRecipe) -> None:
        self.config = config
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            self.decoder = build_model(config.shape)
        self.model: nn.Module = nn.Module()
        self.model.decoder = self.decoder
        self.book = world.find_codes(config.seed, config.fitted)
        self.model.register_buffer("book", self.book)

    def enter(self, stage: LeafStage, index: int) -> None:
        """Nothing hangs on the stage."""

    def shape_like(self, state: dict[str, Tensor]) -> None:
        """The depth never changes."""

    def loss(self, stage: LeafStage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        return nats(self.decoder, world.codes(rng, stage.rows, self.book), stage.rows).mean(), {}

    def after_step(self, rng: np.random.Generator) -> None:
        """Does nothing."""

    @torch.no_grad()
    def check(self) -> dict[str, float]:
        """Held-out nats of a code."""
        drawn = world.codes(np.random.default_rng(CHECK_SEED), CHECK_PICTURES, self.book)
        return {"nats": round(float(nats(self.decoder, drawn).mean()), 4)}

    @torch.no_grad()
    def save(self, folder: Path, steps: int, seconds: float) -> None:
        save_half(self.decoder, folder)
        save_file({"codebook": self.book}, folder / BOOK)
        drawn = world.codes(np.random.default_rng(CARD_SEED), CARD_PICTURES, self.book)
        model, _ = load(folder)
        share = torch.bincount(drawn.flatten(), minlength=world.CODES).double() / drawn.numel()
        told = {
            "part": "target",
            "parameters": sum(one.numel() for one in self.decoder.parameters()),
            "nats": round(float(nats(model, drawn).mean()), 4),
            "nats_by_frequency": round(-float((share * share.clamp_min(1e-30).log()).sum()), 4),
            "pictures": CARD_PICTURES,
        }
        cards.write(folder, told, plain(self.config), steps, seconds)

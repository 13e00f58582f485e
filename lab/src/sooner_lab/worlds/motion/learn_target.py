"""How the AR model learns: next codes of short stretches first, of whole clips last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sooner.models.clip_tokenizer import MotionTokenizer

from ..lessons import Lesson
from ..training import cached, first_depth, need
from . import architecture, card, evaluate, hints, world
from .pixels import to_pixels
from .recipe import MotionRecipe, MotionStage

# A stretch's first latent frame comes out of nowhere, so little is to be learnt from it.
FIRST_WEIGHT = 0.1


class MotionTargetLesson(Lesson):
    """See `lessons.Lesson`."""

    def __init__(self, out: Path, config: MotionRecipe) -> None:
        self.out, self.config = out, config
        self.tokenizer = evaluate.load_tokenizer(need(out, "tokenizer"))
        sizes = self.tokenizer.config
        shape = architecture.MotionShape(
            **{
                "vocab": sizes.codes,
                "latent_shape": sizes.latent_shape(world.FRAMES),
                **config.shape,
            }
        )
        self.target = architecture.build_model(shape).train()
        depth = first_depth(config, shape.layers)
        architecture.sleep(self.target, architecture.spread(depth, shape.layers))
        self.head = hints.MoverHeads(shape.width)
        self.model: nn.Module = nn.ModuleDict({"target": self.target, "head": self.head})
        slots = architecture.awake(self.target)  # the first ones: a layer keeps its slot
        self.middle = hints.Listener(slots[architecture.middle(slots)])
        self.lattice = 0  # of the bank; 0 before there is one
        self.bank = torch.empty(0)  # [clips, t, h * w] codes
        self.passed = torch.empty(0)  # [clips, t, h * w] whether a shape passes through
        self.fronts = torch.empty(0)  # and whether it has just entered or left
        self.labels = torch.empty(0)  # [clips, t * h * w, heads] what `hints` name

    def enter(self, stage: MotionStage, index: int) -> None:
        if stage.layers:
            slots = architecture.spread(stage.layers, self.target.config.num_hidden_layers)
            architecture.wake(self.target, slots)
        if self.lattice != stage.lattice:
            self.lattice, self.bank = stage.lattice, self._encode_bank(stage.lattice)
            self._look_at_clips()

    def _look_at_clips(self) -> None:
        shape = self.tokenizer.config.latent_shape(world.FRAMES)
        passed, labels = [], []
        for index in range(self.config.bank):
            clip = world.clip(self.config.seed, index, self.lattice)
            each = [passes(mover, shape) for mover in clip.movers]
            passed.append(torch.stack(each).any(0))
            labels.append(hints.label(clip, shape, each))
        self.passed = torch.stack(passed).flatten(2)
        self.labels = torch.stack(labels).flatten(1, 3)
        self.fronts = self.passed.clone()
        self.fronts[:, 1:] ^= self.passed[:, :-1]

    def shape_like(self, state: dict[str, torch.Tensor]) -> None:
        mark = "target.model.layers."
        slots = {int(key.removeprefix(mark).split(".")[0]) for key in state if key.startswith(mark)}
        architecture.wake(self.target, slots)

    def loss(
        self, stage: MotionStage, rng: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        latents, area = self.bank.shape[1:]
        length = stage.latents or latents
        begin = int(rng.integers(latents - length + 1))
        picked = torch.from_numpy(rng.integers(len(self.bank), size=stage.rows))
        codes = self.bank[picked, begin : begin + length].flatten(1).long()  # [rows, n]
        positions = torch.arange(codes.shape[1])[None] + begin * area
        logits = self.target(
            input_ids=self._corrupt(codes, rng), position_ids=positions, use_cache=False
        ).logits[:, :-1]
        each = functional.cross_entropy(
            logits.float().flatten(0, 1), codes[:, 1:].flatten(), reduction="none"
        ).view(len(codes), -1)  # [rows, n - 1]
        passed = self.passed[picked, begin : begin + length].flatten(1)[:, 1:]
        front = self.fronts[picked, begin : begin + length].flatten(1)[:, 1:]
        weight = torch.where(passed, stage.focus, 1.0)  # [rows, n - 1]
        weight = torch.where(front, weight.clamp(min=stage.front), weight)
        weight[:, : area - 1] *= FIRST_WEIGHT
        token_nats, moving = each[:, area - 1 :].detach(), passed[:, area - 1 :]
        labels = self.labels[picked, begin * area : (begin + length) * area]
        # A first latent frame is of one frame of pixels: nothing tells which way a shape goes.
        hint = self.head(self.middle.states[:, area:], labels[:, area:])
        return (each * weight).sum() / weight.sum() + self.config.hint * hint, {
            "hint": float(hint.detach()),
            "nats": float(token_nats.mean()),
            "moving": float(token_nats[moving].mean()),
            "front": float(token_nats[front[:, area - 1 :]].mean()),
            "resting": float(token_nats[~moving].mean()),
        }

    def check(self) -> dict[str, float]:
        codes = encode_clips(self.tokenizer, world.TEST_SEED, 4)
        return evaluate.foresight(self.target, codes)

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        write(self.target, folder)
        model = evaluate.load_target(folder)
        probe = self.out.parent / "probe" / "checkpoint"
        figures = card.target_figures(model, self.tokenizer, probe if probe.exists() else None)
        return model, {"held_out": figures}

    def _corrupt(self, codes: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Replace a share of the codes, up to twice `corrupt` in a row, by random ones."""
        share = 2 * self.config.corrupt * rng.random((len(codes), 1))
        wrong = torch.from_numpy(rng.random(tuple(codes.shape)) < share)
        other = torch.from_numpy(rng.integers(self.target.config.vocab_size, size=codes.shape))
        return torch.where(wrong, other, codes)

    def _encode_bank(self, lattice: int) -> torch.Tensor:
        """The bank, from the file of an earlier call if it is of this recipe and tokenizer."""
        mark = float(self.tokenizer.codebook.weight.detach().double().sum())
        return cached(
            self.out / f"bank-{lattice}.pt",
            [self.config.seed, self.config.bank, mark],
            lambda: (
                encode_clips(self.tokenizer, self.config.seed, self.config.bank, lattice)
                .flatten(2)
                .to(torch.int16)
            ),
        )


def passes(mover: world.Mover, shape: tuple[int, int, int]) -> torch.Tensor:
    """Whether a shape is in a block while it lasts: bool [t, h, w]."""
    frames, rows, columns = shape
    group = (world.FRAMES - 1) // (frames - 1)
    height, width = world.HEIGHT // rows, world.WIDTH // columns
    mask = torch.zeros(shape, dtype=torch.bool)
    for frame in range(world.FRAMES):
        x, y = mover.at(frame)
        left, top = (max(at - world.RADIUS, 0) for at in (x, y))
        right = (x + world.RADIUS - 1) // width + 1
        bottom = (y + world.RADIUS - 1) // height + 1
        latent = (frame + group - 1) // group  # frame 0 stands alone
        mask[latent, top // height : bottom, left // width : right] = True
    return mask


def encode_clips(
    tokenizer: MotionTokenizer, seed: int, clips: int, lattice: int = world.LATTICE
) -> torch.Tensor:
    """Codes [clips, t, h, w] of the first `clips` clips of a seed."""
    codes = []
    for begin in range(0, clips, 8):
        some = range(begin, min(begin + 8, clips))
        frames = np.stack([world.film(seed, index, lattice=lattice)[1] for index in some])
        codes.append(tokenizer.encode(to_pixels(torch.from_numpy(frames))))
    return torch.cat(codes)


def write(model: architecture.CosmosARForCausalLM, folder: Path) -> None:
    """Write a checkpoint folder in fp16, every layer awake; `model` stays as it is."""
    half = architecture.CosmosARForCausalLM(model.config)
    there = architecture.awake(model)
    architecture.sleep(half, there)
    half.load_state_dict(model.state_dict())
    architecture.wake(half, range(model.config.num_hidden_layers))
    half.generation_config = model.generation_config
    half.half().save_pretrained(folder)

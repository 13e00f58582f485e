"""How drafts are trained; the defaults of `HeadTraining` are those of Spec-VLA's table 4. Needs no
torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...checks import check_choice, check_fields, check_keys, option
from ...errors import SoonerError
from ..settings import parse_numbers

HEADS = ("eagle", "eagle3", "mtp")
BLOCKS = ("dflash", "dflash2", "dspark", "domino")
FORMATS = (*HEADS, *BLOCKS)
LAYOUTS = ("sglang", "speculators")


@dataclass(frozen=True)
class Recipe:
    """What every kind of draft is trained by.

    Attributes:
        steps: optimiser steps.
        lr: highest learning rate of AdamW; it rises over `warmup` steps and falls to 0 with the
            last one, both linearly.
        batch: samples of a step, over all devices.
        warmup: steps of the rise; by default a tenth of all, 2,000 at most (800 for dflash).
        clip: largest norm of the gradient.
        weight_decay: of AdamW.
        holdout: share of the samples, the last ones, that are kept for measuring.
        check_every, save_every: steps between measurements, and between saved states.
        seed: of first weights, order and all that is drawn.
        layout: of the drafter's files: SGLang's, or speculators', which vLLM reads (of eagle3 and
            dflash).
        format: of the drafter.
    """

    steps: int = option(20_000, 1)
    lr: float = option(5e-5, 0, above=True)
    batch: int = option(16, 1)
    warmup: int | None = option(None, 0)
    clip: float = option(0.5, 0, above=True, names=("--max-grad-norm",))
    weight_decay: float = option(0.01, 0)
    holdout: float = option(0.05, 0, 1, above=True)
    check_every: int = option(500, 1)
    save_every: int = option(500, 1)
    seed: int = option(0, 0)
    layout: str = option("sglang", known=LAYOUTS)
    format: str = option("eagle", known=FORMATS)

    max_warmup: ClassVar[int] = 2000

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_fields(self, f"{name}: ")
        if self.warmup is None:
            object.__setattr__(self, "warmup", min(self.max_warmup, self.steps // 10))
        assert self.warmup is not None
        if self.warmup >= self.steps:
            raise SoonerError(
                f"{name}: warmup is {self.warmup} of {self.steps} steps; it must be less than steps"
            )
        if self.holdout == 1:
            raise SoonerError(f"{name}: holdout is 1.0; leave samples to train on")
        if self.layout != "sglang" and self.format not in ("eagle3", "dflash"):
            raise SoonerError(
                f"{name}: layout is '{self.layout}', which format '{self.format}' does not have; "
                "write 'sglang', or train format 'eagle3' or 'dflash'"
            )

    def rate(self, step: int) -> float:
        """Returns the learning rate of step `step`, from 0."""
        assert self.warmup is not None
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        return self.lr * (self.steps - step) / (self.steps - self.warmup)

    def recorded_layers(self, target: int) -> tuple[int, ...]:
        """Returns the layers whose `hidden_states` a recording for this recipe keeps, of a target
        of so many; none is the last ones alone.

        Raises:
            SoonerError: a target with so few layers that there is no choice for it.
        """
        return ()


@dataclass(frozen=True)
class HeadTraining(Recipe):
    """The recipe of a head, beside what `Recipe` says.

    Attributes:
        token_weight: of the cross-entropy with the target's distribution (p_w).
        state_weight: of the smooth L1 distance from the target's next state (v_w).
        noise: width of the uniform noise on the target's states, `noise * 512 / tokens` of the
            sample in all, half of it to each side: EAGLE's own, which keeps its size over long
            samples and is strong for short ones.
        unroll: steps over which the head goes on from its own estimates, as it does in drafting
            (HASS, Zhang et al. 2024; EAGLE-3's training-time test). 1 is EAGLE-2's and the paper's.
        depth: levels at which held-out acceptance is measured.
        format: `eagle` learns the target's next state, and drafts with its LM head; `eagle3` learns
            its tokens alone from states of three layers, without noise; `mtp` learns them from the
            last states, by a decoder layer of the target's own kind, and is written as Qwen's
            checkpoints have theirs.
        layers: for `eagle3`, the `hidden_states` that it reads; by default 2, n/2 and n - 3. For
            dflash, how many layers the drafter has; by default 5.
        draft_vocab_size: for `eagle3`, how many tokens it can draft, those that the recorded
            answers say most often; by default all.
        step_decay: for `eagle3` and `mtp`, the weight of each step of the unrolling is this share
            of the one before it.

    Raises:
        SoonerError: a value out of range.
    """

    betas: ClassVar[tuple[float, float]] = (0.9, 0.95)
    token_weight: float = option(0.1, 0)
    state_weight: float = option(1.0, 0)
    noise: float = option(0.2, 0)
    unroll: int = option(1, 1)
    depth: int = option(5, 1, names=("--check-depth",))
    format: Literal["eagle", "eagle3", "mtp"] = option("eagle", known=HEADS)
    layers: tuple[int, ...] | None = option(None, metavar="I,J,K", parse=parse_numbers)
    draft_vocab_size: int | None = option(None, 1)
    step_decay: float = option(0.8, 0, 1, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None:
            object.__setattr__(self, "layers", tuple(self.layers))
            if len(self.layers) != 3:
                raise SoonerError(
                    f"HeadTraining: layers is {list(self.layers)}; an EAGLE-3 head reads three"
                )
        if self.format != "eagle3" and (self.layers or self.draft_vocab_size):
            raise SoonerError(
                "HeadTraining: layers and draft_vocab_size are of format 'eagle3'; leave them out"
            )
        if self.token_weight == self.state_weight == 0:
            raise SoonerError("HeadTraining: token_weight and state_weight are both 0; weigh one")

    def recorded_layers(self, target: int) -> tuple[int, ...]:
        """EAGLE-3's are the decoder's output, and then the three that the head reads."""
        if self.format != "eagle3":
            return ()
        if self.layers is None and target < 4:
            raise SoonerError(
                f"HeadTraining: layers is not set, and the target has {target} layers; EAGLE-3's "
                "own choice (2, n/2, n - 3) takes four or more"
            )
        return (target, *(self.layers or (2, target // 2, target - 3)))


@dataclass(frozen=True)
class BlockTraining(Recipe):
    """The recipe of a DFlash drafter, beside what `Recipe` says.

    Attributes:
        format: `dflash`, whose places are independent, or what corrects each place by the token
            before it: `dflash2`, `dspark`, `domino`.
        layers: of the drafter.
        block_size: for dflash, entries of a block, its anchor included.
        anchors: for dflash, most blocks of a sample in a step.
        decay: for dflash, gamma of the weights of a block's places; the authors take 7 for blocks
            of 16, 5 for 10 and 4 for 8.
        chain_rank: for dflash2, dspark and domino, width of what corrects a place.

    Raises:
        SoonerError: a value out of range.
    """

    lr: float = option(6e-4, 0, above=True)
    max_warmup: ClassVar[int] = 800
    format: Literal["dflash", "dflash2", "dspark", "domino"] = option("dflash", known=BLOCKS)
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    clip: float = option(1.0, 0, above=True, names=("--max-grad-norm",))
    layers: int = option(5, 1)
    block_size: int = option(16, 2)
    anchors: int = option(64, 1)
    decay: float = option(7.0, 0, above=True)
    chain_rank: int = option(256, 1)

    def recorded_layers(self, target: int) -> tuple[int, ...]:
        """As many as the drafter has layers, spread evenly from the second layer's to the third
        last's (the authors' choice); of targets that are too shallow, all but the last."""
        first, last = 2, target - 2
        if last - first + 1 < self.layers:
            return tuple(range(max(target - self.layers, 1), target))
        if self.layers == 1:
            return (target // 2,)
        span, gaps = last - first, self.layers - 1
        return tuple(first + round(index * span / gaps) for index in range(self.layers))


def make_recipe(kind: str, values: Mapping[str, Any]) -> Recipe:
    """Returns the recipe of a format with the values that were given.

    Raises:
        SoonerError: an unknown format, a value out of range, or of another format.
    """
    check_choice("format", kind, FORMATS)
    check_keys("training setting", values, BlockTraining if kind in BLOCKS else HeadTraining)
    if kind not in BLOCKS:
        return HeadTraining(**{**values, "format": kind})
    layers = values.get("layers", (BlockTraining.layers,))
    if len(layers) != 1:
        raise SoonerError(f"--layers of {kind} is how many the drafter has; give one number")
    if kind == "dflash" and "chain_rank" in values:
        raise SoonerError("--chain-rank is of formats dflash2, dspark and domino; leave it out")
    return BlockTraining(**{**values, "layers": layers[0], "format": kind})


@dataclass(frozen=True, kw_only=True)
class PromptSource:
    """Where prompts come from, and how they are answered.

    Attributes:
        data: folder of videos, or JSONL of `{prompt}` or `{video|image, prompt}`; by default the
            miniature's own world. A folder that holds a recording is used as it is.
        samples: prompts from a miniature's own world.
        prompt: what is asked about each file.
        frames: frames of each video.
        max_new_tokens: where an answer is cut; by default 256, or the tokens of a policy's action.
    """

    data: Path | None = option(None, metavar="FILE|DIR")
    samples: int = option(256, 2)
    prompt: str | None = None
    frames: int | None = option(None, 1)
    max_new_tokens: int | None = option(None, 1)

    def __post_init__(self) -> None:
        check_fields(self)

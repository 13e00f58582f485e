"""The image miniature's recipes as data, and the one call that runs one of them.

Three parts, each built on the one before: *codes*, the VQ autoencoder; *classifier*, the judge
of pictures that have been through the codes; *target*, the text-to-image decoder. The target's
first stage is shallow and takes most steps; `architecture.grow` then inserts layers that change
nothing, and training goes on at full depth, where a step costs four times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .architecture import CODES, TARGET, CodesShape, Shape


@dataclass(frozen=True)
class CodesRecipe:
    """Training of the autoencoder, on rough pictures (`world.ROUGH`).

    Attributes:
        shape: its sizes.
        steps: optimizer steps.
        batch: pictures a step, each drawn afresh.
        lr: peak learning rate.
        free: steps before the codebook is placed; until then latents pass unquantised.
        commit: weight of the distance between latents and their entries.
        bf16: run convolutions under bfloat16 autocast.
        seed: of the pictures, the codebook's start and the first weights.
        save_every: steps between resumable states.
    """

    shape: CodesShape = CODES
    steps: int = 1100
    batch: int = 16
    lr: float = 2e-3
    free: int = 100
    commit: float = 0.25
    bf16: bool = True
    seed: int = 0
    save_every: int = 100


@dataclass(frozen=True)
class ClassifierRecipe:
    """Training of the judge, on pictures that have been through the codes.

    Attributes:
        bank: pictures drawn and rebuilt once.
        steps: optimizer steps.
        batch: pictures a step.
        lr: peak learning rate.
        seed: of the pictures and the first weights.
        save_every: steps between resumable states.
    """

    bank: int = 8000
    steps: int = 1500
    batch: int = 64
    lr: float = 2e-3
    seed: int = 1
    save_every: int = 100

    def __post_init__(self) -> None:
        _check_batch(self.batch, self.bank)


@dataclass(frozen=True)
class TargetRecipe:
    """Training of the decoder on a bank of pictures encoded once.

    Attributes:
        shape: its sizes at the end.
        bank: pictures in the bank.
        shallow: depth to begin with.
        steps: steps at that depth and steps at full depth.
        lr: peak learning rates of the two.
        batch: pictures a step.
        captions: captions without a picture a step, for the hint; see `hints`.
        hint: weight of the hint that names attributes.
        family: weight of the codes' colour families in the loss.
        dropped: share of captions replaced by pads, for classifier-free guidance.
        bf16: run the decoder under bfloat16 autocast.
        seed: of the pictures, the order, the drops and the first weights.
        save_every: steps between resumable states.
    """

    shape: Shape = TARGET
    bank: int = 20000
    shallow: int = 6
    steps: tuple[int, int] = (7000, 60)
    lr: tuple[float, float] = (2e-3, 5e-5)
    batch: int = 12
    captions: int = 32
    hint: float = 0.5
    family: float = 2.0
    dropped: float = 0.1
    bf16: bool = True
    seed: int = 2
    save_every: int = 100

    def __post_init__(self) -> None:
        _check_batch(max(self.batch, self.captions), self.bank)
        if not 1 <= self.shallow <= self.shape.layers:
            raise ValueError(f"shallow is {self.shallow}; it is 1 to {self.shape.layers} layers")


def _check_batch(batch: int, bank: int) -> None:
    if not 1 <= batch <= bank:
        raise ValueError(f"batch is {batch}; it is 1 to the bank's {bank} pictures")


AnyRecipe = CodesRecipe | ClassifierRecipe | TargetRecipe
RECIPES: dict[str, AnyRecipe] = {
    "codes": CodesRecipe(),
    "classifier": ClassifierRecipe(),
    "target": TargetRecipe(),
}


def train(
    out: Path | str,
    config: AnyRecipe,
    *,
    resume: bool = True,
    threads: int | None = None,
    progress: bool = True,
    stop_after: int | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Train one part and write its checkpoint folder.

    Args:
        out: folder that receives `checkpoint/`, `state.pt` (all that resuming needs) and
            `log.jsonl`. The classifier and the target read `../codes/checkpoint`, and the
            target's card `../classifier/checkpoint`.
        config: one of `RECIPES`, or another of their classes.
        resume: go on from `state.pt` if there is one. The resumed run makes the same steps as
            an uninterrupted one. False starts anew.
        threads: torch threads for this run; None leaves them as they are.
        progress: show a progress line.
        stop_after: leave after this many steps in this call, with `state.pt` written.
        on_step: called after each step with its figures.

    Returns:
        The checkpoint folder. It exists only once every step is done.

    Raises:
        ValueError: `state.pt` is of another recipe; the error says how to go on.
        SoonerError: a part that this one is built on has not been trained yet.
    """
    from . import loop

    out = Path(out)
    part = _build(out, config)
    return loop.run(
        part, out, resume=resume, threads=threads, progress=progress,
        stop_after=stop_after, on_step=on_step,
    )  # fmt: skip


def _build(out: Path, config: AnyRecipe) -> Any:
    """A part ready for its first step."""
    import torch

    from . import build

    with torch.random.fork_rng(devices=[]):  # HF draws first weights from the global generator
        torch.manual_seed(config.seed)
        if isinstance(config, CodesRecipe):
            from .codes import Codes

            return Codes(config)
        codes = build.load_codes(build.need(out, "codes"))
        if isinstance(config, ClassifierRecipe):
            from .judge import Judge

            return Judge(config, codes, cache=out / "bank.pt")
        from .target import Target

        return Target(config, codes, build.need(out, "classifier"), cache=out / "bank.pt")

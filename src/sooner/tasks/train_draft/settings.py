"""How a draft head is trained; the defaults are those of Spec-VLA's table 4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from ...errors import SoonerError, unknown
from ...methods.checks import positive

SPANS = ("answer", "all")


@dataclass(frozen=True)
class HeadTraining:
    """The recipe of a head.

    Attributes:
        steps: optimiser steps.
        lr: highest learning rate of AdamW; it rises over `warmup` steps and falls to 0 with the
            last one, both linearly.
        batch: samples of a step, over all devices.
        warmup: steps of the rise.
        token_weight: p_w, of the cross-entropy with the target's distribution.
        state_weight: v_w, of the smooth L1 distance from the target's next state.
        clip: largest norm of the gradient.
        noise: width of the uniform noise on the target's states, `noise * 512 / tokens` of the
            sample in all, half of it to each side: EAGLE's own, which keeps its size over long
            samples and is strong for short ones.
        betas, weight_decay: of AdamW.
        unroll: steps over which the head goes on from its own estimates, as it does in drafting
            (HASS, Zhang et al. 2024; EAGLE-3's training-time test). 1 is EAGLE-2's and the paper's.
        span: loss on the tokens of the `answer`, or on `all`, the prompt's too.
        holdout: share of the samples, the last ones, that are kept for measuring.
        depth: levels at which held-out acceptance is measured.
        check_every, save_every: steps between measurements, and between saved states.
        seed: of first weights, order and noise.

    Raises:
        SoonerError: a value out of range.
    """

    steps: int = 20_000
    lr: float = 5e-5
    batch: int = 16
    warmup: int = 2000
    token_weight: float = 0.1
    state_weight: float = 1.0
    clip: float = 0.5
    noise: float = 0.2
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    unroll: int = 1
    span: Literal["answer", "all"] = "answer"
    holdout: float = 0.05
    depth: int = 5
    check_every: int = 500
    save_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        positive(self, "steps", "batch", "unroll", "depth", "check_every", "save_every")
        positive(self, "warmup", "seed", at_least=0)
        if self.warmup >= self.steps:
            raise SoonerError(
                f"HeadTraining: warmup is {self.warmup} of {self.steps} steps; it must be less "
                "than steps"
            )
        for name in ("lr", "clip"):
            _require(self, name, getattr(self, name) > 0, "above 0")
        for name in ("token_weight", "state_weight", "noise", "weight_decay"):
            _require(self, name, getattr(self, name) >= 0, "0 or more")
        _require(self, "holdout", 0 < self.holdout < 1, "between 0 and 1")
        inside = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        _require(self, "betas", inside, "two numbers from 0 to below 1")
        if self.token_weight == self.state_weight == 0:
            raise SoonerError("HeadTraining: token_weight and state_weight are both 0; weigh one")
        if self.span not in SPANS:
            raise unknown("span", str(self.span), SPANS)

    @staticmethod
    def of(told: Mapping[str, Any]) -> HeadTraining:
        """From a mapping, such as a JSON file's.

        Raises:
            SoonerError: an unknown key, or a value out of range or of another type.
        """
        known = {one.name for one in fields(HeadTraining)}
        for name in told:
            if name not in known:
                raise unknown("training setting", name, known)
        try:
            return HeadTraining(**told)
        except TypeError as error:
            raise SoonerError(f"HeadTraining: {error}") from error

    def rate(self, step: int) -> float:
        """Learning rate of step `step`, from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        return self.lr * (self.steps - step) / (self.steps - self.warmup)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _require(config: HeadTraining, name: str, is_good: bool, wanted: str) -> None:
    value = getattr(config, name)
    if not is_good or (isinstance(value, float) and not math.isfinite(value)):
        raise SoonerError(f"HeadTraining: {name} is {value!r}; it must be {wanted}")

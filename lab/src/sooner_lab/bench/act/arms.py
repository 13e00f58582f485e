"""The contenders: the policy's own ways to decode, at every tolerance, and HF's `generate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sooner.engine.stats.run import EXACT, RELAXED
from sooner.tasks.act.policy import Policy

from .settings import ActSettings


@dataclass(frozen=True)
class ActContender:
    """One arm.

    Attributes:
        name: such as `relaxed r=9`.
        method: the policy's name for it; `None` is HF's `generate`.
        policy: with this arm's tolerance and its own measurements.
        tolerance: in bins; `None` where nothing is relaxed.
    """

    name: str
    method: str | None
    policy: Policy
    tolerance: int | None = None

    @property
    def mode(self) -> str:
        return EXACT if not self.tolerance else RELAXED

    def act(self, observations: list[Any]) -> list[Any]:
        """Actions for a batch of observations."""
        return self.policy.act(observations, method=self.method)


class Loader(Protocol):
    """Makes policies that share one model and head, and differ in their tolerance."""

    def __call__(self, allowance: int | None) -> Policy: ...


def loader(settings: ActSettings) -> Loader:
    """Load the model once.

    Raises:
        SoonerError: it, or its head, can't be loaded.
    """
    first = Policy.load(
        settings.model,
        settings.head,
        device=settings.device,
        dtype=settings.dtype,
        unnorm_key=settings.unnorm_key,
    )

    def make(allowance: int | None) -> Policy:
        return Policy(
            first.model, first.processor, first.head, allowance=allowance, name=first.name,
            unnorm_key=settings.unnorm_key, options=first.options,
        )  # fmt: skip

    return make


def contenders(settings: ActSettings, make: Loader) -> list[ActContender]:
    """Every arm, plain first; a policy without a head has only those that need none."""
    exact = make(None)
    arms = [ActContender("plain", "plain", exact)]
    if "hf" in settings.arms:
        arms.append(ActContender("hf", None, exact))
    if exact.head is None:
        return arms
    arms += [
        ActContender(name, name, make(None)) for name in ("strict", "auto") if name in settings.arms
    ]
    if "relaxed" in settings.arms:
        arms += [
            ActContender(f"relaxed r={bins}", "relaxed", make(bins), bins)
            for bins in settings.tolerances
        ]
    return arms

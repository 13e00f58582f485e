"""Plain decoding: the arm that every other one is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ..engine.interface import Drafter
from ..engine.loop import Rule
from .base import Method
from .context import Context
from .rules import follow_choices, follow_shared_noise
from .settings import MethodSettings


@dataclass(frozen=True)
class Autoregressive(Method):
    """Decodes one token a target forward, through the same loop, cache and sampling as every
    method.

    Args:
        shared_noise: draw with the noise of each place, as `CoupledJacobi(verify="noise")` does:
            the same seed then gives the same tokens under both.
    """

    shared_noise: bool = False
    name: ClassVar[str] = "plain"

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        return cls()

    @property
    def drafts_chains(self) -> bool:
        return True

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return Drafter(), follow_shared_noise if self.shared_noise else follow_choices

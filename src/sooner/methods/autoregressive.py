"""Plain decoding: the arm that every other one is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..decoding.interface import Drafter
from .base import Context, Method


@dataclass(frozen=True)
class Autoregressive(Method):
    """One token a target forward, through the same loop, cache and sampling as every method."""

    name: ClassVar[str] = "plain"

    def drafter(self, context: Context) -> Drafter:
        return Drafter()

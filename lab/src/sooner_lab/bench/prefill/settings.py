"""What `sooner bench prefill` measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ARMS = ("dense", "a-shape", "tri-shape", "strided", "vertical-slash", "grid", "planted", "ours")
"""All arms; `dense` is torch's fused causal attention, which all others are held against. `ours` is
searched; `planted`, of the one layer only, is the structure that its states were made with."""
PARTS = ("layer", "model", "needles")
USUAL = PARTS[:-1]
LENGTHS = (2048, 4096)
FULL_LENGTHS = (*LENGTHS, 8192, 16_384, 32_768)
"""Lengths that run within five minutes on two cores, and those of `--full`."""


@dataclass(frozen=True)
class PrefillSettings:
    """What is measured.

    Attributes:
        model: checkpoint folder or hub id; `None` is the video miniature.
        patterns: a file of `sooner search patterns` for the `ours` arm; `None` searches one first.
        lengths: prompt lengths in tokens of the `layer` and `model` parts.
        arms: among `ARMS`; `dense` is always one of them.
        parts: among `PARTS`.
        budget: share of the causal pairs that the a-shape and tri-shape arms may compute, as the
            paper gives all arms about the same work.
        heads, kv_heads, head_dim: of the one attention layer.
        frame: tokens of a frame in that layer.
        repeats: timed runs of each arm.
        agree: tokens of the dense continuation that every arm predicts again.
        needles: samples of each length and depth.
        frames: haystack lengths of the needle test, in frames.
        device, dtype, threads, seed: as everywhere.
    """

    model: str | None = None
    patterns: Path | None = None
    lengths: tuple[int, ...] = LENGTHS
    arms: tuple[str, ...] = ARMS
    parts: tuple[str, ...] = USUAL
    budget: float = 0.15
    heads: int = 8
    kv_heads: int = 8
    head_dim: int = 64
    frame: int = 256
    repeats: int = 3
    agree: int = 64
    needles: int = 4
    frames: tuple[int, ...] = (16, 32, 64)
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = 1
    seed: int = 20_261_121

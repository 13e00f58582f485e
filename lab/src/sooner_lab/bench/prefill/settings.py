"""What `sooner bench prefill` measures, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sooner.checks import option

from ..fields import names, numbers
from ..settings import BenchSettings

ARMS = (
    "dense", "a-shape", "tri-shape", "vertical-slash", "block-top-p", "grid", "planted", "ours",
)  # fmt: skip
"""All arms; `dense` is torch's fused causal attention, which all others are held against. `ours` is
searched; `planted`, of the one layer only, is the structure that its states were made with."""
PARTS = {"layer": "layer", "model": "model_rows", "needles": "needles"}
PARTS |= {name: name for name in ("rivals", "ablations")}
"""Parts with the key of each in the result."""


@dataclass(frozen=True)
class PrefillSettings(BenchSettings):
    """Time dense attention, the baselines' patterns and ours, and say what each one loses.

    Takes a few minutes on two cores without --full, which takes an hour or more. With --json the
    file grows part by part, so that an interrupted run keeps what it has measured.

    Attributes:
        model: target model, of videos or of text; without it, the video miniature.
        patterns: file of `sooner search patterns` for the `ours` arm; by default searched first.
        save_patterns: where patterns that were searched go, as such a file.
        lengths: prompt lengths in tokens.
        arms: only these arms (dense is always in).
        parts: only these of layer, model, needles, rivals and ablations; the last two, which
            belong together, at the greatest length.
        budget: share of dense for a-shape and tri-shape, as the paper gives all arms about the
            same work.
        heads: of the one attention layer.
        kv_heads: of that layer.
        head_dim: of that layer.
        frame: tokens a frame in that layer.
        repeats: timed runs of each arm.
        agree: tokens of the dense continuation that every arm predicts again.
        needles: samples of each length and depth.
        frames: haystacks of the needle test, in frames.
    """

    model: str | None = option(None, metavar="ID_OR_PATH")
    patterns: Path | None = None
    save_patterns: Path | None = None
    lengths: tuple[int, ...] = numbers("--lengths", (2048, 4096))
    arms: tuple[str, ...] = names("arm", ARMS, "dense")
    parts: tuple[str, ...] = names("part", tuple(PARTS), default=("layer", "model"))
    budget: float = option(0.15, 0, 1, above=True)
    heads: int = option(8, 1)
    kv_heads: int = option(8, 1)
    head_dim: int = option(64, 1)
    frame: int = option(256, 1)
    repeats: int = option(3, 1)
    agree: int = option(64, 1)
    needles: int = option(4, 1)
    frames: tuple[int, ...] = numbers("--frames", (16, 32, 64))

    FULL: ClassVar[Mapping[str, Any]] = {
        "lengths": (2048, 4096, 8192, 16_384, 32_768),
        "parts": ("layer", "model", "needles"),
    }

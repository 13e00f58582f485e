"""Which tokens of the target's captions a pruned draft would say, clip by clip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sooner.errors import SoonerError
from sooner.generation import generate
from sooner.methods.pruning import BY_ATTENTION, Criterion, rank
from sooner.methods.visual_match import views
from sooner.models import adapt
from sooner.sparse.modality import keep_count

from ...worlds.marks import architecture, draw, world
from ...worlds.video.evaluate import build_inputs, load
from ..parallel.untimed import Heard, listen
from ..parallel.verdicts import verdicts
from . import settings

MOST = 160
"""New tokens of a caption, which has 150."""


@dataclass(frozen=True)
class TokenChoice:
    """A way to choose a draft's visual tokens: an arm of the gate or a criterion, at an alpha."""

    name: str
    alpha: float

    @property
    def label(self) -> str:
        return self.name if self.name in CONTROLS else f"{self.name}@{self.alpha:g}"


CONTROLS = (settings.WHOLE, settings.ORACLE, settings.RANDOM, settings.BLIND)
GATE = tuple(TokenChoice(name, settings.ALPHA) for name in CONTROLS)
JUDGED = tuple(
    TokenChoice(name, alpha) for alpha in settings.ALPHAS if alpha < 1 for name in settings.JUDGED
)


def oracle(clip: world.MarkClip, tokens: int, count: int, rng: np.random.Generator) -> list[int]:
    """The visual tokens that show marks, those that are told of first; others make up `count`.

    Args:
        tokens: visual tokens of the prompt; those behind the clip's cells show nothing.
    """
    worth = np.zeros(tokens)
    worth[: clip.frames * world.CELLS] = world.places(clip).ravel() * 1.0
    worth[: clip.frames * world.CELLS] += world.places(clip, told=True).ravel()
    order = np.argsort(-(worth + rng.random(tokens) / 2), kind="stable")
    return np.sort(order[:count]).tolist()


class MarkReader:
    """A target, its drafts, and clips of the world.

    Args:
        folder: a run of `sooner train miniature marks`: `target/checkpoint`, `draft/checkpoint`,
            `draft/checkpoint-10` and so on.
        drafts: names of the draft's checkpoints.

    Raises:
        SoonerError: a checkpoint is missing.
    """

    def __init__(self, folder: Path, drafts: Sequence[str]) -> None:
        paths = {"target": folder / "target" / "checkpoint"}
        paths |= {name: folder / "draft" / name for name in drafts}
        for path in paths.values():
            if not (path / "config.json").is_file():
                raise SoonerError(
                    f"no checkpoint at '{path}'; train it: sooner train miniature marks"
                )
        self.target, self.processor = load(paths.pop("target"))
        self.drafts = {name: load(path)[0] for name, path in paths.items()}

    def read(
        self, clip: world.MarkClip, choices: Sequence[TokenChoice], seed: int
    ) -> dict[str, dict[str, Any]]:
        """What each draft would say of the target's caption of a clip.

        Args:
            seed: of random choices.

        Returns:
            By draft and by the choice's label, `verdicts` of each token; and under "target" its
            `text`, and its `score` against the world's own answer.
        """
        film = draw.render(clip)
        inputs = build_inputs(self.processor, [film], clip.frames, architecture.PROMPT)
        made = generate(self.target, inputs, max_new_tokens=MOST, do_sample=False)
        tokens = made.tokens[0]
        text = self.processor.tokenizer.decode(tokens, skip_special_tokens=True)
        adapter = adapt(self.target)
        visual = int(adapter.visual_tokens(inputs)[0].sum())
        grids = views(adapter, inputs)[0]
        found: dict[str, dict[str, Any]] = {
            "target": {"text": text, "score": world.score(text, clip), "tokens": len(tokens)}
        }
        for name, draft in self.drafts.items():
            told = found[name] = {}
            heard: dict[bool, Heard] = {}
            for one in choices:
                kept = self._kept(one, clip, visual, heard, draft, inputs, seed)
                chosen = None if kept is None else (kept, grids)
                told[one.label] = verdicts(draft, inputs, tokens, adapter.vocab_size, chosen)
        return found

    def _kept(
        self,
        one: TokenChoice,
        clip: world.MarkClip,
        visual: int,
        heard: dict[bool, Heard],
        draft: Any,
        inputs: Any,
        seed: int,
    ) -> list[int] | None:
        """Indices among the visual tokens; `None`: all of them."""
        count = keep_count(visual, one.alpha)
        if one.name == settings.WHOLE:
            return None
        if one.name == settings.BLIND:
            return []
        rng = np.random.default_rng(seed)
        if one.name == settings.ORACLE:
            return oracle(clip, visual, count, rng)
        if one.name == settings.RANDOM:
            return np.sort(rng.choice(visual, size=count, replace=False)).tolist()
        criterion: Criterion = one.name  # type: ignore[assignment]
        by_attention = criterion in BY_ATTENTION
        if by_attention not in heard:
            heard[by_attention] = listen(self.target, draft, inputs, criterion)
        generator = torch.Generator().manual_seed(seed)
        return rank(criterion, one.alpha, *heard[by_attention], generator).tolist()


def clips(count: int, seed: int, clear: float) -> Iterator[world.MarkClip]:
    """Held-out clips; the same seed at another contrast shows the same marks."""
    for index in range(count):
        yield world.sample_clip(np.random.default_rng([seed, index]), clear=clear)

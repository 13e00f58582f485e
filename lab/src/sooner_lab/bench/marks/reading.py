"""Which tokens of the target's captions a pruned draft would say, clip by clip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
    """A way to choose a draft's visual tokens: an arm of the gate or a criterion, at an alpha.

    `layer` is how many of the target's layers run before it ranks (L), 0 for `ParallelVLM`'s own.
    """

    name: str
    alpha: float
    layer: int = 0

    @property
    def label(self) -> str:
        if self.name in CONTROLS:
            return self.name
        layer = f"@L{self.layer}" if self.layer else ""
        return f"{self.name}@{self.alpha:g}{layer}"


CONTROLS = (settings.WHOLE, settings.ORACLE, settings.RANDOM, settings.BLIND, settings.NONE)
GATE = tuple(TokenChoice(name, settings.ALPHA) for name in CONTROLS)
JUDGED = tuple(
    TokenChoice(name, alpha) for alpha in settings.ALPHAS if alpha < 1 for name in settings.JUDGED
)
BY_LAYER = tuple(
    TokenChoice(name, settings.ALPHA, layer)
    for layer in settings.LAYERS
    for name in settings.STATES
)


def controlled(
    name: str, clip: world.MarkClip, tokens: int, count: int, rng: np.random.Generator
) -> list[int]:
    """What an arm of the gate keeps: `count` visual tokens, ascending.

    The oracle keeps those that show marks, first the ones that are told of; the blind choice those
    that show none; both fill up at random. What is behind the clip's cells closes it and stays.

    Args:
        name: `ORACLE`, `RANDOM` or `BLIND`.
        tokens: visual tokens of the prompt.
    """
    cells = clip.frames * world.CELLS
    worth = np.zeros(tokens)
    shown, told = (world.places(clip, one).ravel() for one in (False, True))
    if name == settings.ORACLE:
        worth[:cells] = shown * 1.0 + told
    if name == settings.BLIND:
        worth[:cells] = -1.0 * shown
    worth[cells:] = 3
    order = np.argsort(-(worth + rng.random(tokens) / 2), kind="stable")
    return np.sort(order[:count]).tolist()


def at_the_ends(kept: Sequence[int], frames: int) -> float:
    """Share of kept visual tokens that lies in the first and last frames (`settings.ENDS`)."""
    first, last = settings.ENDS
    low, high = first * world.CELLS, (frames - last) * world.CELLS
    return sum(not low <= one < high for one in kept) / len(kept)


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
            `text`, its `score` against the world's own answer, and by label the share of the kept
            tokens that lies in the clip's `ends`.
        """
        film = draw.render(clip)
        inputs = build_inputs(self.processor, [film], clip.frames, architecture.PROMPT)
        made = generate(self.target, inputs, max_new_tokens=MOST, do_sample=False)
        tokens = made.tokens[0]
        text = self.processor.tokenizer.decode(tokens, skip_special_tokens=True)
        adapter = adapt(self.target)
        visual = int(adapter.visual_tokens(inputs)[0].sum())
        grids = views(adapter, inputs)[0]
        ends: dict[str, float] = {}
        found: dict[str, dict[str, Any]] = {
            "target": {
                "text": text, "score": world.score(text, clip), "tokens": len(tokens), "ends": ends
            }
        }  # fmt: skip
        heard: dict[bool, Heard] = {}  # the target's states and attention, whatever the draft
        states: dict[int, Tensor] = {}
        for name, draft in self.drafts.items():
            told = found[name] = {}
            for one in choices:
                if one.layer and not states:
                    states = states_after(self.target, inputs, settings.LAYERS)
                kept = self.kept(one, clip, visual, heard, draft, inputs, seed, states)
                if kept:
                    ends[one.label] = at_the_ends(kept, clip.frames)
                chosen = None if kept is None else (kept, grids)
                told[one.label] = verdicts(draft, inputs, tokens, adapter.vocab_size, chosen)
        return found

    def kept(
        self,
        one: TokenChoice,
        clip: world.MarkClip,
        visual: int,
        heard: dict[bool, Heard],
        draft: Any,
        inputs: Any,
        seed: int,
        states: Mapping[int, Tensor] | None = None,
    ) -> list[int] | None:
        """Indices among the visual tokens; `None`: all of them.

        Args:
            heard: by whether attention is ranked; what is not there yet is listened for.
            states: see `states_after`; for choices with a layer of their own.
        """
        count = keep_count(visual, one.alpha)
        if one.name == settings.WHOLE:
            return None
        if one.name == settings.NONE:
            return []
        if one.name in CONTROLS:
            rng = np.random.default_rng(seed)
            return controlled(one.name, clip, visual, count, rng)
        criterion: Criterion = one.name  # type: ignore[assignment]
        by_attention = criterion in BY_ATTENTION
        if by_attention not in heard:
            heard[by_attention] = listen(self.target, draft, inputs, criterion)
        first, last, is_visual, frames = heard[by_attention]
        if one.layer:
            assert states is not None, "states after its layer"
            last = states[one.layer]
        generator = torch.Generator().manual_seed(seed)
        return rank(criterion, one.alpha, first, last, is_visual, frames, generator).tolist()


@torch.inference_mode()
def states_after(target: Any, inputs: Any, layers: Sequence[int]) -> dict[int, Tensor]:
    """States of one prompt after some of the target's layers: by layer (L) `[width, hidden]`."""
    found: dict[int, Tensor] = {}

    def taken(layer: int, module: Any, args: Any, output: Any) -> None:
        found[layer] = (output[0] if isinstance(output, tuple) else output)[0].clone()

    decoder = target.get_decoder()
    hooks = [
        decoder.layers[layer - 1].register_forward_hook(partial(taken, layer)) for layer in layers
    ]
    try:
        target(**inputs, logits_to_keep=1)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def clips(count: int, seed: int, clear: float) -> Iterator[world.MarkClip]:
    """Held-out clips; the same seed at another contrast shows the same marks."""
    for index in range(count):
        yield world.sample_clip(np.random.default_rng([seed, index]), clear=clear)

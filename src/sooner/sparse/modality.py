"""Which tokens of a prompt are text, picture or video, and how many visual ones a share leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..checks import check_choice
from ..engine.interface import Prompt

PADDING, TEXT, IMAGE, VIDEO = -1, 0, 1, 2
MODALITIES = {"text": TEXT, "image": IMAGE, "video": VIDEO}


@dataclass(frozen=True, eq=False)
class PromptLayout:
    """The tokens of one row of a prompt, as sparse attention sees them.

    Attributes:
        modality: of each token, `[tokens]`; one of `MODALITIES`, or `PADDING` anywhere.
        frames: the video frame that each token belongs to, `[tokens]`, -1 for all others.
        cache: planes and plans of these tokens, which all layers of a prefill share.
        whole: the prompt of which this is a chunk: queries from `start` on, and keys up to the end.
    """

    modality: Tensor
    frames: Tensor
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    whole: PromptLayout | None = field(default=None, repr=False)
    start: int = 0

    @classmethod
    def of(cls, prompt: Prompt, row: int) -> PromptLayout:
        """Returns the layout of one row of an embedded prompt.

        Visual tokens without a frame number are pictures; see `Prompt.frames`.
        """
        visual = prompt.visual[row]  # [width]
        frames = prompt.frames
        number = torch.full_like(visual, -1, dtype=torch.long) if frames is None else frames[row]
        modality = torch.full_like(number, TEXT)
        modality[visual] = IMAGE
        modality[visual & (number >= 0)] = VIDEO
        modality[prompt.lengths[row] :] = PADDING
        return cls(modality, number)

    @classmethod
    def text(cls, tokens: int, device: torch.device | str = "cpu") -> PromptLayout:
        """Returns the layout of `tokens` words and nothing else."""
        return cls.spans(("text", tokens)).to(device)

    @classmethod
    def spans(cls, *spans: tuple[str, int], frame: int = 0) -> PromptLayout:
        """Returns a layout from `(modality, tokens)` spans in order; `padding` is a modality here.

        Args:
            frame: tokens of a video frame; 0 numbers no frames.

        Raises:
            SoonerError: an unknown modality.
        """
        modality, frames, seen = [], [], 0
        for name, count in spans:
            check_choice("modality", name, (*MODALITIES, "padding"))
            modality += [MODALITIES.get(name, PADDING)] * count
            timed = name == "video" and frame > 0
            frames += [(seen + i) // frame if timed else -1 for i in range(count)]
            seen += count if name == "video" else 0
        return cls(torch.tensor(modality, dtype=torch.long), torch.tensor(frames, dtype=torch.long))

    def to(self, device: torch.device | str) -> PromptLayout:
        """Returns the layout on a device; one that is there already keeps its planes."""
        if self.modality.device == torch.device(device):
            return self
        return PromptLayout(self.modality.to(device), self.frames.to(device))

    def take(self, slots: Tensor) -> PromptLayout:
        """That of some tokens, `slots` ascending: what is left of a pruned prompt."""
        return PromptLayout(self.modality[slots], self.frames[slots])

    def chunk(self, start: int, end: int) -> PromptLayout:
        """Returns the layout of a chunk, whose keys keep their ranks; layers share the last one."""
        if end - start == len(self):
            return self
        if self.cache.get("chunk", (None, None))[0] != (start, end):
            parts = self.modality[:end], self.frames[:end]
            self.cache["chunk"] = (start, end), PromptLayout(*parts, whole=self, start=start)
        return self.cache["chunk"][1]

    def __len__(self) -> int:
        return len(self.modality)

    @cached_property
    def present(self) -> tuple[str, ...]:
        """Returns the names of the modalities that occur, in the order of `MODALITIES`."""
        kinds = set(self.modality.unique().tolist())
        return tuple(name for name, number in MODALITIES.items() if number in kinds)

    def where(self, name: str | None = None) -> Tensor:
        """Ascending slots of one modality, or of every token that is no padding."""
        if ("where", name) not in self.cache:
            is_there = (
                self.modality != PADDING if name is None else self.modality == MODALITIES[name]
            )
            self.cache["where", name] = is_there.nonzero()[:, 0]
        return self.cache["where", name]


def keep_count(tokens: int, ratio: float) -> int:
    """Tokens left of `tokens` when the share `ratio` is dropped; at least one of any."""
    return min(tokens, max(1, round(tokens * (1 - ratio)))) if tokens else 0

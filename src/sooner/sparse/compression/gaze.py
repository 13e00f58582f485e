"""What a vision tower's tokens attend to, and what each of them receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UnsupportedError
from ...models import Adapter
from ...models.hooks import ForwardHooks

CHUNK = 1 << 25

"""Attention weights held at once; 128 MB in fp32."""


def received(queries: Tensor, keys: Tensor, scale: float, from_first: bool = False) -> Tensor:
    """Mean over heads and queries of the attention on each key of a frame, `[tokens]` in fp32.

    Args:
        queries, keys: `[heads, tokens, head_dim]`.
        scale: of the scores.
        from_first: count the attention of the first token (CLS) alone.
    """
    heads, tokens = queries.shape[:2]
    selected = queries[:, :1] if from_first else queries
    keys = keys.float().transpose(1, 2)
    total = keys.new_zeros(tokens)
    for some in selected.split(max(CHUNK // (heads * tokens), 1), 1):
        total += (some.float() @ keys * scale).softmax(-1).sum((0, 1))
    return total / (heads * selected.shape[1])


def separate(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Returns queries and keys `[tokens, heads, head_dim]` of an attention with `q_proj` and
    `k_proj`.
    """
    shape = (len(hidden), -1, module.head_dim)
    return module.q_proj(hidden).view(shape), module.k_proj(hidden).view(shape)


def packed(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Returns queries and keys `[tokens, heads, head_dim]` of an attention with one `qkv`,
    unrotated."""
    states = module.qkv(hidden).reshape(len(hidden), 3, module.num_heads, -1)
    return states[:, 0], states[:, 1]


def rotated(states: Tensor, rotary: Sequence[Tensor]) -> Tensor:
    """Returns `states [tokens, heads, head_dim]` under the tower's rotary positions, in fp32."""
    cos, sin = (part.float()[:, None] for part in rotary)  # [tokens, 1, head_dim]
    states = states.float()
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat([-second, first], -1) * sin


NONE = -1

"""Unit of a token that the tower did not make, such as a newline."""


@dataclass(frozen=True)
class Gaze:
    """What is known of some visual tokens.

    Attributes:
        scores: attention that each gets in the tower, fp32 `[tokens]`.
        keys: its key there, averaged over heads, fp32 `[tokens, head_dim]`.
        units: the frame, image or tile that it belongs to, from 0, or `NONE`; `[tokens]`.
    """

    scores: Tensor
    keys: Tensor
    units: Tensor

    @classmethod
    def empty(cls, tokens: int, width: int, device: torch.device) -> Gaze:
        """Returns tokens of no unit."""
        scores = torch.zeros(tokens, device=device)
        keys = torch.zeros(tokens, width, device=device)
        return cls(scores, keys, torch.full((tokens,), NONE, device=device))

    @property
    def table(self) -> Tensor:
        """Scores and keys side by side, `[tokens, 1 + head_dim]`."""
        return torch.cat([self.scores[:, None], self.keys], 1)

    def to(self, device: torch.device) -> Gaze:
        return Gaze(self.scores.to(device), self.keys.to(device), self.units.to(device))


class TowerHooks(ForwardHooks):
    """Hooks on one model that note its tower's gaze each time a prompt is embedded.

    Args:
        adapter: the model. Subclasses say where its family computes what.
    """

    every_thread = True

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.body: Any = adapter.model.model
        self.inputs: Mapping[str, Any] = {}
        self.seen: list[Gaze] = []  # one for each call of the tower

    def install(self) -> None:
        """Hook the model's body; subclasses hook the tower as well."""
        self.before(self.body, self._begin)

    def remove(self) -> None:
        """Take the hooks off, and forget what was noted."""
        super().remove()
        self.inputs, self.seen = {}, []

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self.inputs, self.seen = kwargs, []

    def image_gaze(self, gaze: Gaze) -> Gaze:
        """Returns the gaze on tower tokens, carried over to the image placeholders of the
        prompt.
        """
        return gaze

    def video_gaze(self, gaze: Gaze) -> Gaze:
        """Returns the gaze on tower tokens, carried over to the video placeholders of the
        prompt.
        """
        return gaze

    def of_prompt(self, total: int) -> Gaze:
        """Returns the gaze for the visual tokens of the prompt that was embedded last, in their
        order.

        Args:
            total: how many it should have.

        Raises:
            UnsupportedError: the prompt was embedded elsewhere, so the tower was not watched.
        """
        kinds = [
            kind
            for kind, name in (("image", "pixel_values"), ("video", "pixel_values_videos"))
            if self.inputs.get(name) is not None
        ]
        places = self._places()
        if len(kinds) != len(self.seen) or len(places) != total:
            raise UnsupportedError(
                f"VisionZip saw {len(self.seen)} calls of the vision tower for a prompt of {total} "
                "visual tokens that sooner did not embed; pass pixels, and not encoded features"
            )
        width = self.seen[0].keys.shape[1]
        merged, begin = Gaze.empty(total, width, self.seen[0].scores.device), 0
        for kind, seen in zip(kinds, self.seen, strict=True):
            gaze = self.image_gaze(seen) if kind == "image" else self.video_gaze(seen)
            spots = (places == self._token(kind)).to(gaze.units.device)
            if int(spots.sum()) != len(gaze.units):
                raise UnsupportedError(
                    f"VisionZip can't tell {len(gaze.units)} {kind} tokens from the "
                    f"{int(spots.sum())} of the prompt; this layout is not known"
                )
            merged.scores[spots], merged.keys[spots] = gaze.scores, gaze.keys
            known = gaze.units != NONE
            merged.units[spots] = torch.where(known, gaze.units + begin, gaze.units)
            begin = int(merged.units.max()) + 1
        return merged

    def _token(self, kind: str) -> int:
        return int(getattr(self.adapter.config, f"{kind}_token_id"))

    def _places(self) -> Tensor:
        """Ids of the visual placeholders of the only row, in order."""
        ids = self.inputs.get("input_ids")
        if ids is None:
            return torch.empty(0)
        mask = self.inputs.get("attention_mask")
        row = ids[0] if mask is None else ids[0][mask[0].bool()]
        visual_ids = torch.tensor(self.adapter.visual_ids, device=ids.device)
        return row[torch.isin(row, visual_ids)]

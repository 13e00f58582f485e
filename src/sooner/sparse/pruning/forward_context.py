"""One prompt on its way through the decoder, losing tokens between layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...engine.cache import SlotCache
from ...engine.interface import Prompt
from ...errors import SoonerError
from .stage import AttentionInputs, Follower, PruningStage, Selector


class PrunedPrompt:
    """Which tokens of a prompt are still there, and what the layers must be told of them.

    Args:
        pruner: what to drop.
        depth: layers of the model.
        cache: the prompt's cache, still empty.
        prompt: the prompt, one row.
        embeds: its embeddings, `[width, hidden]`.

    Attributes:
        left: places in the prompt of the tokens that are still there, ascending.
        seen: what the last watched attention was given.
        deepstack: features that the first layers' outputs get, `[visual tokens, hidden]` each.
        follower: what goes on choosing in decoding.
        is_over: the prompt has left the decoder.
    """

    def __init__(
        self, pruner: Selector, depth: int, cache: SlotCache, prompt: Prompt, embeds: Tensor
    ) -> None:
        width = prompt.lengths[0]
        self.pruner, self.depth, self.layers = pruner, depth, cache.slot_layers
        self.approximations = cache.approximations
        self.stages = pruner.stages(depth)
        self.visual = prompt.visual[0, :width].to(embeds.device)
        self.total = int(self.visual.sum())
        self.frames = _frames(prompt, width, embeds.device)
        self.left = torch.arange(width, device=embeds.device)
        self.counts: list[int] = []  # visual tokens behind each stage
        self.seen: AttentionInputs | None = None
        self.deepstack: list[Tensor] = []
        self.follower: Follower | None = None
        self.is_over = False
        self.memo = pruner.begin(embeds, self.visual) if self.total else None
        self._rotary: tuple[Tensor, ...] = ()

    @property
    def dropped(self) -> int:
        """Tokens that are gone."""
        return len(self.visual) - len(self.left)

    def enter(
        self, number: int, hidden: Tensor, kwargs: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Returns the states and arguments with which layer `number` goes on."""
        if number in self.stages and self.total:
            hidden = self._drop(number, hidden)
            self._rotary = ()
        if not self.dropped:
            return hidden, kwargs
        self.layers[number].dropped = self.dropped
        if not self._rotary:  # positions stay with their tokens
            rotary = kwargs["position_embeddings"]
            self._rotary = tuple(part[:, self.left.to(part.device)] for part in rotary)
        kwargs = {**kwargs, "position_embeddings": self._rotary}
        if (mask := kwargs.get("attention_mask")) is not None:
            left = self.left.to(mask.device)
            kwargs["attention_mask"] = mask[:, :, left][..., left]
        if (positions := kwargs.get("position_ids")) is not None:
            kwargs["position_ids"] = positions[..., self.left.to(positions.device)]
        return hidden, kwargs

    def _drop(self, number: int, hidden: Tensor) -> Tensor:
        self._move(hidden.device)
        visual = self.visual[self.left]
        selection = self.pruner.keep(
            PruningStage(
                number=self.stages.index(number),
                layer=number,
                depth=self.depth,
                hidden=hidden[0],
                places=self.left,
                visual=visual,
                frames=self.frames[self.left],
                total=self.total,
                attention=self._attention,
                memo=self.memo,
            )
        )
        self.seen = None
        self.counts.append(int(visual[selection.index].sum()))
        if len(selection.index) == len(self.left):
            return hidden
        self.left = self.left[selection.index]
        return (hidden[0, selection.index] if selection.hidden is None else selection.hidden)[None]

    def _move(self, device: torch.device) -> None:
        """Follow a sharded model to the device of its next layer."""
        if self.left.device != device:
            self.left, self.visual = self.left.to(device), self.visual.to(device)
            self.frames = self.frames.to(device)
            self.memo = self.memo.to(device) if isinstance(self.memo, Tensor) else self.memo

    def _attention(self, queries: Tensor) -> Tensor:
        assert self.seen is not None, "no attention comes before the first layer"
        device = self.seen.hidden.device
        return self.seen.weights(queries.to(device)).to(queries.device)

    def add_features(self, number: int, hidden: Tensor) -> Tensor:
        """DeepStack: add the features of layer `number` to the visual tokens that are left."""
        if self.is_over:
            return hidden
        self._move(hidden.device)
        spots = self.visual[self.left]
        order = self.visual.cumsum(0) - 1  # place in the prompt -> number among visual tokens
        features = self.deepstack[number].to(hidden.device, hidden.dtype)
        hidden = hidden.clone()
        hidden[:, spots] += features[order[self.left[spots]]]
        return hidden

    def leave(self, hidden: Tensor) -> Tensor:
        """End the prefill; states at their places in the prompt again, zero where a token is gone.

        Raises:
            SoonerError: nothing is left to read the next token from, which is a bug of the pruner.
        """
        self.is_over = True
        self.seen, self.deepstack, self._rotary, self.memo = None, [], (), None
        self._move(hidden.device)
        if int(self.left[-1]) != len(self.visual) - 1:
            raise SoonerError(f"{self.pruner.name}: the last prompt token was dropped")
        self.follower = self.pruner.follow(self.visual[self.left]) if self.total else None
        self._tell()
        if not self.dropped:
            return hidden
        full = hidden.new_zeros(1, len(self.visual), hidden.shape[2])
        full[:, self.left] = hidden
        return full

    def _tell(self) -> None:
        if self.dropped or self.follower is not None:
            counts = " -> ".join(map(str, [self.total, *self.counts]))
            self.approximations.append(f"{self.pruner}: visual tokens {counts}")


def _frames(prompt: Prompt, width: int, device: torch.device) -> Tensor:
    if prompt.frames is None:
        return torch.full((width,), -1, device=device)
    return prompt.frames[0, :width].to(device)

"""Adapters whose new tokens are a picture's, or a clip's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..checks import check_fields, option
from ..engine.grid import TokenGrid
from ..engine.interface import Prompt
from ..errors import SoonerError, did_you_mean
from .base import Adapter, padding_mask


def token_id(vocabulary: Mapping[str, int], name: str, owner: str) -> int:
    """Returns the id of a token.

    Raises:
        SoonerError: there is none of this name.
    """
    if name not in vocabulary:
        near = did_you_mean(name, (key for key in vocabulary if key.startswith("<")))
        raise SoonerError(
            f"the vocabulary_map of {owner} has no '{name}'{near}; load a checkpoint whose "
            "config.json has the whole map"
        )
    return int(vocabulary[name])


def id_range(ids: Iterable[int], name: str, owner: str) -> tuple[int, int]:
    """Returns the half-open range that ids fill.

    Raises:
        SoonerError: there are none, or others lie between them.
    """
    known = sorted(ids)
    if not known:
        raise SoonerError(
            f"the vocabulary_map of {owner} has no tokens named '{name}...', which pictures are "
            "made of; load a checkpoint that draws"
        )
    low, high = known[0], known[-1] + 1
    if high - low != len(known):
        raise SoonerError(
            f"the {len(known)} tokens '{name}...' of {owner} are scattered over the ids {low} to "
            f"{high - 1}; a grid needs them side by side"
        )
    return low, high


@dataclass(frozen=True)
class Sampling:
    """Says how a family draws by default.

    Attributes:
        temperature, top_k, top_p: of the warpers; `None` leaves one out.
        guidance: scale of classifier-free guidance; 1 is none.

    Raises:
        SoonerError: a value out of range.
    """

    temperature: float = option(1.0, 0, above=True)
    top_k: int | None = option(None, 1, hint=", or None for all")
    top_p: float | None = option(None, 0, 1, above=True, hint=", or None for all")
    guidance: float = option(1.0, 0, hint="; 1 is none")

    def __post_init__(self) -> None:
        check_fields(self)


class Canvas(Adapter):
    """An adapter that draws: its vocabulary holds codes, its tokens stand on a grid.

    Subclasses give `grid`, `pixels`, and, for classifier-free guidance, `guided_inputs`.
    """

    published: Sampling = Sampling()
    """What the family's own code draws with, where the generation config says nothing."""

    opening: tuple[int, ...] = ()
    """Ids behind which the picture starts. A prompt that does not end with them is completed."""

    def __init__(self, model: Any, grid: TokenGrid) -> None:
        super().__init__(model)
        self._grid = grid

    @property
    def grid(self) -> TokenGrid:
        return self._grid

    @property
    def sampling(self) -> Sampling:
        """Returns how the checkpoint draws: by its generation config, else the family's code."""
        config, defaults = self.model.generation_config, self.published
        values = {name: getattr(config, name, None) for name in ("temperature", "top_k", "top_p")}
        scale = getattr(config, "guidance_scale", None)
        top_k = defaults.top_k if values["top_k"] is None else values["top_k"]
        top_p = defaults.top_p if values["top_p"] is None else values["top_p"]
        return Sampling(
            temperature=values["temperature"] or defaults.temperature,
            top_k=top_k or None,
            top_p=None if top_p == 1.0 else top_p,
            guidance=float(scale or defaults.guidance),
        )

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        return super().embed_prompt(self.opened(inputs))

    def opened(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The prompts with the picture opened: what is missing of `opening` is put behind each."""
        if not self.opening:
            return dict(inputs)
        return self.with_prompts(inputs, [self._open(row) for row in rows_of(inputs)])

    def with_prompts(self, inputs: Mapping[str, Any], prompts: list[list[int]]) -> dict[str, Any]:
        """Returns the inputs with other prompts, as one batch; any id stands at padded places."""
        pad = self.model.generation_config.pad_token_id
        padded = left_padded(prompts, int(pad or 0), inputs["input_ids"].device)
        return {**inputs, **padded}

    def _open(self, prompt: list[int]) -> list[int]:
        """`prompt` with the rest of `opening`, of which it may hold the beginning."""
        opening = list(self.opening)
        have = next(n for n in range(len(opening), -1, -1) if n == 0 or prompt[-n:] == opening[:n])
        return prompt + opening[have:]

    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode whole spans, `[rows, grid.length]`.

        Returns:
            `[rows, frames, height, width, 3]`, 0 to 1, fp32.
        """
        raise NotImplementedError


def rows_of(inputs: Mapping[str, Any]) -> list[list[int]]:
    """Returns the real tokens of each prompt."""
    mask = padding_mask(inputs).bool()
    return [row[keep].tolist() for row, keep in zip(inputs["input_ids"], mask, strict=True)]


def left_padded(
    prompts: list[list[int]], pad: int, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Returns prompts as one batch: `input_ids` and `attention_mask`, `[rows, width]`."""
    rows = [torch.tensor(prompt, dtype=torch.long, device=device) for prompt in prompts]
    padded = partial(pad_sequence, batch_first=True, padding_side="left")
    mask = padded([torch.ones_like(row) for row in rows])
    return {"input_ids": padded(rows, padding_value=pad), "attention_mask": mask}


def side_of(pixels: int | None, name: str, unit: int, default: int, owner: str) -> int:
    """Returns how many times `unit` pixels one side of a picture is.

    Raises:
        SoonerError: it is no multiple.
    """
    size = default if pixels is None else pixels
    if size < unit or size % unit:
        raise SoonerError(
            f"{name}={size}: {owner} makes pictures whose sides are multiples of {unit} pixels; "
            f"give {max(round(size / unit), 1) * unit}"
        )
    return size // unit


def as_frames(pixels: Tensor) -> Tensor:
    """Converts `[..., 3, height, width]` in -1..1 to `[..., height, width, 3]` in 0..1, fp32."""
    return pixels.movedim(-3, -1).float().add(1).div(2).clamp(0, 1)

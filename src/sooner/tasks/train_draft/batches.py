"""Which samples a step sees, and how they lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .dataset import Sample


@dataclass(frozen=True)
class Batch:
    """Samples side by side, padded on the right. Entry `i` is state `f_i` with the token behind it.

    Attributes:
        states: `f_i`, `[rows, entries, hidden]`.
        embeds: embedding of token `i + 1`, `[rows, entries, hidden]`.
        places: entries that are learnt or measured, `[rows, span]`.
        valid: which of those are real, `[rows, span]` bool.
        wanted: `f_{i+1}` of each, `[rows, span, hidden]`.
        following: token `i + 2` of each, `[rows, span]`.
        lengths: entries of each row, `[rows]`.
    """

    states: Tensor
    embeds: Tensor
    places: Tensor
    valid: Tensor
    wanted: Tensor
    following: Tensor
    lengths: Tensor


def collate(
    samples: Sequence[Sample], embed: Callable[[Tensor], Tensor], device: torch.device, whole: bool
) -> Batch:
    """Put samples side by side.

    Args:
        samples: at least one.
        embed: the target's embedding.
        device: of the batch.
        whole: the span begins with the prompt rather than with the answer.
    """
    tokens = _padded([one.tokens for one in samples]).to(device)  # [rows, entries + 2]
    states = _padded([one.states.float() for one in samples]).to(device)  # one less
    stored = _padded([one.stored for one in samples]).to(device)
    with torch.no_grad():
        embeds = embed(tokens).float()
    embeds[stored] = torch.cat([one.embeds for one in samples]).to(device, embeds.dtype)
    first = [0 if whole else one.prompt - 1 for one in samples]
    counts = [one.entries - start for one, start in zip(samples, first, strict=True)]
    line = torch.arange(max(counts), device=device)
    valid = line < torch.tensor(counts, device=device)[:, None]
    places = torch.where(valid, torch.tensor(first, device=device)[:, None] + line, 0)
    index = (places + 1)[..., None].expand(-1, -1, states.shape[2])
    return Batch(
        states=states[:, :-1],
        embeds=embeds[:, 1:-1],
        places=places,
        valid=valid,
        wanted=states.gather(1, index),
        following=tokens.gather(1, places + 2),
        lengths=torch.tensor([one.entries for one in samples], device=device),
    )


def _padded(parts: list[Tensor]) -> Tensor:
    return pad_sequence(parts, batch_first=True)


class Order:
    """The order in which samples are seen: every one once before any comes again.

    It follows from the seed and the number of the step alone, so a resumed run sees the same.
    """

    def __init__(self, samples: int, batch: int, seed: int) -> None:
        self.samples, self.batch, self.seed = samples, batch, seed
        self._epoch, self._shuffled = -1, np.empty(0, dtype=np.int64)

    def at(self, step: int) -> list[int]:
        """Sample numbers of a step."""
        start = step * self.batch
        return [self._number(place) for place in range(start, start + self.batch)]

    def _number(self, place: int) -> int:
        epoch, index = divmod(place, self.samples)
        if epoch != self._epoch:
            rng = np.random.default_rng((self.seed, epoch))
            self._epoch, self._shuffled = epoch, rng.permutation(self.samples)
        return int(self._shuffled[index])


def state_noise(shape: torch.Size, lengths: Tensor, width: float, key: Sequence[int]) -> Tensor:
    """Uniform noise for `[rows, entries, hidden]` states, `width * 512 / length` from end to end.

    Args:
        shape: of the states.
        lengths: entries of each row, `[rows]`.
        width: EAGLE's 0.2.
        key: numbers that the noise follows from, such as seed and step.
    """
    drawn = np.random.default_rng(tuple(key)).random(tuple(shape), dtype=np.float32) - 0.5
    scale = width * 512 / lengths.float()
    return torch.from_numpy(drawn).to(lengths.device) * scale[:, None, None]

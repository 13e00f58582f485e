"""Gumbel noise from a counter: the same place and token always get the same number.

Nothing is stored. A value depends on (seed, row, place, token) alone, so it is the same in every
iteration, in every batch and, but for the last bit of a logarithm, on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW31 = 0x7FFFFFFF
_ODD = (0x7FEB352D, 0x846CA68B - (1 << 32))  # as signed 32-bit numbers
_GOLDEN = 0x9E3779B9 - (1 << 32)


def mix(state: Tensor) -> Tensor:
    """Scramble int32 numbers one to one: the two-multiplication finaliser of Wellons' search."""
    state = (state ^ _shift(state, 16)) * _ODD[0]
    state = (state ^ _shift(state, 15)) * _ODD[1]
    return state ^ _shift(state, 16)


def _shift(state: Tensor, bits: int) -> Tensor:
    # torch shifts signed numbers arithmetically; the mask makes it a logical shift.
    return (state >> bits) & ((1 << (32 - bits)) - 1)


def gumbel(seed: int, rows: Tensor, places: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise for each token of each place.

    Args:
        seed: 31 bits.
        rows: number of each row, `[rows]`.
        places: place of each draw, `[rows, places]`; negative places are as good as any.
        vocab: tokens.

    Returns:
        `[rows, places, vocab]`, fp32, on the device of `places`. The resolution is 2^-31 where it
        matters: in the tail from which rare tokens win.
    """
    device = places.device
    start = torch.tensor(seed & _LOW31, dtype=torch.int32, device=device)
    key = mix(mix(rows.to(torch.int32) ^ mix(start))[:, None] + places.to(torch.int32) * _GOLDEN)
    token = mix(torch.arange(vocab, dtype=torch.int32, device=device) + 1)  # [vocab]
    bits = mix(key[..., None] ^ token) & _LOW31  # [rows, places, vocab]
    uniform = bits.to(torch.float32).add_(0.5).mul_(2.0**-31)
    # -log(-log(1 - u)): near u = 0, where floats are dense, the noise is largest.
    waiting = uniform.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_()
    return waiting.log_().neg_()

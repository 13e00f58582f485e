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


def draw_seed(generator: torch.Generator | None) -> int:
    """31 bits for the noise of one run, from the run's generator."""
    device = generator.device if generator is not None else torch.device("cpu")
    return int(torch.randint(1 << 31, (1,), generator=generator, device=device))


def mix(state: Tensor) -> Tensor:
    """Scramble int32 numbers one to one: the two-multiplication finaliser of Wellons' search."""
    return _mix_(state.clone(), torch.empty_like(state))


def _mix_(state: Tensor, spare: Tensor) -> Tensor:
    """`mix` in place: with a long vocabulary, fresh tensors would cost more than the numbers."""
    _fold_(state, 16, spare).mul_(_ODD[0])
    _fold_(state, 15, spare).mul_(_ODD[1])
    return _fold_(state, 16, spare)


def _fold_(state: Tensor, bits: int, spare: Tensor) -> Tensor:
    # torch shifts signed numbers arithmetically; the mask makes it a logical shift.
    torch.bitwise_right_shift(state, bits, out=spare).bitwise_and_((1 << (32 - bits)) - 1)
    return state.bitwise_xor_(spare)


def waiting(seed: int, rows: Tensor, places: Tensor, vocab: int) -> Tensor:
    """Standard exponential waiting times, `w = exp(-g)` for Gumbel noise `g`, of each token.

    Args:
        seed: 31 bits.
        rows: number of each row, `[rows]`.
        places: place of each draw, `[rows, places]`; negative places are as good as any.
        vocab: tokens.

    Returns:
        `[rows, places, vocab]`, fp32, positive, on the device of `places`. The resolution is 2^-31
        where it matters: among the shortest times, by which rare tokens win.
    """
    device = places.device
    start = torch.tensor(seed & _LOW31, dtype=torch.int32, device=device)
    key = mix(mix(rows.to(torch.int32) ^ mix(start))[:, None] + places.to(torch.int32) * _GOLDEN)
    token = mix(torch.arange(vocab, dtype=torch.int32, device=device) + 1)  # [vocab]
    state = key[..., None] ^ token  # [rows, places, vocab]
    spare = torch.empty_like(state)
    bits = _mix_(state, spare).bitwise_and_(_LOW31)
    uniform = spare.view(torch.float32).copy_(bits).add_(0.5).mul_(2.0**-31)
    # -log(1 - u): near u = 0, where floats are dense, the time is shortest.
    return uniform.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_()


def first_to_come(p: Tensor, waits: Tensor) -> Tensor:
    """`argmax(log p + g)` for `waits = exp(-g)`, which it overwrites: `[rows, places]`.

    Distributed as `p` (the Gumbel-max trick), and free of any other randomness.
    """
    # log p + g = log(p / w): the same winner without two logarithms of the whole vocabulary.
    return torch.div(p, waits, out=waits).argmax(-1)


def gumbel(seed: int, rows: Tensor, places: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise for each token of each place; arguments and shape as of `waiting`."""
    return waiting(seed, rows, places, vocab).log_().neg_()

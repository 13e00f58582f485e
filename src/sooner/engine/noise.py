"""Random numbers from a counter: a row's draws are a function of its seed alone.

Nothing is stored, and no generator is advanced. A number depends on (seed of the row, place,
purpose) alone, and Gumbel noise on the token, too: so it is the same in every round, in every batch
and, but for the last bit of a logarithm, on every device. The *place* of a draw is the number of
tokens that the row has generated before the token that it decides.

A number may be looked at in several rounds, as long as what was decided by it in all but the last
was thrown away: a draft behind a rejection is verified, and drawn, by the same numbers again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

_LOW31 = 0x7FFFFFFF
_ODD = (0x7FEB352D, 0x846CA68B - (1 << 32))  # as signed 32-bit numbers


def _signed(number: int) -> int:
    """Returns the signed 64-bit number with the same bits as the last 64 of `number`."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


_MULTIPLIERS = (_signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB))
_REQUEST = _signed(0x9E3779B97F4A7C15)  # the increment of SplitMix64
_PLACE = _signed(0xD1342543DE82EF95)  # odd numbers of many changes between their bits, too
_PURPOSE = _signed(0xAF251AF3B0F025B5)
_SALT = _signed(0x2545F4914F6CDD1D)


class Purpose(IntEnum):
    """What a random number decides, so that one place has several that are independent."""

    TOKEN = 1  # the target's own draw: without a draft, in place of a rejected one, behind it
    ACCEPT = 2  # whether a drafted token is accepted
    DRAFT = 3  # a draft model's own draw
    GUMBEL = 4  # noise that all rounds of a Jacobi window share
    COUPLE = 5  # whether a place of a Jacobi window is coupled with its last round
    STAY = 6  # whether its draft stays
    REPLACE = 7  # what takes its place
    AFRESH = 8  # its draft, where it is drawn independently


@dataclass(frozen=True)
class RowNoise:
    """The random numbers of a batch of rows, from where each has got to.

    Attributes:
        seeds: of each row, 64 bits, `[rows]` int64.
        places: tokens that each row has generated, `[rows]` int64; draws are counted from there.
    """

    seeds: Tensor
    places: Tensor

    @staticmethod
    def start(seed: int, requests: Tensor, generated: int = 0) -> RowNoise:
        """Returns rows that begin.

        Args:
            seed: of the run, 63 bits (`draw_seed`).
            requests: number of each row, `[rows]`; equal numbers draw alike.
            generated: tokens that each has generated before.
        """
        requests = requests.long()
        return RowNoise(mix64(requests * _REQUEST + seed), torch.full_like(requests, generated))

    def select_rows(self, rows: Tensor) -> RowNoise:
        """Returns the noise of the rows with these indices, `[selected]`."""
        return RowNoise(self.seeds[rows], self.places[rows])

    def merge(self, other: RowNoise) -> RowNoise:
        """Returns these rows, followed by those of `other`."""
        other = other.to(self.seeds.device)
        return RowNoise(
            torch.cat([self.seeds, other.seeds]), torch.cat([self.places, other.places])
        )

    def to(self, device: torch.device) -> RowNoise:
        return RowNoise(self.seeds.to(device), self.places.to(device))

    def uniforms(
        self,
        purpose: Purpose,
        ahead: Tensor | int,
        salt: Tensor | None = None,
        is_fresh: bool = False,
    ) -> Tensor:
        """Returns uniform numbers in `[0, 1)`, `[rows, draws]` fp64.

        Args:
            purpose: what they decide.
            ahead: places of draws ahead of `places`, `[rows, draws]`, `[draws]` or a number.
            salt: tells apart draws of one purpose and place, such as siblings; like `ahead`.
            is_fresh: other numbers in every round, which a row ends with at least one token more.
        """
        keys = self._keys(purpose, ahead, salt, is_fresh)
        return (keys >> 11).bitwise_and_((1 << 53) - 1).double() * 2.0**-53

    def waiting(self, purpose: Purpose, ahead: Tensor | int, vocab: int) -> Tensor:
        """Draws exponential waiting times of each token, `[rows, draws, vocab]`; see `waiting`."""
        return waiting(self._keys(purpose, ahead), vocab)

    def _keys(
        self,
        purpose: Purpose,
        ahead: Tensor | int,
        salt: Tensor | None = None,
        is_fresh: bool = False,
    ) -> Tensor:
        """Returns 64 random bits of each draw, `[rows, draws]` int64."""
        where = (self.places[:, None] + ahead) * _PLACE
        state = self.seeds[:, None] + where + _signed(purpose * _PURPOSE)
        if salt is not None:
            state = state + (salt + 1) * _SALT
        if is_fresh:
            state = mix64(state) + self.places[:, None]
        return mix64(state)


def draw_seed(generator: torch.Generator | None) -> int:
    """Returns 63 bits for the random numbers of one run, by its generator or the global one."""
    device = generator.device if generator is not None else torch.device("cpu")
    return int(torch.randint((1 << 63) - 1, (1,), generator=generator, device=device))


def generator_of(model: Any, seed: int | None) -> torch.Generator | None:
    """Returns a generator for a seed on the model's device; `None`, torch's own, without one."""
    if seed is None:
        return None
    generator = torch.Generator(device=model.get_input_embeddings().weight.device)
    return generator.manual_seed(seed)


def mix64(state: Tensor) -> Tensor:
    """Scramble int64 numbers one to one: the finaliser of SplitMix64 (Steele et al. 2014)."""
    state = (state ^ _right(state, 30)) * _MULTIPLIERS[0]
    state = (state ^ _right(state, 27)) * _MULTIPLIERS[1]
    return state ^ _right(state, 31)


def _right(state: Tensor, bits: int) -> Tensor:
    # torch shifts signed numbers arithmetically; the mask makes it a logical shift.
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def mix(state: Tensor) -> Tensor:
    """Scramble int32 numbers one to one: the two-multiplication finaliser of Wellons' search."""
    return _mix_(state.clone(), torch.empty_like(state))


def _mix_(state: Tensor, spare: Tensor, key: Tensor | int = 0) -> Tensor:
    """`mix` in place: with a long vocabulary, fresh tensors would cost more than the numbers.

    A `key` that is added half-way makes another scrambling of it.
    """
    _fold_(state, 16, spare).mul_(_ODD[0]).add_(key)
    _fold_(state, 15, spare).mul_(_ODD[1])
    return _fold_(state, 16, spare)


def _fold_(state: Tensor, bits: int, spare: Tensor) -> Tensor:
    # torch shifts signed numbers arithmetically; the mask makes it a logical shift.
    torch.bitwise_right_shift(state, bits, out=spare).bitwise_and_((1 << (32 - bits)) - 1)
    return state.bitwise_xor_(spare)


def waiting(keys: Tensor, vocab: int) -> Tensor:
    """Returns exponential waiting times, `w = exp(-g)` for Gumbel noise `g`, of each token.

    Args:
        keys: 64 random bits of each draw, `[rows, draws]` int64.
        vocab: tokens.

    Returns:
        `[rows, draws, vocab]`, fp32, positive, on the device of `keys`. The resolution is 2^-31
        where it matters: among the shortest times, by which rare tokens win.
    """
    token = mix(torch.arange(vocab, dtype=torch.int32, device=keys.device) + 1)  # [vocab]
    high, low = (keys >> 32).to(torch.int32), (keys << 32 >> 32).to(torch.int32)
    state = high[..., None] ^ token  # [rows, draws, vocab]
    spare = torch.empty_like(state)
    bits = _mix_(state, spare, low[..., None]).bitwise_and_(_LOW31)
    uniform = spare.view(torch.float32).copy_(bits).add_(0.5).mul_(2.0**-31)
    # -log(1 - u): near u = 0, where floats are dense, the time is shortest.
    return uniform.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_()


def first_to_come(p: Tensor, waits: Tensor) -> Tensor:
    """`argmax(log p + g)` for `waits = exp(-g)`, which it overwrites: `[rows, places]`.

    Distributed as `p` (the Gumbel-max trick), and free of any other randomness.
    """
    # log p + g = log(p / w): the same winner without two logarithms of the whole vocabulary.
    return torch.div(p, waits, out=waits).argmax(-1)

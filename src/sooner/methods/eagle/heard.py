"""What the target said and saw that the head has not been fed yet."""

from __future__ import annotations

import torch
from torch import Tensor

from ...decoding.interface import Outcome, Prompt
from ...errors import UnsupportedError


class HeardPrompt:
    """The prompt's embeddings and states, as the prefill passes them."""

    def __init__(self) -> None:
        self.embeds = torch.empty(0)
        self.lengths: list[int] = []
        self._states: list[Tensor] = []

    def hear(self, prompt: Prompt, start: int, states: Tensor) -> None:
        """Keep the states of the prompt's tokens from `start` on."""
        if not start:
            self.embeds, self.lengths, self._states = prompt.embeds, prompt.lengths, []
        self._states.append(states)

    @property
    def states(self) -> Tensor:
        """`[rows, width, hidden]`.

        Raises:
            UnsupportedError: a prefill context took tokens out on the way.
        """
        states = torch.cat(self._states, 1) if len(self._states) > 1 else self._states[0]
        if states.shape[1] != self.embeds.shape[1]:
            raise UnsupportedError(
                f"Eagle needs the states of all {self.embeds.shape[1]} prompt tokens, but a "
                f"prefill context left {states.shape[1]} of them; leave the context"
            )
        return states

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        index = torch.tensor(rows, device=self.embeds.device)
        self.embeds = self.embeds[index]
        self._states = [states[index.to(states.device)] for states in self._states]
        self.lengths = [self.lengths[row] for row in rows]

    def entries(self) -> tuple[Tensor, Tensor, list[int]]:
        """Embeddings of the token behind each state but the last, the states, and their number.

        The last prompt token's entry begins what was generated, see `Backlog`.
        """
        sizes = [length - 1 for length in self.lengths]
        return self.embeds[:, 1:], self.states[:, :-1], sizes


class Backlog:
    """Committed tokens behind the prompt, with the target's state in front of each."""

    def __init__(self) -> None:
        self._states: list[Tensor] = []  # of each round, [rows, entries, hidden]
        self._tokens: list[list[list[int]]] = []  # of each round and row

    def add(self, outcome: Outcome) -> None:
        """Take what a round committed."""
        width = max(len(path) for path in outcome.path)
        if all(len(path) == width for path in outcome.path) and width == 1:
            states = outcome.hidden[:, :1]
        else:
            padded = [path + [0] * (width - len(path)) for path in outcome.path]
            index = torch.tensor(padded, device=outcome.hidden.device)[..., None]
            states = outcome.hidden.gather(1, index.expand(-1, -1, outcome.hidden.shape[2]))
        self._states.append(states)
        self._tokens.append([list(new) for new in outcome.new])

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        self._states = [states[torch.tensor(rows, device=states.device)] for states in self._states]
        self._tokens = [[tokens[row] for row in rows] for tokens in self._tokens]

    def take(self) -> tuple[Tensor, Tensor, list[int]]:
        """All of it, packed: states `[rows, entries, hidden]`, tokens `[rows, entries]`, sizes."""
        rounds, rows = self._tokens, len(self._tokens[0])
        tokens = [[token for one in rounds for token in one[row]] for row in range(rows)]
        sizes = [len(row) for row in tokens]
        states = self._packed(max(sizes)) if len(rounds) > 1 else self._states[0]
        padded = [row + [0] * (max(sizes) - len(row)) for row in tokens]
        self._states, self._tokens = [], []
        return states, torch.tensor(padded, device=states.device), sizes

    def _packed(self, width: int) -> Tensor:
        """The states of several rounds with their padding moved to the end."""
        inside = torch.cat(
            [
                _inside([len(row) for row in tokens], states.shape[1], states.device)
                for states, tokens in zip(self._states, self._tokens, strict=True)
            ],
            1,
        )
        order = torch.where(inside, 0, 1).argsort(dim=1, stable=True)[:, :width]
        states = torch.cat(self._states, 1)
        return states.gather(1, order[..., None].expand(-1, -1, states.shape[2]))


def _inside(sizes: list[int], width: int, device: torch.device) -> Tensor:
    line = torch.arange(width, device=device)
    return line[None] < torch.tensor(sizes, device=device)[:, None]

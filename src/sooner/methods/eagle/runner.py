"""A draft head with its slot cache, and the target's states that it has not been fed yet."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...decoding.cache import SlotCache
from ...decoding.interface import Outcome, Prompt
from ...errors import UnsupportedError


class HeardPrompt:
    """The prompt's embeddings and states, as the prefill passes them."""

    def __init__(self) -> None:
        self.embeds = torch.empty(0)
        self.lengths: list[int] = []
        self._states: list[Tensor] = []

    def add(self, prompt: Prompt, start: int, states: Tensor) -> None:
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

    def join(self, other: Backlog, rows: int) -> None:
        """Put the backlog of `rows` rows that have just begun, which is empty, behind."""
        assert not other._states
        self._states = [
            torch.nn.functional.pad(states, (0, 0, 0, 0, 0, rows)) for states in self._states
        ]
        self._tokens = [tokens + [[] for _ in range(rows)] for tokens in self._tokens]

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


class HeadRunner:
    """Runs a head over committed entries and over the levels of a tree behind them.

    Entry `i` of a row is the target's state `f_i` with the embedding of the token behind it, and
    lies in slot `i`. Entries of tree levels are written behind the committed ones and are gone
    with the next `feed`: what was accepted comes back with the target's own states.

    Args:
        head: the draft head, or what has its methods.
        adapter: the target's adapter, for its embedding and LM head.
        capacity: slots a row, the largest tree included.
    """

    def __init__(self, head: Any, adapter: Any, capacity: int) -> None:
        self.head = head
        self.adapter = adapter
        self.cache = SlotCache(1, capacity)
        line = torch.arange(capacity, device=head.device)
        self._rotation = head.rotation(line[None])  # of every position, each [1, 1, slots, dim]
        self._slots = line

    @property
    def lengths(self) -> list[int]:
        """Committed entries of each row."""
        return self.cache.lengths

    @property
    def visible(self) -> Tensor:
        """Additive mask of what a token behind the committed ones sees, `[rows, 1, capacity]`."""
        return self._additive(self._slots < self.cache.lengths_on(self.head.device)[:, None])[
            :, None
        ]

    def remember(self, embeds: Tensor, states: Tensor, sizes: list[int]) -> None:
        """Commit the entries of prompts, whose estimates nobody asks for.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row.
        """
        if embeds.shape[1]:
            fused = self.head.fuse(embeds.to(self.head.device), states.to(self.head.device))
            rotation = self._at(self._slots[None, : embeds.shape[1]])
            self.cache.update(*self.head.keys_values(fused, rotation), 0)
        self.cache.set_lengths(sizes)

    def feed(self, embeds: Tensor, states: Tensor, sizes: list[int]) -> Tensor:
        """Commit entries behind each row; the estimate of its last one, `[rows, 1, hidden]`.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row, at least one.
        """
        head, cache, entries = self.head, self.cache, embeds.shape[1]
        cache.reserve(entries)
        slots = self._behind(cache.lengths, entries)
        fused = head.fuse(embeds.to(head.device), states.to(head.device))
        keys, values = cache.update(*head.keys_values(fused, self._at(slots)), 0)
        cache.set_lengths([have + size for have, size in zip(cache.lengths, sizes, strict=True)])
        last, slots, mask = fused[:, -1:], slots[:, -1:], None
        if not cache.is_uniform or min(sizes) < entries:
            index = torch.tensor(sizes, device=fused.device)[:, None] - 1  # [rows, 1]
            last = fused.gather(1, index[..., None].expand(-1, -1, fused.shape[2]))
            slots = cache.lengths_on(fused.device)[:, None] - 1
            mask = self._additive(self._slots[None, : keys.shape[2]] <= slots)[:, None, None]
        queries = head.queries(last, self._at(slots))
        return head.estimate(last, head.attend(queries, keys, values, mask))

    def level(
        self, tokens: Tensor, states: Tensor, depth: int, visible: Tensor, written: int
    ) -> tuple[Tensor, Tensor]:
        """Forward one level of trees, uncommitted.

        Args:
            tokens: `[rows, entries]`.
            states: the estimates that each of them follows, `[rows, entries, hidden]`.
            depth: how far the level lies behind the committed entries; 0 is right behind them.
            visible: additive mask of what their parents see, `[rows, entries, capacity]`.
            written: entries of upper levels.

        Returns:
            The estimates `[rows, entries, hidden]`, and what each entry itself sees.
        """
        head, cache, committed = self.head, self.cache, self.cache.lengths
        entries, width = tokens.shape[1], cache.longest + written + tokens.shape[1]
        rotation = self._at(self._behind(committed, 1) + depth)
        own = self._behind([length + written for length in committed], entries)
        visible = visible.scatter(2, own.expand(len(committed), -1)[..., None], 0.0)
        fused = head.fuse(self.adapter.embed_tokens(tokens).to(head.device), states)
        keys, values = head.keys_values(fused, rotation)
        cache.reserve(written + entries)
        cache.set_lengths([length + written for length in committed])
        keys, values = cache.update(keys, values, 0)
        cache.set_lengths(committed)
        queries = head.queries(fused, rotation)
        attended = head.attend(queries, keys, values, visible[:, None, :, :width])
        return head.estimate(fused, attended), visible

    def logits(self, states: Tensor) -> Tensor:
        """The target's LM head on estimates: `[rows, entries, vocab]`."""
        return self.adapter.logits(states.to(self.adapter.dtype))

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        self.cache.keep_rows(rows)

    def join(self, other: HeadRunner) -> None:
        """Put the rows of `other` behind these."""
        self.cache.join(other.cache)
        if other._slots.shape[0] > self._slots.shape[0]:
            self._slots, self._rotation = other._slots, other._rotation

    def _behind(self, lengths: list[int], entries: int) -> Tensor:
        """Slots of `entries` entries behind each row, `[rows or 1, entries]`."""
        if min(lengths) == max(lengths):
            return self._slots[None, lengths[0] : lengths[0] + entries]
        starts = torch.tensor(lengths, device=self._slots.device)[:, None]
        return starts + self._slots[:entries]

    def _at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation of positions `slots [rows or 1, entries]`."""
        cos, sin = self._rotation
        return cos[0, 0][slots][:, None], sin[0, 0][slots][:, None]

    def _additive(self, seen: Tensor) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=self.head.dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(mask.dtype).min)

"""Adapters of made-up models for whole runs of the engine, and those runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fakes import Table
from sooner.engine import loop
from sooner.engine.cache import SlotCache
from sooner.engine.grid import TokenGrid
from sooner.engine.hf_border import params_of
from sooner.engine.interface import Prompt, cache_of
from sooner.engine.stats.run import Stats
from sooner.methods import base, speculative
from sooner.methods.dflash.model import DFlashConfig
from sooner.methods.eagle.head import DraftHead


class FakeAdapter:
    """A model whose next token follows a `Table`, behind the adapter's interface.

    It has one layer, and its keys are the tokens and positions themselves: what a block entry sees
    through the real cache, mask and positions *is* its prefix, so a wrong slot, mask or position
    gives another distribution, or trips an assertion.

    Args:
        table: distributions of the generated tokens, whatever the prompt.
    """

    layers, max_positions, grid, speaks_prompt = 1, None, None, True
    takes_blocks = chains_only = False  # `decode` reads masks
    windows: ClassVar[dict[str, Any]] = {}
    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.model = self
        self.vocab_size = table.vocab
        self.forwards: list[int] = []
        self.decoder = SimpleNamespace(layers=nn.ModuleList([nn.Identity()]), parameters=tuple)
        self.text_config = SimpleNamespace(hidden_size=table.vocab)

    def open_cache(self, capacity: int) -> SlotCache:
        return SlotCache(self.layers, capacity)

    def may_split(self, prompt: Prompt) -> bool:
        return True

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """Prompt tokens are `vocab`, which nothing generated can be."""
        lengths = inputs["attention_mask"].sum(1).tolist()
        rows, width = len(lengths), max(lengths)
        return Prompt(
            embeds=torch.full((rows, width, 1), float(self.vocab_size)),
            positions=torch.arange(width).expand(rows, -1),
            lengths=lengths,
            next_position=torch.tensor(lengths),
            visual=torch.zeros(rows, width, dtype=torch.bool),
        )

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        return tokens[..., None].float()

    def step_extras(self, tokens: Tensor) -> dict[str, Any]:
        return {}

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        rows, entries = embeds.shape[:2]
        self.forwards.append(entries)
        where = positions.expand(rows, -1)[..., None].float()
        states = torch.cat([embeds, where], -1)[:, None]  # [rows, 1 head, entries, 2]
        seen, _ = cache_of(kwargs).update(states, states, 0)
        prefix = self._prefixes(seen[:, 0], where[..., 0], kwargs["attention_mask"])
        return self._distributions(prefix, seen[:, 0, 0, 0])

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.log()

    def _distributions(self, prefix: Tensor, first: Tensor) -> Tensor:
        """Returns distributions of numbered prefixes `[rows, entries]` behind prompts that
        begin with `first [rows]`.
        """
        return self.table.at(prefix)

    def _prefixes(self, seen: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Numbered prefix of each entry, `[rows, entries]`, from the slots that it may see."""
        entries, slots = positions.shape[1], seen.shape[1]
        if mask is None:
            visible = torch.ones(entries, slots, dtype=torch.bool).tril(slots - entries)[None]
        else:
            visible = mask[:, 0] == 0
        visible = visible.expand(len(positions), -1, -1)
        numbers = torch.zeros(positions.shape, dtype=torch.long)
        place = torch.where(visible, seen[:, None, :, 1], torch.inf)  # [rows, entries, slots]
        order = place.argsort(-1)
        tokens = seen[:, None, :, 0].expand_as(place).gather(-1, order).long()
        places = place.gather(-1, order)
        line = torch.arange(slots)
        assert bool(((places == line) | places.isinf()).all()), "positions are not 0, 1, 2, ..."
        assert bool((visible.sum(-1) == positions + 1).all()), (
            "an entry sees too much or too little"
        )
        for slot in range(slots):
            token = tokens[..., slot]
            speaks = (line[slot] <= positions) & (token < self.vocab_size)
            numbers = torch.where(speaks, self.table.extend(numbers, token), numbers)
        return numbers


class FakeHead(DraftHead):
    """A draft head for a `FakeAdapter`: its next state is a guess at the next distribution.

    It weighs the distribution that it is given, `f`, by a table of the token that followed, `e`,
    which has the shape of a trained head's work and keeps nothing of the past.

    Args:
        vocab: the table's.
        seed: seeds the weights.
        drafted: a reduced vocabulary: the only tokens that it can draft.
    """

    device, dtype = torch.device("cpu"), torch.float32  # type: ignore[assignment]

    def __init__(self, vocab: int, seed: int, drafted: tuple[int, ...] | None = None) -> None:
        super().__init__(SimpleNamespace(temperature=1.0))
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(vocab + 1, vocab, generator=generator)  # prompts say `vocab`
        self.drafted = drafted

    def check(self, adapter: Any) -> None:
        """It fits every fake."""

    @property
    def vocab_size(self) -> int | None:
        return None if self.drafted is None else len(self.drafted)

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        logits = super().scores(states, adapter)
        if self.drafted is None:
            return logits
        ids = torch.tensor(self.drafted)
        return torch.full_like(logits, -torch.inf).index_copy(-1, ids, logits[..., ids])

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        none = torch.zeros(1, 1, positions.shape[1], 1)
        return none, none

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        return states.log() + self.weights[embeds[..., 0].long()]

    def keys_values(self, fused: Tensor, rotation: Any) -> tuple[Tensor, Tensor]:
        return fused[:, None], fused[:, None]

    def queries(self, fused: Tensor, rotation: Any) -> Tensor:
        return fused[:, None]

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        return fused.softmax(-1)


class FakeBlockDrafter:
    """A DFlash drafter for a `FakeAdapter`: the marginals of a block follow from its anchor alone.

    Args:
        vocab: the table's.
        block_size: entries of a block.
        seed: seeds the marginals.
        token_ids: ids that it can draft; `None` is all.
        is_chain: a place also depends on the token before it.
    """

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(
        self,
        vocab: int,
        block_size: int,
        seed: int,
        token_ids: Sequence[int] | None = None,
        is_chain: bool = False,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.config = DFlashConfig(
            hidden_size=vocab, intermediate_size=1, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=2, block_size=block_size, mask_token_id=0, layers=(1,),
        )  # fmt: skip
        self.table = torch.randn(vocab, block_size, vocab, generator=generator)
        self.chain = torch.randn(vocab, vocab, generator=generator) if is_chain else None
        self.token_ids = None if token_ids is None else torch.tensor(token_ids)
        if token_ids is not None:
            lost = [token for token in range(vocab) if token not in token_ids]
            self.table[..., lost] = -torch.inf

    def check(self, adapter: Any) -> None:
        """It fits every fake."""

    def placed(self, target: Any) -> FakeBlockDrafter:
        return self

    def context(self, states: Tensor) -> Tensor:
        return states

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        none = torch.zeros(1, 1, positions.shape[1], 1)
        return none, none

    def keys_values(self, layer: int, entries: Tensor, rotation: Any) -> tuple[Tensor, Tensor]:
        return entries[:, None], entries[:, None]

    def embed(self, tokens: Tensor, adapter: Any) -> Tensor:
        return tokens

    def denoise(self, embeds: Tensor, rotation: Any, attend: Any) -> Tensor:
        return self.table[embeds[:, 0]]

    def logits(self, states: Tensor, adapter: Any) -> Tensor:
        return states

    def corrected_logits(
        self, token: Tensor, logits: Tensor, states: Tensor, memory: Any, adapter: Any
    ) -> tuple[Tensor, Any]:
        assert self.chain is not None
        return logits + self.chain[token], None


class FakeAssistant:
    """An assistant for a `FakeAdapter`: its next token follows from the last one and the number of
    tokens that its target has keys of.

    Args:
        vocab: the table's.
        seed: seeds what it says.
    """

    device, dtype = torch.device("cpu"), torch.float32
    config = SimpleNamespace(sliding_window=2)

    def __init__(self, vocab: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(vocab + 1, 2, vocab, generator=generator)

    def check(self, adapter: Any) -> None:
        """It fits every fake."""

    def placed(self, target: Any) -> FakeAssistant:
        return self

    def sources(self, adapter: Any) -> dict[str, int]:
        return {"full_attention": 0, "sliding_attention": 0}

    def rotations(self, positions: Tensor) -> Tensor:
        return positions

    def __call__(
        self, embeds: Tensor, states: Tensor, rotations: Tensor, attend: Any
    ) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros(len(embeds), 1, 1, 2)  # sees all tokens alike, and gives their mean
        mean = attend("full_attention", nothing)[:, 0, 0, 1]
        assert torch.allclose(mean, (rotations - 1) / 2), "it sees other tokens than are committed"
        near = attend("sliding_attention", nothing)[:, 0, 0, 1]
        seen = rotations.clamp(max=3)  # the last one, and a window before it
        assert torch.allclose(near, rotations - (seen + 1) / 2), "its window is another one"
        return states, self.table[embeds[:, 0, 0].long(), rotations % 2][:, None]


class FakeCanvas(FakeAdapter):
    """A fake that draws on a grid; the table speaks of what is generated, forbidden ids included.

    Args:
        table: distributions of the generated tokens.
        grid: layout; the ids of its codes and control tokens are symbols of the table.
    """

    def __init__(self, table: Table, grid: TokenGrid) -> None:
        super().__init__(table)
        self.grid = grid

    def joint(self) -> dict[tuple[int, ...], float]:
        """The probability of everything that may be generated: `table` without forbidden ids."""
        grid = self.grid
        row_tail = [grid.row_end, *grid.tail]
        kinds = grid.kinds()[grid.prefix :].tolist()
        choices = [range(*grid.codes) if not kind else [row_tail[kind - 1]] for kind in kinds]
        return {line: self._chance(line, choices) for line in itertools.product(*choices)}

    def _chance(self, line: tuple[int, ...], choices: list[Any]) -> float:
        chance, prefix = 1.0, 0
        for token, allowed in zip(line, choices, strict=True):
            weights = self.table.p[prefix]
            chance *= (weights[token] / weights[list(allowed)].sum()).item()
            prefix = prefix * self.table.vocab + token + 1
        return chance


class FakeGuided(FakeAdapter):
    """A fake with another table for prompts without their condition."""

    def __init__(self, table: Table, uncond: Table) -> None:
        super().__init__(table)
        self.uncond = uncond

    def guided_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        return {"input_ids": torch.cat([ids, ids + 1]), "attention_mask": mask.repeat(2, 1)}

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """Prompt tokens are `vocab`, and `vocab + 1` where the condition is left out."""
        prompt = super().embed_prompt(inputs)
        prompt.embeds = prompt.embeds + inputs["input_ids"][:, -1:, None]
        return prompt

    def _distributions(self, prefix: Tensor, first: Tensor) -> Tensor:
        is_free = (first > self.vocab_size)[:, None, None]
        return torch.where(is_free, self.uncond.at(prefix), self.table.at(prefix))

    def mixed(self, scale: float) -> Table:
        """The distributions that guidance of `scale` draws from, by its definition."""
        table = Table(self.table.vocab, self.table.length, seed=0)
        cond, uncond = self.table.p.log(), self.uncond.p.log()
        mixed = uncond + scale * (cond - uncond)
        table.p = mixed.masked_fill((self.table.p == 0) & (self.uncond.p == 0), -torch.inf).softmax(
            -1
        )
        return table


def adapt_fakes(monkeypatch: Any) -> None:
    """Let the real methods take `FakeAdapter`s where they take models."""
    for module in (base, speculative):
        monkeypatch.setattr(module, "adapt", lambda model: model)


def prompts(rows: int) -> dict[str, Tensor]:
    """Prompts of one to four tokens, padded on the left."""
    lengths = 1 + torch.arange(rows) % 4
    mask = (torch.arange(4)[None] >= 4 - lengths[:, None]).long()
    return {"input_ids": mask * 0, "attention_mask": mask}


def generate_ids(
    method: base.Method, target: FakeAdapter, rows: int, new: int, **options: Any
) -> Tensor:
    """Tokens `[rows, new]` of a run by `generate_with_stats`."""
    return generate_with_stats(method, target, rows, new, **options)[0]


def generate_with_stats(
    method: base.Method,
    target: FakeAdapter,
    rows: int,
    new: int,
    *,
    processors: Any = None,
    rule: loop.Rule | None = None,
    generator: torch.Generator | None = None,
    end: int | None = None,
    guidance: float = 1.0,
) -> tuple[Tensor, Stats]:
    """Tokens `[rows, new]` of a sampled run through the real session, loop, runner and cache, and
    the run's statistics.

    What lies behind the token `end` is -1.
    """
    params = params_of(
        processors or (), (), 4, rows, do_sample=True, max_new_tokens=new,
        stop_token_ids=frozenset(() if end is None else (end,)),
    )  # fmt: skip
    session = method.session(
        target,
        prompts(rows),
        params,
        generator=generator,
        guidance=guidance,
    )
    if rule is not None:
        session.rule = rule
    outputs = loop.run(session)
    return torch.tensor([row + [-1] * (new - len(row)) for row in outputs]), session.stats

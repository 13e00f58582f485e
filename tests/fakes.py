"""Models and draft trees with known distributions, for tests of the engine without any model.

A prefix of generated tokens is numbered like a heap: the empty one is 0, and one more token `x`
behind prefix `n` is `n * vocab + x + 1`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from scipy import stats as scipy_stats
from torch import Tensor
from transformers import MaxLengthCriteria, StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria

from sooner.decoding import loop
from sooner.decoding.grid import TokenGrid
from sooner.decoding.interface import Prompt
from sooner.decoding.noise import RowNoise
from sooner.decoding.tree import Tree
from sooner.methods import base, speculative
from sooner.stats.run import Stats

ERROR = 1e-4
"""Chance that a correct engine fails one chi-square test, were its seed not fixed."""


class Table:
    """A next-token distribution for every prefix shorter than `length`, all of them different.

    Args:
        vocab: number of symbols.
        length: longest sequence.
        seed: seeds the table.
        near: another table to lean towards, so that a draft agrees with it now and then.
        zeros: forbid one symbol after each prefix, as top-k does.
    """

    def __init__(
        self, vocab: int, length: int, seed: int, near: Table | None = None, zeros: bool = False
    ) -> None:
        self.vocab, self.length = vocab, length
        generator = torch.Generator().manual_seed(seed)
        count = sum(vocab**depth for depth in range(length))
        logits = 1.5 * torch.randn(count, vocab, generator=generator)
        if near is not None:
            logits = 0.6 * near.p.clamp(min=1e-6).log() + 0.5 * logits
        if zeros:
            logits[
                torch.arange(count), torch.randint(vocab, (count,), generator=generator)
            ] = -torch.inf
        self.p = logits.softmax(-1)  # [prefixes, vocab]

    def at(self, prefix: Tensor) -> Tensor:
        """Distributions behind numbered prefixes; those too long to matter get the last one."""
        return self.p[prefix.clamp(max=len(self.p) - 1)]

    def extend(self, prefix: Tensor, token: Tensor) -> Tensor:
        """Number of the prefix with one more token; too long a prefix stays too long."""
        longest = self.vocab * len(self.p) + self.vocab
        return (prefix * self.vocab + token + 1).clamp(max=longest)

    def joint(self) -> dict[tuple[int, ...], float]:
        """The probability of every sequence of `length` symbols."""
        return {
            sequence: self._chance(sequence)
            for sequence in itertools.product(range(self.vocab), repeat=self.length)
        }

    def _chance(self, sequence: tuple[int, ...]) -> float:
        chance, prefix = 1.0, 0
        for token in sequence:
            chance *= self.p[prefix, token].item()
            prefix = prefix * self.vocab + token + 1
        return chance


class Markov(Table):
    """A next-token distribution for each pair of last tokens, whatever the length.

    Args:
        vocab: number of symbols.
        seed: seeds the table.
        spread: standard deviation of the logits; large ones depend more on the context.
        smooth: how much symbols near the last ones are preferred, as in pictures.
    """

    def __init__(self, vocab: int, seed: int, spread: float = 1.0, smooth: float = 0.0) -> None:
        self.vocab, self.states = vocab, vocab + 1  # a token, or none yet
        generator = torch.Generator().manual_seed(seed)
        logits = spread * torch.randn(self.states**2, vocab, generator=generator)
        pairs = torch.arange(self.states**2)[:, None]
        for last in (pairs % self.states, pairs // self.states):
            away = (torch.arange(vocab) + 1 - last).abs()
            logits -= smooth * torch.where(last > 0, away, 0)
        self.p = logits.softmax(-1)  # [pairs, vocab]

    def extend(self, prefix: Tensor, token: Tensor) -> Tensor:
        return prefix % self.states * self.states + token + 1

    def behind(self, prefix: list[int]) -> int:
        """The pair that a prefix ends in."""
        pair = 0
        for token in prefix[-2:]:
            pair = pair % self.states * self.states + token + 1
        return pair


def chi_square(sequences: Tensor, joint: dict[tuple[int, ...], float]) -> float:
    """Chi-square p-value of observed `sequences [samples, length]` against `joint`.

    Cells with fewer than five expected samples are pooled. A sequence that can't occur gives 0.
    """
    samples = len(sequences)
    seen, counts = torch.unique(sequences, dim=0, return_counts=True)
    observed = {tuple(row): n for row, n in zip(seen.tolist(), counts.tolist(), strict=True)}
    if any(joint.get(sequence, 0.0) <= 0 for sequence in observed):
        return 0.0
    pairs = [(observed.get(cell, 0), chance * samples) for cell, chance in joint.items()]
    large = [pair for pair in pairs if pair[1] >= 5]
    rest = [pair for pair in pairs if pair[1] < 5]
    pooled = (sum(n for n, _ in rest), sum(e for _, e in rest))
    cells = [*large, pooled] if pooled[1] >= 5 else large
    total = sum((n - e) ** 2 / e for n, e in cells)
    return float(scipy_stats.chi2.sf(total, len(cells) - 1))


def drawn_tree(parents: list[int], q: Table, rows: int, replacement: bool = False) -> Tree:
    """The same tree shape for each row, siblings drawn from `q`, with its probabilities."""
    entries = torch.zeros(rows, 1 + len(parents), dtype=torch.long)  # numbered prefixes
    tokens = torch.zeros(rows, len(parents), dtype=torch.long)
    for above in sorted(set(parents)):
        nodes = [node for node, parent in enumerate(parents) if parent == above]
        at = entries[:, above + 1]
        drawn = torch.multinomial(q.at(at), len(nodes), replacement=replacement)
        tokens[:, nodes] = drawn
        for column, node in enumerate(nodes):
            entries[:, node + 1] = q.extend(at, drawn[:, column])
    shape = torch.tensor(parents).expand(rows, -1)
    is_chain = parents == list(range(-1, len(parents) - 1))
    return Tree.of(tokens, shape, [len(parents)] * rows, q.at(entries), is_chain=is_chain)


def fixed_tree(parents: list[int], tokens: list[int], rows: int) -> Tree:
    """The same deterministic tree for each row."""
    return Tree.from_lists([tokens] * rows, [parents] * rows)


def row_noise(rows: int, seed: int = 0) -> RowNoise:
    """Random numbers of rows 0, 1, ... at their first token."""
    return RowNoise.start(seed, torch.arange(rows))


def block_distributions(tree: Tree, p: Table) -> Tensor:
    """The target's distribution behind each block entry, `[rows, 1 + nodes, vocab]`."""
    entries = torch.zeros(tree.rows, 1 + tree.nodes, dtype=torch.long)
    here = torch.arange(tree.rows)
    for node in range(tree.nodes):
        above = entries[here, tree.parents[:, node] + 1]
        entries[:, node + 1] = p.extend(above, tree.tokens[:, node])
    return p.at(entries)


def completed(tree: Tree, verdict: Any, p: Table) -> Tensor:
    """What each row says after one round, then plainly on to the table's length."""
    rows, length = tree.rows, p.length
    said = torch.zeros(rows, length, dtype=torch.long)
    prefix = torch.zeros(rows, dtype=torch.long)
    for step in range(length):
        plain = torch.multinomial(p.at(prefix), 1)[:, 0]
        node = torch.zeros_like(plain)
        if step < verdict.path.shape[1]:
            node = (verdict.path[:, step] - 1).clamp(min=0)
        drafted = tree.tokens.gather(1, node[:, None])[:, 0]
        token = torch.where(step < verdict.accepted, drafted, plain)
        token = torch.where(step == verdict.accepted, verdict.bonus, token)
        said[:, step] = token
        prefix = p.extend(prefix, token)
    return said


class FakeAdapter:
    """A model whose next token follows a `Table`, behind the adapter's interface.

    It has one layer, and its keys are the tokens and positions themselves: what a block entry sees
    through the real cache, mask and positions *is* its prefix, so a wrong slot, mask or position
    gives another distribution, or trips an assertion.

    Args:
        table: distributions of the generated tokens, whatever the prompt.
    """

    layers, max_positions, grid, speaks_prompt = 1, None, None, True
    takes_blocks = False  # `decode` reads masks
    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.model = self
        self.vocab_size = table.vocab
        self.forwards: list[int] = []

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

    def generated_positions(self, positions: Tensor) -> Tensor:
        return positions

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        rows, entries = embeds.shape[:2]
        self.forwards.append(entries)
        where = positions.expand(rows, -1)[..., None].float()
        states = torch.cat([embeds, where], -1)[:, None]  # [rows, 1 head, entries, 2]
        seen, _ = kwargs["past_key_values"].update(states, states, 0)
        prefix = self._prefixes(seen[:, 0], where[..., 0], kwargs["attention_mask"])
        return self._distributions(prefix, seen[:, 0, 0, 0])

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.log()

    def _distributions(self, prefix: Tensor, first: Tensor) -> Tensor:
        """Of numbered prefixes `[rows, entries]` behind prompts that begin with `first [rows]`."""
        return self.table.at(prefix)

    def _prefixes(self, seen: Tensor, own: Tensor, mask: Tensor | None) -> Tensor:
        """Numbered prefix of each entry, `[rows, entries]`, from the slots that it may see."""
        entries, slots = own.shape[1], seen.shape[1]
        if mask is None:
            visible = torch.ones(entries, slots, dtype=torch.bool).tril(slots - entries)[None]
        else:
            visible = mask[:, 0] == 0
        visible = visible.expand(len(own), -1, -1)
        numbers = torch.zeros(own.shape, dtype=torch.long)
        place = torch.where(visible, seen[:, None, :, 1], torch.inf)  # [rows, entries, slots]
        order = place.argsort(-1)
        tokens = seen[:, None, :, 0].expand_as(place).gather(-1, order).long()
        places = place.gather(-1, order)
        line = torch.arange(slots)
        assert bool(((places == line) | places.isinf()).all()), "positions are not 0, 1, 2, ..."
        assert bool((visible.sum(-1) == own + 1).all()), "an entry sees too much or too little"
        for slot in range(slots):
            token = tokens[..., slot]
            speaks = (line[slot] <= own) & (token < self.vocab_size)
            numbers = torch.where(speaks, self.table.extend(numbers, token), numbers)
        return numbers


class FakeHead:
    """A draft head for a `FakeAdapter`: its next state is a guess at the next distribution.

    It weighs the distribution that it is given, `f`, by a table of the token that followed, `e`,
    which has the shape of a trained head's work and keeps nothing of the past.

    Args:
        vocab: the table's.
        seed: seeds the weights.
    """

    device, dtype = torch.device("cpu"), torch.float32
    temperature = 1.0

    def __init__(self, vocab: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(vocab + 1, vocab, generator=generator)  # prompts say `vocab`

    def check(self, adapter: Any) -> None:
        """It fits every fake."""

    def to(self, *_: Any) -> FakeHead:
        return self

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        none = torch.zeros(1, 1, positions.shape[1], 1)
        return none, none

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        return states.log() + self.weights[embeds[..., 0].long()]

    def keys_values(self, fused: Tensor, rotation: Any) -> tuple[Tensor, Tensor]:
        return fused[:, None], fused[:, None]

    def queries(self, fused: Tensor, rotation: Any) -> Tensor:
        return fused

    def attend_block(self, queries: Tensor, keys: Tensor, values: Tensor, block: Any) -> Tensor:
        return queries

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        return fused.softmax(-1)


class FakeCanvas(FakeAdapter):
    """A fake that draws on a grid; the table speaks of what is generated, forbidden ids included.

    Args:
        table: distributions of the generated tokens.
        grid: layout; the ids of its codes and control tokens are symbols of the table.
        codebook: what each code stands for, `[codes, features]`.
    """

    def __init__(self, table: Table, grid: TokenGrid, codebook: Tensor | None = None) -> None:
        super().__init__(table)
        self.grid = grid
        if codebook is not None:
            self.codebook = codebook

    def joint(self) -> dict[tuple[int, ...], float]:
        """The probability of everything that may be generated: `table` without forbidden ids."""
        grid = self.grid
        wanted = [grid.row_end, *grid.tail]
        kinds = grid.kinds()[grid.given :].tolist()
        choices = [range(*grid.codes) if not kind else [wanted[kind - 1]] for kind in kinds]
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
    monkeypatch.setattr(base, "adapt", lambda model: model)
    monkeypatch.setattr(speculative, "adapt", lambda model: model)


def prompts(rows: int) -> dict[str, Tensor]:
    """Prompts of one to four tokens, padded on the left."""
    lengths = 1 + torch.arange(rows) % 4
    mask = (torch.arange(4)[None] >= 4 - lengths[:, None]).long()
    return {"input_ids": mask * 0, "attention_mask": mask}


def say(
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
    requests: Sequence[int] | None = None,
) -> Tensor:
    """Tokens `[rows, new]` of a sampled run through the real session, loop, runner and cache.

    What lies behind the token `end` is -1.
    """
    return say_with_stats(
        method,
        target,
        rows,
        new,
        processors=processors,
        rule=rule,
        generator=generator,
        end=end,
        guidance=guidance,
        requests=requests,
    )[0]


def say_with_stats(
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
    requests: Sequence[int] | None = None,
) -> tuple[Tensor, Stats]:
    """What `say` says, and the run's statistics."""
    criteria = StoppingCriteriaList([MaxLengthCriteria(4 + new)])
    if end is not None:
        criteria.append(EosTokenCriteria(eos_token_id=torch.tensor([end])))
    session = method.session(
        target,
        prompts(rows),
        processors=processors,
        criteria=criteria,
        do_sample=True,
        generator=generator,
        guidance=guidance,
        requests=requests,
    )
    if rule is not None:
        session.rule = rule
    said = loop.run(session)
    return torch.tensor([row + [-1] * (new - len(row)) for row in said]), session.stats

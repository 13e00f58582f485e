"""Drafts of a drafter that is never right cost nothing, and are noticed once they are right."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sooner.methods.aligned.alignment import Alignment
from sooner.methods.aligned.drafter import AlignedDrafter
from sooner.methods.aligned.index import DraftIndex
from sooner.methods.aligned.nodes import MeasuredNodes, NodeCount
from sooner.methods.aligned.prior import NAMES, Experience

WORDS, SPACE, LINE = range(2, 1000), 0, 1


def written(rng: random.Random, words: range = WORDS, tokens: int = 130) -> list[int]:
    """Words of two tokens with spaces, a line after some of them."""
    text: list[int] = []
    while len(text) < tokens:
        text += [rng.choice(words), rng.choice(words), SPACE if rng.random() < 0.8 else LINE]
    return text


@dataclass
class Page:
    """A row: what the target says, and how far it is."""

    text: list[int]
    row: Alignment
    output: int = 1


@dataclass
class Engine:
    """Pages over one engine, by a made-up clock.

    A round takes `1 + 0.15 * rows + 0.06 * drafted tokens` plain steps, times `noise`. Following a
    row's text through its drafts takes `host`.
    """

    slots: int = 16
    host: float = 0.01
    noise: float = 0.0
    drafter: str = "ocr"
    experience: Experience = field(default_factory=Experience)
    seconds: float = 0.0
    followed: int = 0
    rounds: int = 0
    row_rounds: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(7)
        self.sizing: NodeCount = MeasuredNodes(64, self.experience)
        params = SimpleNamespace(host=[], failed=[])
        self.context: Any = SimpleNamespace(
            processing=SimpleNamespace(params_of=lambda row: params)
        )

    def time(self, rows: int, nodes: int) -> float:
        took = 1 + 0.15 * rows + 0.06 * rows * nodes
        return took * (1 + self.noise * self.rng.random() ** 4)

    def parse(self, texts: list[list[int]], drafts: list[list[list[int]]]) -> list[list[int]]:
        """What each page said; the texts are what plain decoding says."""
        waiting = list(zip(texts, drafts, strict=True))
        done: list[list[int]] = []
        drafter = AlignedDrafter(self.context, [], self.sizing, depth=64, width=8)
        pages: list[Page] = []
        while waiting or pages:
            new: list[list[int]] = [[] for _ in pages]
            if pages:
                new = self._round(pages, drafter)
            stay = [at for at, page in enumerate(pages) if page.output < len(page.text)]
            done += [page.text[: page.output] for page in pages if page.output >= len(page.text)]
            pages, new = [pages[at] for at in stay], [new[at] for at in stay]
            if waiting and len(pages) < self.slots:  # one joins a step
                text, draft = waiting.pop(0)
                row = Alignment(DraftIndex(draft), self.experience.of(self.drafter), [LINE])
                pages.append(Page(text, row))
                new.append(text[:1])
            drafter.rows = [self._counted(page.row) for page in pages]
            if pages:
                self.tree = drafter.propose(self._outcome(pages, new))
        return done

    def _counted(self, row: Alignment) -> Any:
        real, engine = type(row).advance, self

        def advance(new: Sequence[int]) -> None:
            engine.followed += 1
            engine.seconds += engine.host
            real(row, new)

        row.advance = advance  # type: ignore[method-assign]
        return row

    def _outcome(self, pages: list[Page], new: list[list[int]]) -> Any:
        def then(listener: Any) -> None:
            if self.rounds:
                listener(self.took)

        return SimpleNamespace(
            new=new,
            budget=[len(page.text) - page.output for page in pages],
            hidden=torch.empty(0),
            is_first=not self.rounds,
            round_time=SimpleNamespace(then=then),
        )

    def _round(self, pages: list[Page], drafter: AlignedDrafter) -> list[list[int]]:
        tree, new = self.tree, []
        sizes = tree.sizes.tolist()
        for at, page in enumerate(pages):
            parent, accepted = -1, 0
            tokens, parents = tree.tokens[at].tolist(), tree.parents[at].tolist()
            while True:
                target = page.text[page.output + accepted]
                hits = [
                    node
                    for node in range(sizes[at])
                    if parents[node] == parent and tokens[node] == target
                ]
                accepted += 1
                if not hits or page.output + accepted >= len(page.text):
                    break
                parent = hits[0]
            new.append(page.text[page.output : page.output + accepted])
            page.output += accepted
        self.took = self.time(len(pages), tree.nodes)
        self.seconds += self.took
        self.rounds += 1
        self.row_rounds += len(pages)
        return new

    def plainly(self, texts: list[list[int]]) -> float:
        """Seconds of the same pages without drafts."""
        other = Engine(self.slots, 0.0, self.noise, experience=Experience())
        other.sizing = NodeCount(1)
        other.parse(texts, [[] for _ in texts])
        return other.seconds


def garbage(rng: random.Random, text: list[int]) -> list[list[int]]:
    """Words that no page has, in lines where the page has some."""
    return [written(rng, range(1000, 2000), 24) for _ in range(len(text) // 24)]


def lines(rng: random.Random, text: list[int], wrong: float = 0.03) -> list[list[int]]:
    """The page's text, one draft a line, some tokens wrong."""
    drafts: list[list[int]] = [[]]
    for token in text:
        if token == LINE:
            drafts.append([])
        else:
            drafts[-1].append(token if rng.random() >= wrong else rng.choice(WORDS))
    rng.shuffle(drafts)
    return [draft for draft in drafts if draft]


def pages(slots: int, many: int = 64) -> tuple[random.Random, list[list[int]]]:
    rng = random.Random(slots)
    return rng, [written(rng) for _ in range(many)]


@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("many", [16, 64])
def test_garbage_costs_no_more_than_plain_decoding(slots: int, noise: float, many: int) -> None:
    rng, texts = pages(slots, many)
    engine = Engine(slots, noise=noise)
    outputs = engine.parse(texts, [garbage(rng, text) for text in texts])
    assert sorted(outputs) == sorted(texts)
    assert engine.plainly(texts) / engine.seconds >= 0.97
    assert engine.followed < 0.25 * engine.row_rounds, "most rounds are plain decoding's"


@pytest.mark.parametrize("slots", [1, 4, 16])
def test_a_good_drafter_is_never_left_alone(slots: int) -> None:
    took = []
    for name in ("ocr", ""):
        rng, texts = pages(slots)
        engine = Engine(slots, drafter=name)
        outputs = engine.parse(texts, [lines(rng, text) for text in texts])
        assert sorted(outputs) == sorted(texts)
        took.append(engine.seconds)
    assert took[0] <= 1.03 * took[1]
    assert engine.plainly(texts) > 1.7 * took[0]


@pytest.mark.parametrize("slots", [1, 4, 16])
def test_a_folder_that_changes_is_noticed_within_a_page(slots: int) -> None:
    rng, texts = pages(slots)
    fresh, engine = Engine(slots), Engine(slots)
    engine.parse(texts, [garbage(rng, text) for text in texts])
    prior = engine.experience.of("ocr")
    assert prior.is_idle
    better = [lines(rng, text) for text in texts[:16]]
    before = engine.seconds
    engine.parse(texts[:16], better)
    fresh.parse(texts[:16], better)
    assert not prior.is_idle
    assert engine.seconds - before <= 1.15 * fresh.seconds


def test_drafters_are_separated_and_bounded() -> None:
    experience = Experience()
    assert experience.of("") is experience.prior
    first = experience.of("0")
    assert experience.of("0") is first is not experience.of("1")
    for number in range(2, NAMES + 1):
        experience.of(str(number))
    assert experience.of("0") is not first

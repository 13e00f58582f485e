"""Grammars under every way to draft: what they forbid is never verified, answers are the same."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from page_prompts import SLOTS
from serve.real_service import planned, shaken, target
from serve.spoken import byte_level, ids_of
from serve.stub_engine import StubClock
from serve.test_openai_grammar import PERSON, matcher_of
from sooner import HSD, Autoregressive, Eagle, EagleHead, Engine, PromptLookup, SDTree, Speculative
from sooner.engine import loop as decoding_loop
from sooner.engine.memory import manager
from sooner.methods.sd_tree import STATIC_TREE
from sooner.serve.engine_thread import EngineThread, ServedRequest, Tokens
from sooner.serve.openai.grammar import GuidanceMatcher

pytest.importorskip("llguidance")

NEW = 30
END = byte_level().eos_token_id
PROMPT = ids_of('the {"name": "the fox", "city": "Basel"} and {"name": the {"name": "{"name"')
"""So that looking up finds tokens that the grammar allows, and others."""
WRONG = ids_of('{"name": the fox", "city": "Bern", "name": "the"}')
SAMPLING = {"greedy": {"do_sample": False}, "drawn": {"do_sample": True, "temperature": 1.2}}


@functools.cache
def head() -> Any:
    torch.manual_seed(0)
    return EagleHead.for_target(target())


METHODS: dict[str, Any] = {
    "plain": Autoregressive,
    "prompt-lookup": lambda: PromptLookup(num_draft_tokens=5, max_ngram=2),
    "hsd": lambda: HSD(drafts=[[]], nodes=8),
    "speculative": lambda: Speculative(shaken(), num_draft_tokens=4),
    "sd-tree": lambda: SDTree(shaken(), STATIC_TREE),
    "eagle": lambda: Eagle(head(), nodes=8),
}


class Ear:
    """A client."""

    def __init__(self, sampling: str, grammar: Any = None, **fields: Any) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.end: ServedRequest | None = None
        self.fields = {
            "sampling": SAMPLING[sampling], "seed": 5, "grammar": grammar,
            "prediction": WRONG, "sink": self.record, **fields,
        }  # fmt: skip

    def request(self, method: Any) -> ServedRequest:
        self.made = planned(method, PROMPT, NEW, stops=[END], **self.fields)
        return self.made

    def record(self, event: Tokens | None) -> None:
        if event is not None:
            self.ids += event.ids
            self.logprobs += [entry.logprob for entry in event.logprobs or ()]
        else:
            self.end = self.made


def decode(name: str, *ears: Ear, pages: int | None = None) -> int:
    """Decode together; returns how often a row made room, if there are so few pages."""
    method = METHODS[name]()
    engine = Engine(target(), method, max_rows=4, pages=pages)
    loop = EngineThread(lambda: engine, clock=StubClock())
    loop.open()
    requests = []
    for ear in ears:
        if name == "plain":
            ear.fields["prediction"] = None  # which any method would draft from
        requests.append(ear.request(method))
        loop.submit(requests[-1])
    loop.run_commands()
    while loop.requests:
        loop.step()
    engine.close()
    return sum(request.num_preemptions for request in requests)


@functools.cache
def plainly(sampling: str, bound: bool) -> list[int]:
    """What plain decoding says alone, under the grammar or without."""
    ear = Ear(sampling, matcher_of(PERSON) if bound else None)
    decode("plain", ear)
    assert ear.end is not None
    assert ear.end.error is None
    return ear.ids


class Watch:
    """Looks at every tree before it is verified."""

    def __init__(self, patch: pytest.MonkeyPatch, ear: Ear) -> None:
        self.nodes = self.forbidden = 0
        usual = decoding_loop.step

        def step(runner: Any, tree: Any, *args: Any) -> Any:
            if tree.nodes:
                self.look(ear.ids, tree)
            return usual(runner, tree, *args)

        patch.setattr(decoding_loop, "step", step)

    def look(self, generated: list[int], tree: Any) -> None:
        matcher, many = matcher_of(PERSON), int(tree.sizes[0])
        matcher.accept(generated)
        tokens, parents = tree.tokens[0, :many].tolist(), tree.parents[0, :many].tolist()
        allowed = matcher.masks(tokens, parents)[1].tolist()
        over: list[bool] = []  # behind an end, where nothing is ever said
        for parent in parents:
            over.append(parent >= 0 and (over[parent] or tokens[parent] == END))
        self.nodes += many
        self.forbidden += sum(
            not (fine or ended) for fine, ended in zip(allowed, over, strict=True)
        )


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", list(METHODS)[1:])
def test_what_a_grammar_forbids_is_never_verified(
    name: str, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear(sampling, matcher_of(PERSON))
    watch = Watch(monkeypatch, ear)
    decode(name, ear)
    assert ear.end is not None
    assert ear.end.error is None
    assert watch.nodes > 0
    assert watch.forbidden == 0
    assert ear.ids == plainly(sampling, True) != plainly(sampling, False)


@pytest.mark.parametrize("name", METHODS)
def test_bound_and_free_requests_share_a_batch(name: str) -> None:
    ears = [
        Ear("greedy", matcher_of(PERSON)), Ear("drawn"), Ear("drawn", matcher_of(PERSON)),
        Ear("greedy"),
    ]  # fmt: skip
    decode(name, *ears)
    cases = [("greedy", True), ("drawn", False), ("drawn", True), ("greedy", False)]
    assert [ear.ids for ear in ears] == [plainly(*case) for case in cases]


@pytest.mark.parametrize("name", ["plain", "prompt-lookup", "speculative", "sd-tree"])
def test_a_row_that_makes_room_goes_on_under_its_grammar(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "PAGE", SLOTS)
    block = METHODS[name]().largest_block()
    each = -(-(len(PROMPT) + NEW + block) // SLOTS)
    ears = [
        Ear(sampling, matcher_of(PERSON), num_draft_tokens=3, logprobs=0)
        for sampling in ("greedy", "drawn")
    ]
    ears.append(Ear("greedy", logprobs=0))
    assert decode(name, *ears, pages=each + -(-NEW // SLOTS)) > 0
    free = Ear("drawn", matcher_of(PERSON), logprobs=0)
    decode("plain", free)
    assert [ear.ids for ear in ears] == [
        plainly("greedy", True), plainly("drawn", True), plainly("greedy", False),
    ]  # fmt: skip
    assert all(len(ear.logprobs) == len(ear.ids) for ear in ears)
    assert ears[1].logprobs == pytest.approx(free.logprobs, abs=2e-4)


class Failing(GuidanceMatcher):
    """A grammar that breaks down after some tokens.

    Args:
        where: `masks` or `accept`.
    """

    def __init__(self, where: str, after: int) -> None:
        inner = matcher_of({"type": "object"})
        super().__init__(inner.matcher, inner.vocab_size, inner.stop_token_ids)
        self.where, self.left = where, after

    def masks(self, tokens: Any, parents: Any) -> Any:
        self._fail("masks")
        return super().masks(tokens, parents)

    def accept(self, ids: Any) -> None:
        self._fail("accept")
        self.left -= len(ids)
        super().accept(ids)

    def _fail(self, where: str) -> None:
        if where == self.where and self.left <= 0:
            raise RuntimeError("the grammar is broken")


@pytest.mark.parametrize("where", ["masks", "accept"])
@pytest.mark.parametrize("name", METHODS)
def test_a_grammar_that_breaks_down_ends_its_request_alone(name: str, where: str) -> None:
    ears = [Ear("greedy"), Ear("greedy", Failing(where, 3)), Ear("drawn", matcher_of(PERSON))]
    decode(name, *ears)
    good, bad, bound = ears
    assert bad.end is not None
    assert (bad.end.finish_reason, str(bad.end.error)) == ("error", "the grammar is broken")
    assert len(bad.ids) < 10
    assert good.ids == plainly("greedy", False)
    assert bound.ids == plainly("drawn", True)

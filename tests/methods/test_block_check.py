"""Blocks that are decoded again, plainly: planted bugs are noticed, sound runs stay as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from torch import Tensor

import sooner
import tiny
from method_matrix import METHODS
from methods.test_engine import greedy
from recorders import StandIn
from sooner.engine.acceptance import VerifyResult
from sooner.engine.cache import SlotCache
from sooner.engine.interface import Drafter
from sooner.engine.loop import Rule
from sooner.engine.noise import RowNoise
from sooner.engine.runner import Forward, ModelRunner
from sooner.engine.sampling import Processing
from sooner.engine.tree import Tree
from sooner.errors import SoonerError
from sooner.methods.context import Context

LENGTH, SHORT = 40, 16
SAMPLED: dict[str, Any] = {
    "max_new_tokens": LENGTH, "do_sample": True, "temperature": 0.8, "top_k": 20,
    "eos_token_id": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "graphs"), [("noisy-4", None), ("sd-tree", None), ("eagle", None), ("eagle", StandIn)]
)
def test_sound_runs_of_thirty_prompts_raise_nothing(name: str, graphs: Any) -> None:
    """Every block of every prompt is decoded again, and the tokens stay what they were."""
    model, checked = tiny.model("llama"), 0
    options: dict[str, Any] = {} if graphs is None else {"graphs": graphs()}
    method = METHODS[name]("llama")
    for seed in range(6):
        inputs = tiny.inputs("llama", "text", 5, seed)
        made = sooner.generate(model, inputs, method, verify_every=1, **options, **greedy(SHORT))
        assert made.tokens == sooner.generate(model, inputs, **greedy(SHORT)).tokens
        assert not made.stats.alarms
        checked += made.stats.num_checked_blocks
    assert checked > 60


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("options", [greedy(LENGTH), SAMPLED], ids=["greedy", "sampled"])
def test_requests_that_come_and_go_are_checked_and_left_as_they_are(
    options: dict[str, Any], is_paged: bool
) -> None:
    model, method = tiny.model("qwen2_5_vl"), METHODS["sd-tree"]("qwen2_5_vl")
    prompts = [tiny.inputs("qwen2_5_vl", kind, 1, 1) for kind in ("text", "video", "image")]

    def tokens(every: int | None) -> tuple[Any, sooner.Engine]:
        memory: dict[str, Any] = {"pages": 40, "paged": True} if is_paged else {}
        engine = sooner.Engine(model, method, max_rows=2, verify_every=every, **memory)
        limited = {**options, "max_new_tokens": SHORT}
        requests = [engine.add_request(prompt, seed=3, **limited) for prompt in prompts]
        engine.run()
        return [request.tokens for request in requests], engine

    (expected, _), (ours, engine) = tokens(None), tokens(2)
    assert ours == expected
    assert not engine.alarms


@dataclass(frozen=True)
class WrongRule(sooner.Speculative):
    """The token behind a draft is another than the target's, if one was accepted."""

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        drafter, rule = super().build(context)

        def wrong(
            tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
        ) -> VerifyResult:
            made = rule(tree, scores, processing, noise)
            if not tree.nodes:
                return made
            return replace(made, bonus=(made.bonus + (made.accepted > 0)) % tiny.VOCAB)

        return drafter, wrong


def wrong_rule(patch: pytest.MonkeyPatch) -> sooner.Method:
    return WrongRule(tiny.noisy("llama"), num_draft_tokens=3)


def wrong_mask(patch: pytest.MonkeyPatch) -> sooner.Method:
    """Nodes of a tree see their siblings."""
    forward = ModelRunner.forward_tree

    def broken(self: ModelRunner, roots: Tensor, tree: Tree) -> Forward:
        return forward(self, roots, replace(tree, is_chain=True))

    patch.setattr(ModelRunner, "forward_tree", broken)
    return METHODS["sd-tree"]("llama")


def wrong_path(patch: pytest.MonkeyPatch) -> sooner.Method:
    """Slots of accepted nodes stay where the tree had them."""
    commit = SlotCache.commit_path

    def broken(self: SlotCache, path: Tensor, entries: Tensor, is_chain: bool) -> None:
        commit(self, path, entries, True)

    patch.setattr(SlotCache, "commit_path", broken)
    return METHODS["sd-tree"]("llama")


@pytest.mark.parametrize("options", [greedy(LENGTH), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("fault", [wrong_rule, wrong_mask, wrong_path])
def test_a_planted_bug_is_noticed_and_ends_drafting(
    fault: Callable[[pytest.MonkeyPatch], sooner.Method],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if fault is wrong_rule and options is SAMPLED:
        pytest.skip("what was drawn is the rule's own: distribution tests are for that")
    model, inputs = tiny.model("llama"), tiny.inputs("llama", "text", 1)
    blocks: list[int] = []

    def see(row: int, tokens: list[int], drafted: int) -> None:
        blocks.append(len(tokens))

    method = fault(monkeypatch)
    with caplog.at_level(logging.WARNING, "sooner"):
        stats = sooner.generate(
            model, inputs, method, verify_every=1, on_tokens=see, seed=0, **options
        ).stats
    assert stats.alarms == {"mismatch": 1}
    (note,) = [text for text in stats.notes if "not plain decoding's" in text]
    assert [record.getMessage() for record in caplog.records] == [note]
    assert len(blocks) > 8
    assert blocks[-5:] == [1] * 5, "no drafts once it was noticed"


def test_only_the_request_with_the_wrong_block_loses_its_drafts() -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama", "text", 1)
    wrong = WrongRule(tiny.noisy("llama"), num_draft_tokens=3)
    sound = sooner.Speculative(tiny.noisy("llama"), num_draft_tokens=3)
    engine = sooner.Engine(model, sound, verify_every=1)
    first = engine.add_request(inputs, method=wrong, **greedy(LENGTH))
    engine.run()
    second = engine.add_request(inputs, **greedy(LENGTH))
    engine.run()
    assert engine.alarms == {"mismatch": 1}
    assert first.num_drafts < 8 < second.num_drafts
    assert second.tokens == sooner.generate(model, inputs, **greedy(LENGTH)).tokens


def test_a_check_takes_a_forward_for_each_token_and_two() -> None:
    model, method = tiny.model("llama"), sooner.Speculative(tiny.model("llama"), num_draft_tokens=3)
    inputs = tiny.inputs("llama", "text", 1)
    stats = sooner.generate(model, inputs, method, verify_every=5, **greedy(81)).stats
    assert stats.nfe == 21, "a prefill, and rounds of four tokens"
    # The last round ends the row, and the check of the one before it is due at its beginning.
    assert stats.num_checked_blocks in (3, 4)
    assert stats.num_check_forwards == 6 * stats.num_checked_blocks
    assert stats.as_dict()["num_check_forwards"] == stats.num_check_forwards


def test_a_share_of_the_rounds_is_checked_however_short_the_runs_are() -> None:
    model, method = tiny.model("llama"), sooner.Speculative(tiny.model("llama"), num_draft_tokens=3)
    checked = 0
    for seed in range(24):
        inputs = tiny.inputs("llama", "text", 1, seed)
        options = greedy(22)
        stats = sooner.generate(model, inputs, method, verify_every=20, **options).stats
        assert stats.nfe < 10
        checked += stats.num_checked_blocks
    assert 2 <= checked <= 15, "of 24 runs of 6 rounds, of which 5 can be checked"


def test_what_can_not_be_checked_is_refused() -> None:
    inputs = tiny.inputs("llama", "text", 1)
    with pytest.raises(SoonerError, match="verify_every is 0; it must be a whole number of 1"):
        sooner.generate(tiny.model("llama"), inputs, verify_every=0, max_new_tokens=2)

"""Errors and cancellations end the requests that they belong to, and the engine goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
)

import sooner
import tiny
from method_matrix import METHODS
from methods.test_engine import alone, greedy
from sooner.engine.runner import ModelRunner

FAMILY, NEW = "llama", 12
JOINING = ("plain", "prompt-lookup", "noisy-4", "sd-tree", "eagle", "jacobi-4")


def engine(name: str = "plain", **options: Any) -> sooner.Engine:
    return sooner.Engine(tiny.model(FAMILY), METHODS[name](FAMILY), max_rows=5, **options)


def words(rows: int = 1) -> dict[str, Any]:
    return tiny.inputs(FAMILY, "text", rows)


def right(rows: int = 1, new: int = NEW) -> list[list[int]]:
    return [row[:new] for row in alone(FAMILY, "text", rows, 23)]


class FaultError(Exception):
    pass


def raising(at: int) -> Any:
    """A callback that raises once it was told `at` tokens."""
    generated: list[int] = []

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        generated.extend(tokens)
        if len(generated) >= at:
            raise FaultError(f"at {at}")

    return tell


@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("name", JOINING)
def test_a_callback_that_raises_fails_only_its_request(name: str, at: int) -> None:
    batch = engine(name)
    before = batch.add_request(words(), **greedy(NEW))
    bad = batch.add_request(words(), on_tokens=raising(at), **greedy(NEW))
    pair = batch.add_request(words(2), **greedy(NEW))
    batch.run()
    assert isinstance(bad.error, FaultError)
    assert (bad.finish_reason, bad.error.args) == ("error", (f"at {at}",))
    assert bad.tokens is not None
    assert right()[0][: len(bad.tokens[0])] == bad.tokens[0]
    assert len(bad.tokens[0]) >= at
    assert (before.tokens, pair.tokens) == (right(), right(2))
    assert before.error is pair.error is None


class FailingProcessor(LogitsProcessor):
    """Behind so many tokens it raises, or makes its row's scores no numbers."""

    def __init__(self, width: int, raises: bool) -> None:
        self.width, self.raises = width, raises

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] < self.width:
            return scores
        if self.raises:
            raise FaultError("asked")
        return scores * torch.nan


@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("raises", [True, False], ids=["raises", "nan"])
@pytest.mark.parametrize("name", JOINING)
def test_a_processor_that_fails_fails_only_its_request(
    name: str, raises: bool, offset: int
) -> None:
    batch, width = engine(name), words()["input_ids"].shape[1] + offset
    before = batch.add_request(words(), **greedy(NEW))
    failing = LogitsProcessorList([FailingProcessor(width, raises)])
    bad = batch.add_request(words(), logits_processor=failing, **greedy(NEW))
    pair = batch.add_request(words(2), **greedy(NEW))
    drawn = batch.add_request(
        words(), do_sample=True, seed=1, max_new_tokens=NEW, eos_token_id=None
    )
    batch.run()
    error = FaultError if raises else sooner.SoonerError
    assert isinstance(bad.error, error)
    assert bad.tokens is not None
    assert right()[0][: len(bad.tokens[0])] == bad.tokens[0]
    assert len(bad.tokens[0]) <= offset
    assert (before.tokens, pair.tokens, drawn.error) == (right(), right(2), None)
    with pytest.raises(error):
        sooner.generate(
            tiny.model(FAMILY), words(), METHODS[name](FAMILY), logits_processor=failing,
            **greedy(NEW),
        )  # fmt: skip


@contextmanager
def failing(at: int, error: Exception) -> Iterator[None]:
    """The target's forward number `at` of all rounds fails."""
    original, count = ModelRunner.forward_tree, 0

    def forward(self: ModelRunner, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            raise error
        return original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelRunner, "forward_tree", forward)
        yield


@pytest.mark.parametrize(
    "error",
    [FaultError("a kernel"), torch.OutOfMemoryError("CUDA out of memory")],
    ids=["any", "memory"],
)
@pytest.mark.parametrize("name", JOINING)
def test_a_forward_that_fails_fails_all_that_decode_and_nothing_else(
    name: str, error: Exception
) -> None:
    batch = engine(name)
    for _ in range(2):
        batch.add_request(words(), **greedy(23))
    for _ in range(3):
        batch.step()
    late = batch.add_request(words(), prefill_chunk_size=3, **greedy(NEW))
    decoding = list(batch.running)
    assert decoding
    with failing(1, error):
        ended = batch.step()
    assert ended == decoding
    for request in ended:
        expected = sooner.errors.MemoryRanOutError if "memory" in str(error) else FaultError
        assert isinstance(request.error, expected)
        assert request.tokens is not None
        assert request.tokens[0] == right(new=23)[0][: len(request.tokens[0])]
    after = batch.add_request(words(2), **greedy(NEW))
    batch.run()
    assert (late.tokens, after.tokens) == (right(), right(2))


def test_a_prompt_that_fails_leaves_the_batch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = engine()
    good = batch.add_request(words(), **greedy(NEW))
    batch.step()
    bad = batch.add_request(words(), **greedy(NEW))
    original = ModelRunner.prefill_chunks

    def prefill(self: ModelRunner, *args: Any, **kwargs: Any) -> Any:
        raise FaultError("a prompt")
        yield from original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(ModelRunner, "prefill_chunks", prefill)
        batch.step()
        batch.step()
    assert isinstance(bad.error, FaultError)
    again = batch.add_request(words(), **greedy(NEW))
    batch.run()
    assert good.tokens == again.tokens == right()


@pytest.mark.parametrize("name", JOINING)
def test_a_request_can_be_cancelled_wherever_it_is(name: str) -> None:
    for steps in range(9):
        batch = engine(name, prefill_chunk=3)
        completed = batch.add_request(words(), **greedy(NEW))
        lost = batch.add_request(words(2), **greedy(NEW))
        for _ in range(steps):
            batch.step()
        is_over = lost.tokens is not None
        batch.cancel(lost)
        batch.cancel(lost)
        assert lost.tokens is not None
        assert len(lost.tokens) == 2
        if not is_over:
            assert lost.finish_reasons == ["cancelled"] * 2
        batch.run()
        assert completed.tokens == right()
        assert (completed.finish_reason, lost.error) == ("length", None)


@pytest.mark.parametrize("chunk", [None, 3])
def test_callbacks_may_cancel_and_admit(chunk: int | None) -> None:
    """Their own request or another, that decodes, is prefilled or waits."""
    for whom in range(4):
        batch = engine(prefill_chunk=chunk)
        requests: list[sooner.Request] = []
        late: list[sooner.Request] = []

        def tell(
            row: int, tokens: list[int], drafted: int, whom: int = whom,
            batch: sooner.Engine = batch, requests: Any = requests, late: Any = late,
        ) -> None:  # fmt: skip
            if not late:
                late.append(batch.add_request(words(), **greedy(3)))
                batch.cancel(requests[whom])
                with pytest.raises(sooner.SoonerError, match="step"):
                    batch.step()

        for number in range(4):
            callbacks = {"on_tokens": tell} if number == 1 else {}
            requests.append(batch.add_request(words(), **greedy(NEW), **callbacks))
        batch.run()
        for number, request in enumerate(requests):
            reason = "cancelled" if number == whom else "length"
            assert request.finish_reason == reason, (whom, number)
            assert request.tokens is not None
            assert request.tokens[0] == right()[0][: len(request.tokens[0])]
            assert (len(request.tokens[0]) < NEW) == (number == whom)
        assert late[0].tokens == right(new=3)


def test_a_long_life_needs_no_more_memory() -> None:
    """What a batch keeps of requests that have left is bounded."""
    batch = engine()
    for _ in range(40):
        batch.add_request(words(), **greedy(23))
        for _ in range(6):
            batch.step()
    decoding = batch.batch
    assert decoding is not None, "one batch all the time"
    rows = decoding.rows
    assert rows.batch > 35
    assert sum(map(len, rows.generated)) < 100
    assert len(rows.reasons) + len(decoding.failed) + len(decoding.sessions) < 12
    assert len(decoding.stats._open_runs) < 6
    batch.close()
    assert batch.is_idle

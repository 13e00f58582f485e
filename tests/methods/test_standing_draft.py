"""One draft process for many runs: exact in each, gone in the end, replaced when it fails."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList

import fake_models
import method_matrix as matrix
import sooner
import tiny
from fake_models import FakeAdapter, generate_ids
from fakes import ERROR, Table, chi_square
from methods.children import children
from methods.parallel_runs import Unpicklable
from sooner.methods import base
from sooner.methods.parallel import standing as standing_module
from sooner.methods.parallel.board import nameless_file, pack, unpack

pytestmark = pytest.mark.slow

NEW = 24
FAMILY = "llava_onevision"


@pytest.fixture
def standing() -> Iterator[sooner.StandingDraft]:
    with sooner.StandingDraft(tiny.noisy(FAMILY)) as draft:
        yield draft
    assert not children()


def generate(
    standing_draft: sooner.StandingDraft, family: str, kind: str, rows: int, **options: Any
) -> Any:
    method = sooner.ParallelVLM(
        standing_draft.draft, num_draft_tokens=6, min_visual=0, placement="process",
        standing=standing_draft,
        prune=options.pop("prune", 0.5),
    )  # fmt: skip
    return sooner.generate(
        tiny.model(family), tiny.inputs(family, kind, rows), method,
        max_new_tokens=NEW, eos_token_id=None, do_sample=False, **options,
    )  # fmt: skip


def pid(standing_draft: sooner.StandingDraft) -> int:
    (worker,) = standing_draft.workers
    return int(worker.runner.pid)


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_every_run_equals_hf_in_the_same_process(family: str) -> None:
    """Prompts of other lengths, kinds and batch sizes follow each other through one memory."""
    with sooner.StandingDraft(tiny.noisy(family)) as draft:
        seen = set()
        for kind, rows, prune in (
            ("video", 1, 0.5), ("images", 3, 0.0), ("text", 2, 0.0), ("video", 2, 0.9),
        ):  # fmt: skip
            made = generate(draft, family, kind, rows, prune=prune)
            assert torch.equal(made.sequences, matrix.reference(family, kind, rows, NEW))
            assert not made.stats.notes
            seen.add(pid(draft))
        assert len(seen) == 1
    assert not children()


def kill(standing_draft: sooner.StandingDraft, how: int) -> None:
    for worker in list(standing_draft.workers):
        with contextlib.suppress(ValueError, ProcessLookupError, TypeError):
            os.kill(worker.runner.pid, how)


def test_a_process_that_hangs_is_replaced(standing: sooner.StandingDraft) -> None:
    generate(standing, FAMILY, "video", 1)
    first = pid(standing)
    kill(standing, signal.SIGSTOP)
    made = generate(standing, FAMILY, "video", 1)
    assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
    assert not standing.workers  # it did not say that it was done
    assert not generate(standing, FAMILY, "video", 1).stats.notes
    assert pid(standing) != first


def test_a_crash_is_reported_and_the_process_replaced(
    standing: sooner.StandingDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: Any) -> Any:
        raise MemoryError("no room for the draft")

    with monkeypatch.context() as patch:
        patch.setattr("sooner.methods.parallel.server.DraftServer.draft", crash)
        made = generate(standing, FAMILY, "video", 1)
    assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
    assert any("no room for the draft" in note for note in made.stats.notes)
    assert not generate(standing, FAMILY, "video", 1).stats.notes


def test_what_cannot_travel_is_drafted_for_in_a_thread(standing: sooner.StandingDraft) -> None:
    made = generate(
        standing, FAMILY, "video", 1, logits_processor=LogitsProcessorList([Unpicklable()])
    )
    assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
    assert made.stats.draft_forwards > 0
    assert not standing.workers
    assert not children()


def test_it_ends_when_nobody_holds_it() -> None:
    draft = sooner.StandingDraft(tiny.noisy(FAMILY))
    generate(draft, FAMILY, "video", 1)
    assert children()
    del draft
    gc.collect()
    assert not children()


class PrunableFake(FakeAdapter):
    visual_ids = ()


def test_sampling_keeps_the_joint_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_models.adapt_fakes(monkeypatch)
    monkeypatch.setattr(standing_module, "adapt", lambda model: model)
    monkeypatch.setattr(base, "prompt_for", lambda adapter, context: dict(context.inputs))
    target = Table(3, 4, seed=1)
    draft = PrunableFake(Table(3, 4, seed=2, near=target))
    with sooner.StandingDraft(draft) as standing_draft:
        method = sooner.ParallelVLM(
            draft, prune=0, num_draft_tokens=3, placement="process", standing=standing_draft
        )
        sources = (torch.Generator().manual_seed(seed) for seed in (0, 1))
        runs = [
            generate_ids(method, PrunableFake(target), 2000, 4, generator=source)
            for source in sources
        ]
        samples = torch.cat(runs)
    assert chi_square(samples, target.joint()) > ERROR


def test_what_is_packed_is_unpacked_without_a_name() -> None:
    """Whatever tensors are packed into; those that are one stay one."""
    shared = torch.nn.Parameter(torch.rand(4)[::2])
    content = {
        "ids": torch.arange(7)[None], "pixels": [torch.rand(2, 3, 5).half(), torch.tensor(3.0)],
        "size": (4, 4), "tied": (shared, shared),
    }  # fmt: skip
    with nameless_file() as file:
        pack(content, file)
        unpacked = unpack(file.fileno())
    assert torch.equal(unpacked["ids"], content["ids"])
    assert all(map(torch.equal, unpacked["pixels"], content["pixels"]))
    assert unpacked["size"] == (4, 4)
    assert torch.equal(unpacked["tied"][0], shared)
    assert unpacked["tied"][0] is unpacked["tied"][1]

"""Relaxed acceptance of other methods' drafts, on a tiny policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sooner.engine.stats.run import EXACT, RELAXED
from sooner.methods import Autoregressive, Method, SDTree, Speculative
from sooner.methods.tolerance import Relaxed, Tolerance
from sooner.methods.tree_draft import STATIC_TREE
from sooner.models import adapt
from sooner.models.openvla.processing import OpenVLAProcessor
from sooner.models.openvla.statistics import ActionTokens
from sooner.tasks.act.batch import Decoded, decode
from tiny_policy import BINS, DIMS, model, observations, tokenizer

LENGTH = 12


@pytest.fixture(scope="module")
def target() -> Any:
    return model()


@pytest.fixture(scope="module")
def draft(target: Any) -> Any:
    """Nearly the target: its head is a little off."""
    made = model()
    with torch.no_grad():
        torch.manual_seed(1)
        made.lm_head.weight += 0.05 * torch.randn_like(made.lm_head.weight)
    return made


def run(target: Any, method: Method, **options: Any) -> Decoded:
    processor, seen = OpenVLAProcessor.of(tokenizer(), target.config), observations(3)

    def inputs() -> Any:
        return processor(
            [observation.image for observation in seen],
            [observation.instruction for observation in seen],
        )

    return decode(adapt(target), inputs, method, LENGTH, **options)


METHODS: list[Callable[[Any], Method]] = [
    lambda draft: Speculative(draft, num_draft_tokens=3),
    lambda draft: SDTree(draft, STATIC_TREE),
]


@pytest.mark.parametrize("make", METHODS, ids=["chain", "tree"])
def test_a_tolerance_of_nothing_is_exact(
    make: Callable[[Any], Method], target: Any, draft: Any
) -> None:
    none = Tolerance(ActionTokens.of(target.config), DIMS, 0)
    ours = run(target, Relaxed(make(draft), none))
    np.testing.assert_array_equal(ours.ids, run(target, Autoregressive()).ids)
    assert (ours.stats.mode, ours.stats.deviation) == (EXACT, None)


@pytest.mark.parametrize("make", METHODS, ids=["chain", "tree"])
def test_more_tolerance_accepts_more_and_reports_the_deviation(
    make: Callable[[Any], Method], target: Any, draft: Any
) -> None:
    tokens = ActionTokens.of(target.config)
    strict = run(target, make(draft)).stats
    relaxed = run(target, Relaxed(make(draft), Tolerance(tokens, DIMS, BINS))).stats
    assert relaxed.mode == RELAXED
    assert relaxed.mean_acceptance_length > strict.mean_acceptance_length
    assert relaxed.deviation is not None
    assert relaxed.deviation.accepted.sum() == relaxed.num_accepted_draft_tokens
    assert relaxed.deviation.largest[: DIMS - 1].max() > 0
    assert relaxed.deviation.largest[DIMS - 1] == 0  # the gripper

"""A page that takes too much memory fails, and says what to lower; the next one is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from sooner.errors import MemoryRanOutError
from sooner.tasks.loading import ModelPair
from sooner.tasks.parse import PageParser, ParseSettings
from tasks.parsing import noise_page, qwen3_vl

pytestmark = pytest.mark.slow

FIXED = {"nodes": 12, "max_new_tokens": 24}


@pytest.fixture
def qwen() -> ModelPair:
    return qwen3_vl()


Limit = Callable[[int], list[int]]


@pytest.fixture
def limited(qwen: ModelPair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit]:
    """Sets from how many patches on a picture is too much; patches of all that were tried."""

    def set_limit(maximum: int) -> list[int]:
        tried: list[int] = []
        visual = qwen.target.model.model.visual
        real = visual.forward

        def forward(pixels: torch.Tensor, *args: Any, **named: Any) -> Any:
            tried.append(len(pixels))
            if len(pixels) > maximum:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return real(pixels, *args, **named)

        monkeypatch.setattr(visual, "forward", forward)
        return tried

    return set_limit


def test_a_page_that_never_fits_says_what_to_lower(qwen: ModelPair, limited: Limit) -> None:
    parser = PageParser(qwen, ParseSettings(**FIXED))
    tried = limited(24 * 32 - 1)  # patches of 7 pixels
    with pytest.raises(MemoryRanOutError, match=r"memory ran out \(.*\); lower --dpi or"):
        parser(noise_page(168, 224))
    assert tried[0] == 24 * 32
    assert parser(noise_page()).mode == "exact"

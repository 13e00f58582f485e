"""A page that takes too much memory is read with less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sooner.documents import Page
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


def scaled(page: Page, width: int, height: int) -> Page:
    picture = Image.fromarray(page.picture).resize((width, height), Image.Resampling.LANCZOS)
    return replace(page, picture=np.array(picture))


def test_a_page_that_takes_too_much_memory_is_read_smaller(qwen: ModelPair, limited: Limit) -> None:
    parser, page = PageParser(qwen, ParseSettings(**FIXED)), noise_page(168, 224)
    smaller = parser(scaled(page, 118, 157))
    tried = limited(24 * 32 - 1)  # patches of 7 pixels
    parsed = parser(page)
    assert tried[0] == 24 * 32
    assert tried[-1] < 24 * 32
    assert len(tried) == 2
    assert (parsed.status, parsed.mode) == (smaller.status, "approximate")
    assert parsed.notes == ["memory ran out: the page was read at 118 x 157 px"]
    assert parsed.raw == smaller.raw
    assert parsed.size == page.size
    # The next page begins as large as ever.
    assert parser(noise_page()).mode == "exact"


def test_a_page_that_never_fits_reports_how_far_it_was_tried(
    qwen: ModelPair, limited: Limit
) -> None:
    tried = limited(0)
    with pytest.raises(MemoryRanOutError, match=r"even at 35% of the page's width .*lower --dpi"):
        PageParser(qwen, ParseSettings(**FIXED))(noise_page(168, 224))
    assert tried == sorted(set(tried), reverse=True)  # each smaller than the one before it
    assert len(tried) == 4

"""An embedded prompt, and what is left of it once it is prefilled."""

from __future__ import annotations

import torch

from sooner.decoding.interface import Prompt


def test_a_released_prompt_holds_no_memory() -> None:
    """A slice of length zero would still hold the whole storage."""
    embeds = torch.zeros(2, 50, 8)
    prompt = Prompt(embeds, torch.zeros(2, 50), [50, 50], torch.zeros(2), torch.zeros(2, 50))
    prompt.extras = {"features": embeds}
    prompt.release()
    assert prompt.rows == 2
    assert prompt.embeds.untyped_storage().nbytes() == 0
    assert not prompt.extras

"""What all tests share: one thread, one seed."""

from __future__ import annotations

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

# One thread: tiny operations gain nothing from a second, and on a busy machine two of them wait for
# each other at every barrier (seen: 0.25 s became 23 s).
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Draws from torch's global state are the same whatever ran before."""
    torch.manual_seed(0)

"""What all tests share: two threads, one seed, and models that nobody has changed."""

from __future__ import annotations

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(2)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Draws from torch's global state are the same whatever ran before."""
    torch.manual_seed(0)

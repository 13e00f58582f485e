"""What all tests share: one thread, one seed, an ear for Ctrl-C."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

# One thread: tiny operations gain nothing from a second, and on a busy machine two of them wait for
# each other at every barrier (seen: 0.25 s became 23 s).
torch.set_num_threads(1)

# A shell starts its background jobs deaf to Ctrl-C, and their children inherit it: tests that send
# one to a process of their own would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Draws from torch's global state are the same whatever ran before."""
    torch.manual_seed(0)

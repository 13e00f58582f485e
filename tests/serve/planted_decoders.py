"""Decoders that go wrong; the processes that decode import this module."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from sooner.serve.media.decoders import DecodeTask


def hang(task: DecodeTask) -> dict[str, Any]:
    """Takes a nap behind its limit, and does not hear an alarm."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)
    return {}


def hang_in_a_picture(task: DecodeTask) -> dict[str, Any]:
    """Promises pixels and does not send them."""
    from sooner.serve.media.processes import send

    send(task.connection, {"shape": [1, 1, 3]})
    time.sleep(60)
    return {}


def crash(task: DecodeTask) -> dict[str, Any]:
    """As a parser whose memory was overwritten."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def eat(task: DecodeTask) -> dict[str, Any]:
    """Takes more memory than it may."""
    blocks = [np.ones(task.options["size"], np.uint8)]
    return {"took": sum(block.nbytes for block in blocks)}


def flood(task: DecodeTask) -> dict[str, Any]:
    """Sends more pixels than were allowed."""
    for _ in range(100):
        task.send(np.zeros((1024, 1024, 3), np.uint8))
    return {}


def report(task: DecodeTask) -> dict[str, Any]:
    """What it can see of the machine."""
    try:
        with open(task.options["path"], "wb") as file:
            file.write(b"x" * 10)
        wrote = True
    except OSError:
        wrote = False
    return {"pid": os.getpid(), "environment": sorted(os.environ), "wrote": wrote}

"""What `sooner bench step` counts."""

from __future__ import annotations

from dataclasses import dataclass

LAW = 1.1
"""A verification may move this many times a plain step's bytes."""


@dataclass(frozen=True)
class StepSettings:
    """Settings of a run.

    Attributes:
        methods: their names.
        length: tokens of the prompt where bytes are counted.
        short: tokens of a prompt whose operations must be as many.
        block: entries of the verification whose bytes are compared with a plain step's.
        rows: rows of the batch.
        layers: of the 7B shape, where bytes are counted; operations are those of four.
        compiles: compile each static step, and HF's, which takes most of the time.
    """

    methods: tuple[str, ...]
    length: int = 25_000
    short: int = 1_000
    block: int = 16
    rows: int = 1
    layers: int = 28
    compiles: bool = True

"""What `sooner bench step` counts."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_fields, option

from ..fields import names

LAW = 1.1
"""A verification may move this many times a plain step's bytes."""
METHODS = ("plain", "prompt-lookup", "speculative", "sd-tree", "eagle", "jacobi", "hsd")


@dataclass(frozen=True)
class StepSettings:
    """Count operations, reads, uploads and bytes of a round, on the shape of a 7B model.

    Exits with 1 when a static step waits, grows, breaks its graph or moves too much.

    Attributes:
        methods: Only these.
        length: Tokens of the prompt where bytes are counted.
        short: Tokens of a prompt whose operations must be as many.
        block: Entries of the verification whose bytes are compared with a plain step's.
        rows: Rows of the batch.
        layers: Layers of the 7B shape, where bytes are counted; operations are those of at most 4.
        compile: Count graph breaks and recompiles, which takes most of the time.
    """

    methods: tuple[str, ...] = names("method", METHODS)
    length: int = option(25_000, 1)
    short: int = option(1_000, 1)
    block: int = option(16, 1)
    rows: int = option(1, 1)
    layers: int = option(28, 1)
    compile: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

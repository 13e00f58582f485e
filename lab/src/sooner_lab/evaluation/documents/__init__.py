"""Benchmarks of document parsing: read, parsed, and scored.

    >>> benchmark = load("OmniDocBench")
    >>> result = score(read_predictions("predictions", benchmark), benchmark)
    >>> print(result.value("text_edit"), *lines_of(result), sep="\\n")

`kinds` names the benchmarks, each of which has a file that reads it; `page_score`, `unit_tests` and
`ocean` score a page; `blocks`, `plain` and `matching` are what text goes through before; `parsing`
makes predictions. None of it is the official scorer: docs/evaluation.md says what differs.
"""

from .benchmark import Benchmark, BenchmarkPage, Figure
from .evaluation import Evaluation, Mean, PageFigures, score
from .kinds import KINDS, load
from .predictions import read_predictions, write_predictions
from .table import lines_of

__all__ = [
    "KINDS",
    "Benchmark",
    "BenchmarkPage",
    "Evaluation",
    "Figure",
    "Mean",
    "PageFigures",
    "lines_of",
    "load",
    "read_predictions",
    "score",
    "write_predictions",
]

"""What `sooner bench papers` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class PapersSettings:
    """Hold every row of the five papers against our results, or say why there is none.

    Measures nothing. Results of a tree with uncommitted changes are refused.

    Attributes:
        results: folder of the results' JSONs.
    """

    results: Path = Path("docs/results")

    FULL: ClassVar[Mapping[str, Any]] = {}

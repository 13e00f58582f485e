"""Rows between stages: plain values, and texts in JSON."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("ray.data")

from sooner.errors import SoonerError
from sooner.ray import Parser
from sooner.ray.parser import batch_of, rows_of


def test_a_batch_of_arrays_is_rows_of_plain_values() -> None:
    batch = {"path": np.array(["a", "b"]), "page": np.array([1, 2])}
    rows = list(rows_of(batch))
    assert rows == [{"path": "a", "page": 1}, {"path": "b", "page": 2}]
    assert {type(value) for row in rows for value in row.values()} == {str, int}
    assert batch_of(rows) == {"path": ["a", "b"], "page": [1, 2]}
    assert batch_of([]) == {}


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, np.ndarray]:
    for name in "ab":
        Image.new("RGB", (60, 80), "white").save(tmp_path / f"{name}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    names = [str(tmp_path / f"{name}.png") for name in ("a", "broken", "b")]
    return {"path": np.array(names), "page": np.array([1, 1, 1])}


def parsed(parser: Parser, batch: Any) -> dict[str, list[Any]]:
    async def all_of() -> list[dict[str, Any]]:
        return [row async for part in parser(batch) for row in rows_of(part)]

    result = sorted(asyncio.run(all_of()), key=lambda row: str(row["path"]))
    return batch_of(result)


def test_the_stage_without_ray(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Broken pages are rows with status FAILED; the others go on."""
    text = tmp_path / "text.txt"
    text.write_text("One paragraph.")
    result = parsed(Parser(drafter=f"text:{text}"), rows)
    assert result["status"] == ["DRAFT", "DRAFT", "FAILED"]
    assert result["markdown"][0].strip() == "One paragraph."


def test_the_options_of_a_drafter_reach_it(rows: dict[str, np.ndarray]) -> None:
    stage = Parser(drafter="text-layer", drafter_options={"language": "german"})
    with pytest.raises(SoonerError, match="are for OCR, but drafter 'text-layer' has none"):
        parsed(stage, rows)


def test_the_error_of_a_stage_is_raised_without_rays_advice() -> None:
    from sooner.ray.job import _sooner_error

    trace = (
        'ray::MapWorker(MapBatches(Stage)).submit()\n  File "x.py", line 3, in call\n'
        "AttributeError: 'NoneType' object has no attribute 'size'\n\nThe above exception was the "
        "direct cause of the following exception:\n\nray.exceptions.UserCodeException: failed.\n"
        "To change retry attempts, configure something."
    )
    assert str(_sooner_error(RuntimeError(trace))) == (
        "ray failed: AttributeError: 'NoneType' object has no attribute 'size'"
    )
    assert str(_sooner_error(RuntimeError("lost"))) == "ray failed: lost"

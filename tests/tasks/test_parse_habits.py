"""What a model's folder says about parsing with it: prompt, form, size of pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sooner.documents import PageDraft, Region
from sooner.errors import SoonerError
from sooner.tasks.parse.contexts import pieces_of
from sooner.tasks.parse.families import NAME, family_in_folder


def folder(path: Path, **values: Any) -> str:
    (path / NAME).write_text(json.dumps({"parse": values}))
    return str(path)


def test_a_folder_describes_how_its_model_was_trained(tmp_path: Path) -> None:
    values = {"prompt": "read the page", "form": "markdown-spaced", "size": [512, 640]}
    trained = family_in_folder(folder(tmp_path, **values))
    assert (trained.ask.page, trained.ask.form) == ("read the page", "markdown-spaced")
    assert trained.size == (512, 640)
    region = Region((0, 0, 9, 9), "Formula", 0, ["x + y = 2"])
    (piece,) = pieces_of(PageDraft([region]), trained.ask.form)
    assert piece.texts == ["$$ x + y = 2 $$"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"promt": "x"}, "did you mean 'prompt'"),
        ({"prompt": "x", "form": "markdwn"}, "did you mean 'markdown'"),
        ({"form": "markdown"}, "a form but no prompt"),
        ({"size": [5]}, "not enough values"),
        ({"size": [0, 5]}, "size is 0"),
    ],
    ids=str,
)
def test_a_broken_file_is_refused_in_a_line(tmp_path: Path, values: dict, reason: str) -> None:
    with pytest.raises(SoonerError, match=reason) as caught:
        family_in_folder(folder(tmp_path, **values))
    assert NAME in str(caught.value)
    assert "\n" not in str(caught.value)

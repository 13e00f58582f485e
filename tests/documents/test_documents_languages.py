"""`--language`: which model reads it, where that is looked for, and how lines are joined."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from sooner.documents import Page
from sooner.documents.drafters import OCR
from sooner.documents.drafters.ocr import ROUTES, recognition_model
from sooner.documents.serialise import reflowed
from sooner.errors import SoonerError
from sooner.tasks.parse.drafters import drafter_hash, make_drafter


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["a divi-", "ded word"], "a divided word"),
        (["by T.", "Twenty-", "Two"], "by T. Twenty- Two"),
        (["eine Über-", "öffnung"], "eine Überöffnung"),
        (["раз-", "делено"], "разделено"),
        (["λέ-", "ξη"], "λέξη"),
        (["나는 배를", "먹었다"], "나는 배를 먹었다"),
        (["梨を", "食べた"], "梨を食べた"),
        (["梨 a", "pear"], "梨 a pear"),
        (["ฉันกิน", "ลูกแพร์"], "ฉันกินลูกแพร์"),
        (["أكلت-", "كمثرى"], "أكلت- كمثرى"),
        (["मैंने", "खाया"], "मैंने खाया"),
    ],
)
def test_lines_are_joined_as_their_script_is_written(lines: list[str], text: str) -> None:
    assert reflowed("\n".join(lines)) == text


def test_names_are_those_of_rapidocr() -> None:
    pytest.importorskip("rapidocr")
    for name in ("en", "ja", "German"):
        path = recognition_model(name)[1]
        assert ROUTES[0][0] in path.name
        assert path.is_file()
    with pytest.raises(SoonerError, match=r"unknown language 'koreann' \(did you mean 'korean'"):
        recognition_model("koreann")


def test_a_model_that_is_not_here_is_named_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SoonerError) as caught:
        OCR(language="ko", models=tmp_path)
    message = str(caught.value)
    assert "needs rapidocr's model korean_PP-OCRv5_rec_mobile.onnx" in message
    assert str(tmp_path) in message
    assert "--ocr-model-dir" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []  # nothing was fetched


def page(*lines: str) -> Page:
    picture = Image.new("RGB", (640, 60 + 48 * len(lines)), "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(28)
    for place, line in enumerate(lines):
        draw.text((30, 30 + 44 * place), line, "black", font)
    return Page(Path("page.png"), 1, np.asarray(picture).copy())


def test_ocr_reads_by_the_model_of_the_language(tmp_path: Path) -> None:
    """The wheel's model stands for one of another script that somebody saved."""
    english = OCR(language="en")
    drawn = page("Pears are a sort of fruit which", "grows on trees in the garden")
    read = english(drawn).texts
    assert (
        reflowed("\n".join(read)) == "Pears are a sort of fruit which grows on trees in the garden"
    )
    saved = tmp_path / "korean_PP-OCRv5_rec_mobile.onnx"
    shutil.copy(recognition_model("en")[1], saved)
    model = recognition_model("korean", tmp_path)
    assert model == ("korean", saved)
    korean = pickle.loads(pickle.dumps(OCR(language="korean", models=tmp_path)))
    assert korean(drawn).texts == read
    assert korean._recognition == model


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"spec": "text-layer", "language": "en"},
            "are for OCR, but drafter 'text-layer' has none",
        ),
        ({"spec": "auto", "language": "englsh"}, "unknown language 'englsh'"),
        ({"spec": "ocr", "ocr_models": "."}, "--ocr-model-dir needs --language"),
    ],
    ids=str,
)
def test_a_language_that_nobody_reads_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SoonerError, match=reason):
        make_drafter(**options)


def test_another_language_is_another_draft(tmp_path: Path) -> None:
    assert drafter_hash("ocr", "en") != drafter_hash("ocr", "korean")
    assert drafter_hash("ocr") == "ocr"
    hashes = {drafter_hash("ocr", "en"), drafter_hash("ocr", "en", tmp_path)}
    (tmp_path / "en.onnx").write_bytes(b"weights")
    assert len(hashes | {drafter_hash("ocr", "en", tmp_path)}) == 3
    drafter = make_drafter("ocr", "ja")
    assert isinstance(drafter, OCR)
    assert drafter.language == "ja"

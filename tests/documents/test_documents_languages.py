"""`--language`: which model reads it, where that is looked for, and how lines are joined."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from sooner.documents import Page, Region
from sooner.documents.drafters import OCR
from sooner.documents.drafters.ocr_models import VERSION, languages, recognition_model
from sooner.documents.languages import (
    Joining,
    are_words,
    is_repetitive,
    known_words,
    with_hyphens,
)
from sooner.documents.serialise import reflowed
from sooner.errors import SoonerError
from sooner.tasks.parse.drafters import drafter_hash, make_drafter


@pytest.mark.parametrize(
    ("language", "lines", "text"),
    [
        ("en", ["a divi-", "ded word"], "a divided word"),
        ("en", ["by T.", "Twenty-", "Two"], "by T. Twenty- Two"),
        ("german", ["eine Über-", "öffnung"], "eine Überöffnung"),
        ("cyrillic", ["раз-", "делено"], "разделено"),
        ("el", ["λέ-", "ξη"], "λέξη"),
        ("korean", ["나는 배를", "먹었다"], "나는 배를 먹었다"),
        ("japan", ["梨を", "食べた"], "梨を食べた"),
        ("ch", ["我吃了", "梨。"], "我吃了梨。"),
        ("ch", ["梨 a", "pear"], "梨 a pear"),
        ("th", ["ฉันกิน", "ลูกแพร์"], "ฉันกินลูกแพร์"),
        ("arabic", ["أكلت-", "كمثرى"], "أكلت- كمثرى"),
        ("devanagari", ["मैंने", "खाया"], "मैंने खाया"),
    ],
)
def test_lines_are_joined_as_the_language_is_written(
    language: str, lines: list[str], text: str
) -> None:
    assert Joining(language).lines(lines) == text


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("A well-\nknown case", "", "A well-known case"),
        ("It is a some-\nthing of", "", "It is a something of"),
        ("for exam-\nple", "", "for example"),
        ("a state-of-the-\nart model", "", "a state-of-the-art model"),
        ("the Bundes-\ntag", "", "the Bundestag"),
        ("the Bundes-\ntag", "Bundes-tag", "the Bundes-tag"),
        ("a long-\nterm plan", "longterm", "a longterm plan"),
        ("a soft\u00ad\nware", "", "a software"),
    ],
)
def test_hyphens_of_compounds_stay(text: str, known: str, expected: str) -> None:
    pytest.importorskip("wordfreq")
    assert reflowed(with_hyphens(text, known_words([known]))) == expected


def test_rows_items_and_code_stay_apart() -> None:
    joining = Joining("korean")

    def joined(label: str, draft: str) -> str:
        return joining.region(Region(None, label, drafts=[draft])).drafts[0]

    assert joined("Text", "나는\n배를\n\n먹었다") == "나는 배를\n\n먹었다"
    assert joined("List-item", "- 나는\n배를\n- 먹었다") == "- 나는 배를\n- 먹었다"
    for label, draft in (("Table", "a\tb\nc\td"), ("Formula", "x\ny"), ("Text", "```\na\nb\n```")):
        assert joined(label, draft) == draft


def test_names_are_those_of_rapidocr() -> None:
    kinds = pytest.importorskip("rapidocr.utils.typings")
    known = languages()
    assert {kind.value for kind in kinds.LangRec} - set(known) <= {"ch_doc"}
    assert (known["ja"], known["ko"], known["zh-tw"]) == ("japan", "korean", "chinese_cht")
    for name in ("en", "ja", "German"):
        assert recognition_model(name).version == VERSION
        assert recognition_model(name).path.is_file()
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
    english = OCR(language="en", layout=False)
    drawn = page("Pears are a sort of fruit which", "grows on trees in the garden")
    (region,) = english(drawn).regions
    assert region.drafts == ["Pears are a sort of fruit which grows on trees in the garden"]
    saved = tmp_path / "korean_PP-OCRv5_rec_mobile.onnx"
    shutil.copy(recognition_model("en").path, saved)
    model = recognition_model("korean", tmp_path)
    assert (model.path, model.version, model.size) == (saved, "PP-OCRv5", "mobile")
    korean = pickle.loads(pickle.dumps(OCR(language="korean", models=tmp_path, layout=False)))
    assert korean(drawn).regions[0].drafts == region.drafts
    assert korean._load.__self__._recognition == model


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


def test_another_language_is_another_draft() -> None:
    assert drafter_hash("ocr", "en") != drafter_hash("ocr", "korean")
    assert drafter_hash("ocr") == "ocr"
    drafter = make_drafter("ocr", "ja")
    assert isinstance(drafter, OCR)
    assert drafter.language == "ja"


def test_words_are_separated_from_substituted_letters() -> None:
    pytest.importorskip("wordfreq")
    assert are_words(["The cup is on the table."])
    assert are_words(["Die Tasse steht nicht auf dem Tisch, sondern daneben."])
    assert not are_words(["Uif dvq jt po uif ubcmf, cvu opu uif tqppo."])
    assert not are_words([""])


def test_a_layer_of_the_same_letters_is_reported() -> None:
    assert is_repetitive(["\u00c3\u00c3\u00c3 \u00c3\u00c3\u00c3\u00c3", "abc \u00c3\u00c3\u00c3"])
    assert not is_repetitive(["The www is one of many webs, see http"])
    assert not is_repetitive(["12 345"])

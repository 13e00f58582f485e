"""Families of document parsers: how they are recognised, and what they are asked about what."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from page_answers import page_text
from sooner.documents import PageDraft, Region
from sooner.documents.tables import Cell, to_html
from sooner.errors import SoonerError
from sooner.tasks.parse import ParseSettings
from sooner.tasks.parse.contexts import (
    decoded,
    on_page,
    page_drafts,
    pieces_of,
    region_pieces,
    with_region_texts,
)
from sooner.tasks.parse.families import (
    FAMILIES,
    FORMS,
    NAME,
    FamilyPrompts,
    base_name,
    family_of,
)

DOCS = Path(__file__).parents[2] / "docs"

TABLE = to_html([[Cell("Fruit", columns=2)], [Cell("pear"), Cell("2")]])


@pytest.mark.parametrize(
    ("model", "model_type", "family"),
    [
        ("allenai/olmOCR-2-7B-1025-FP8", "qwen2_5_vl", "olmocr"),
        ("nanonets/Nanonets-OCR2-3B", "qwen2_5_vl", "nanonets-ocr"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl", None),
        ("opendatalab/MinerU2.5-2509-1.2B", "qwen2_vl", "mineru"),
        ("datalab-to/chandra-ocr-2", "qwen3_5", "chandra-2"),
        ("datalab-to/chandra-ocr-2", "", "chandra-2"),
        ("ibm-granite/granite-docling-258M", "idefics3", "granite-docling"),
        ("ds4sd/SmolDocling-256M-preview", "idefics3", "granite-docling"),
        ("HuggingFaceM4/Idefics3-8B-Llama3", "idefics3", None),
        ("anybody/anything", "glm_ocr", "glm-ocr"),
        ("anybody/anything", "paddleocr_vl", "paddleocr-vl"),
        ("anybody/anything", "", None),
        ("lightonai/LightOnOCR-2-1B", "", "lighton-ocr"),
        ("zai-org/GLM-OCR", "", "glm-ocr"),
        ("deepseek-ai/DeepSeek-OCR", "", None),
        ("deepseek-ai/DeepSeek-OCR-2", "", "deepseek-ocr-2"),
        ("Qwen/Qwen3-VL-2B-Instruct", "", None),
        ("/models/olmocr/checkpoint-7", "qwen2_5_vl", None),
        ("~/.cache/hub/models--allenai--olmOCR-2-7B/snapshots/0a1b2c", "qwen2_5_vl", "olmocr"),
    ],
)
def test_a_model_is_known_by_its_type_and_its_name(
    model: str, model_type: str, family: str | None
) -> None:
    assert family_of(model, model_type).name == family


def test_a_folder_or_a_caller_names_the_family_of_a_finetune(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"parse": {"family": "olmocr"}}))
    assert family_of(str(tmp_path), "qwen2_5_vl").name == "olmocr"
    assert family_of(str(tmp_path), "qwen2_5_vl").ask is FAMILIES["olmocr"].ask
    assert family_of(str(tmp_path), "qwen2_5_vl").longest == 1288
    assert family_of(str(tmp_path), "qwen2_5_vl", "nanonets-ocr").name == "nanonets-ocr"
    (tmp_path / NAME).write_text(json.dumps({"parse": {"longest": 800, "prompt": "read"}}))
    assert family_of(str(tmp_path), "lighton_ocr").longest == 800
    assert family_of(str(tmp_path), "lighton_ocr").ask == FamilyPrompts("read")
    assert family_of(str(tmp_path), "lighton_ocr", "olmocr").ask is FAMILIES["olmocr"].ask
    (tmp_path / NAME).write_text(json.dumps({"parse": {"family": "olmocrr"}}))
    with pytest.raises(SoonerError, match="did you mean 'olmocr'"):
        family_of(str(tmp_path))
    with pytest.raises(SoonerError, match=r"unknown family 'glmocr'.*did you mean 'glm-ocr'"):
        ParseSettings(family="glmocr")
    assert base_name("a/b") == "b"


def test_the_table_of_families_is_that_of_the_documentation() -> None:
    text = (DOCS / "reference" / "parsers.md").read_text(encoding="utf-8")
    tool = runpy.run_path(str(DOCS.parent / "tools" / "parser_families.py"))
    for name in ("families_table", "prompts_table"):
        assert tool[name]() in text, "run: python tools/parser_families.py"
    for name in FORMS:
        assert f"`{name}`" in text


def ask_of(family: str) -> FamilyPrompts:
    return FAMILIES[family].ask


def page() -> PageDraft:
    regions = [
        Region((0, 0, 40, 40), "Text", 0, ["pears and"]),
        Region((0, 40, 40, 80), "Formula", 1, ["$$x + y$$"]),
        Region((0, 80, 40, 120), "Table", 2, [TABLE]),
        Region((0, 120, 40, 160), "Picture", 3),
        Region((0, 160, 40, 200), "Picture", 4, ["year\tpears\n2020\t3"]),
    ]
    return PageDraft(regions, size=(84, 224))


def test_the_prompt_of_a_crop_follows_its_content() -> None:
    ask = ask_of("paddleocr-vl")
    pieces = region_pieces(page(), ask)
    prompts = [ask.about(piece.region).prompt for piece in pieces]
    assert prompts == ["OCR:", "Formula Recognition:", "Table Recognition:", "Chart Recognition:"]
    assert [piece.place for piece in pieces] == [0, 1, 2, 4]  # a picture without text is left out
    assert pieces[1].texts == ["\\[x + y\\]"]
    assert pieces[2].texts == ["<fcel>Fruit<lcel><nl><fcel>pear<fcel>2<nl>"]
    assert region_pieces(page(), ask_of("glm-ocr"))[2].texts == [TABLE]


def test_what_was_read_on_a_crop_is_brought_into_the_form_of_the_page() -> None:
    ask, draft = ask_of("paddleocr-vl"), page()
    table = draft.regions[2]
    (text,) = on_page(table, "<fcel>Fruit<lcel><nl><fcel>plum<fcel>3<nl>", ask, draft)
    assert text == (  # pipes can't say that a cell goes over two columns
        '<table><tr><td colspan="2">Fruit</td></tr><tr><td>plum</td><td>3</td></tr></table>'
    )
    assert on_page(draft.regions[1], " \\[z\\] ", ask, draft) == ["$$\nz\n$$"]
    assert on_page(draft.regions[0], "pears  and", ask, draft) == ["pears  and"]  # the very text
    title = Region(None, "Title", drafts=["Fruit"])
    assert region_pieces(PageDraft([title]), ask)[0].texts == ["Fruit"]  # a crop has no headings
    assert on_page(title, "Fruits", ask, draft) == ["# Fruits"]
    result = with_region_texts(region_pieces(draft, ask), {0: "plums"}, ask, draft)
    assert result[0].texts == ["plums", "pears and"]


@pytest.mark.parametrize("form", ["deepseek", "doctags", "otsl"])
def test_tags_are_special_tokens_that_drafts_have_and_decoding_keeps(form: str) -> None:
    """A byte-level tokenizer that has each tag as one special token, as the families' have."""
    draft = PageDraft(
        [
            Region((8, 20, 40, 40), "Title", 0, ["Fruit"]),
            Region((8, 40, 40, 80), "Text", 1, ["pears are"]),
            Region((8, 80, 40, 120), "Table", 2, [TABLE]),
        ],
        size=(84, 224),
    )
    text = page_text(FORMS[form], draft)
    tags = re.findall(r"<[^<>]+>", text)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        ["pears"],
        trainers.BpeTrainer(
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    words = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<eos>", pad_token="<pad>",
        extra_special_tokens=sorted(set(tags)),
    )  # fmt: skip
    eos = [words.eos_token_id]
    groups = page_drafts(words, pieces_of(draft, form), form, eos)
    tokens = [token for group in groups for token in group[0]]
    assert len(groups) == 3
    assert tokens[-1:] == eos
    assert sum(words.convert_tokens_to_ids(tag) in tokens for tag in set(tags)) == len(set(tags))
    assert decoded(words, [*tokens, words.pad_token_id], form, eos) == text

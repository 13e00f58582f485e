"""Families of document parsers: how a model is recognised, and what it was trained to be asked.

Prompts and formats are facts of each family's own documentation, which `Family.source` names. Where
a vendor publishes no prompt for a kind of region, none is made up: the crop is asked about as a
text is, or as a page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...documents.regions import FORMULA, PICTURE, TABLE
from .forms import CODE, CropPrompt, FamilyPrompts
from .prompts import (
    CHANDRA_1,
    CHANDRA_2,
    DOTS_PAGE,
    GOT_PAGE,
    GOT_TEMPLATE,
    HUNYUAN_CHART,
    HUNYUAN_FORMULA,
    HUNYUAN_PAGE,
    HUNYUAN_TABLE,
    NANONETS,
    OLMOCR,
    QIANFAN_PAGE,
)


@dataclass(frozen=True)
class Family:
    """Holds a family of document parsers.

    Attributes:
        ask: its official prompts, and the forms of its answers.
        source: where these are documented: repositories of GitHub or of Hugging Face's hub, and a
            file in each; `README` is a model card, too.
        types: `model_type` of its checkpoints.
        named: pattern of its checkpoints' names, where others have the same types; empty for all
            of these types.
        longest: pixels of the longer side of the pages that it was trained on; `None` for any, as
            its processor scales pages itself.
        stops: tokens that end its answers beside what its models' generation configs say.
    """

    ask: FamilyPrompts
    source: str
    types: tuple[str, ...]
    named: str = ""
    longest: int | None = None
    stops: tuple[str, ...] = ()


KINDS = {"table": TABLE, "formula": FORMULA, "chart": PICTURE, "code": CODE}
"""Regions that a family may have a prompt of their own for, as its documentation calls them."""


def _crops(form: str, **prompts: str) -> dict[str, CropPrompt]:
    """Returns what is asked about crops by kind (`KINDS`), all answered in one form."""
    return {KINDS[kind]: CropPrompt(prompt, form) for kind, prompt in prompts.items()}


FAMILIES: dict[str, Family] = {
    "chandra": Family(
        FamilyPrompts(CHANDRA_1, "chandra"),
        "datalab-to/chandra, chandra/prompts.py until January 2026",
        ("qwen3_vl",),
        r"chandra(?!.*2)",
    ),
    "chandra-2": Family(
        FamilyPrompts(CHANDRA_2, "chandra-2"),
        "datalab-to/chandra, chandra/prompts.py; docling-project/docling, vlm_prompts.py",
        ("qwen3_5",),
        r"chandra.*2",
    ),
    "deepseek-ocr-2": Family(
        FamilyPrompts(
            "<|grounding|>Convert the document to markdown.",
            "deepseek",
            "Free OCR.",
            "markdown-brackets",
            template="<image>\n{prompt}",
        ),
        "deepseek-ai/DeepSeek-OCR-2, README; huggingface/transformers, deepseek_ocr2.md",
        ("deepseek_ocr2",),
    ),
    "dots.ocr": Family(
        FamilyPrompts(DOTS_PAGE, "dots", "Extract the text content from this image.", "dots-text"),
        "rednote-hilab/dots.ocr, dots_ocr/utils/prompts.py",
        ("dots_ocr",),
    ),
    "glm-ocr": Family(
        FamilyPrompts(
            "Text Recognition:",
            "markdown-html",
            "Text Recognition:",
            "text",
            {
                **_crops("markdown-html", table="Table Recognition:"),
                **_crops("markdown", formula="Formula Recognition:"),
            },
        ),
        "zai-org/GLM-OCR, glmocr/config.yaml; huggingface/transformers, glm_ocr.md",
        ("glm_ocr",),
    ),
    "got-ocr-2": Family(
        FamilyPrompts(
            GOT_PAGE,
            "markdown-brackets",
            "OCR: ",
            "markdown-brackets",
            _crops("markdown-brackets", table=GOT_PAGE, formula=GOT_PAGE),
            GOT_TEMPLATE,
        ),
        "Ucas-HaoranWei/GOT-OCR2.0, run_ocr_2.0.py; huggingface/transformers, GotOcr2Processor",
        ("got_ocr2",),
        stops=("<|im_end|>",),
    ),
    "granite-docling": Family(
        FamilyPrompts(
            "Convert this page to docling.",
            "doctags",
            "",
            "",
            _crops(
                "doctags",
                table="Convert table to OTSL.",
                formula="Convert formula to LaTeX.",
                chart="Convert chart to table.",
                code="Convert code to text.",
            ),
        ),
        "ibm-granite/granite-docling-258M and docling-project/SmolDocling-256M-preview, README",
        ("idefics3",),
        r"docling",
    ),
    "hunyuan-ocr": Family(
        FamilyPrompts(
            HUNYUAN_PAGE,
            "markdown-html",
            "Extract the text in the image.",
            "text",
            {
                **_crops("markdown-html", table=HUNYUAN_TABLE, formula=HUNYUAN_FORMULA),
                **_crops("markdown", chart=HUNYUAN_CHART),
            },
        ),
        "Tencent-Hunyuan/HunyuanOCR, README",
        ("hunyuan_vl",),
    ),
    "lighton-ocr": Family(
        FamilyPrompts("", "markdown-html"),
        "lightonai/LightOnOCR-2-1B, README; huggingface/transformers, lighton_ocr.md",
        ("lighton_ocr",),
        longest=1540,
    ),
    "mineru": Family(
        FamilyPrompts(
            "\nText Recognition:",
            "markdown",
            "\nText Recognition:",
            "text",
            _crops("otsl-lines", table="\nTable Recognition:", formula="\nFormula Recognition:"),
        ),
        "opendatalab/mineru-vl-utils, mineru_vl_utils/mineru_client.py",
        ("qwen2_vl",),
        r"mineru",
    ),
    "nanonets-ocr": Family(
        FamilyPrompts(NANONETS, "markdown-html"),
        "nanonets/Nanonets-OCR-s and nanonets/Nanonets-OCR2-3B, README",
        ("qwen2_5_vl",),
        r"nanonets",
    ),
    "olmocr": Family(
        FamilyPrompts(OLMOCR, "front-matter"),
        "allenai/olmocr, olmocr/prompts/prompts.py",
        ("qwen2_5_vl",),
        r"olmocr",
        longest=1288,
    ),
    "paddleocr-vl": Family(
        FamilyPrompts(
            "OCR:",
            "markdown",
            "OCR:",
            "text",
            {
                **_crops("otsl", table="Table Recognition:", formula="Formula Recognition:"),
                **_crops("markdown", chart="Chart Recognition:"),
            },
        ),
        "PaddlePaddle/PaddleOCR-VL, README; huggingface/transformers, paddleocr_vl.md",
        ("paddleocr_vl",),
    ),
    "qianfan-ocr": Family(
        FamilyPrompts(
            QIANFAN_PAGE,
            "markdown-html",
            "OCR the text in the image.",
            "markdown-html",
            _crops("markdown-html", table=QIANFAN_PAGE, formula=QIANFAN_PAGE),
        ),
        "huggingface/transformers, qianfan_ocr.md",
        ("qianfan_ocr",),
    ),
}


def recognised(name: str, model_type: str = "") -> str | None:
    """Returns the family of a checkpoint of that name and type; `None` for none of these.

    Args:
        model_type: empty for unknown: then its name matches a pattern, or has a family's in it.
    """
    for entry, family in FAMILIES.items():
        is_type = model_type in family.types if model_type else bool(family.named)
        if is_type and re.search(family.named, name, re.IGNORECASE):
            return entry
    if model_type:
        return None
    letters = _letters(name)
    named = [entry for entry in FAMILIES if _letters(entry) in letters]
    return max((entry for entry in named if not FAMILIES[entry].named), key=len, default=None)


def _letters(name: str) -> str:
    """Returns letters and digits of a name, small."""
    return "".join(filter(str.isalnum, name)).lower()

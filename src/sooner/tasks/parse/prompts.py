"""Official prompts of document parsers that take more than a line; `families.py` has the others.

Each is what its family was trained on, word for word, from its own documentation: another wording
makes answers worse, and their form another one.
"""

from __future__ import annotations

import re

DOTS_PAGE = """\
Please output the layout information from the PDF image, including each layout element's bbox, \
its category, and the corresponding text content within the bbox.

1. Bbox format: [x1, y1, x2, y2]

2. Layout Categories: The possible categories are ['Caption', 'Footnote', 'Formula', \
'List-item', 'Page-footer', 'Page-header', 'Picture', 'Section-header', 'Table', 'Text', 'Title'].

3. Text Extraction & Formatting Rules:
    - Picture: For the 'Picture' category, the text field should be omitted.
    - Formula: Format its text as LaTeX.
    - Table: Format its text as HTML.
    - All Others (Text, Title, etc.): Format their text as Markdown.

4. Constraints:
    - The output text must be the original text from the image, with no translation.
    - All layout elements must be sorted according to human reading order.

5. Final Output: The entire output must be a single JSON object.
"""
"""dots.ocr: rednote-hilab/dots.ocr, `prompt_layout_all_en`."""

HUNYUAN_PAGE = (
    "Extract all information from the main body of the document image and represent it in "
    "markdown format, ignoring headers and footers. Tables should be expressed in HTML format, "
    "formulas in the document should be represented using LaTeX format, and the parsing should be "
    "organized according to the reading order."
)

HUNYUAN_TABLE = "Parse the table in the image into HTML."

HUNYUAN_FORMULA = "Identify the formula in the image and represent it using LaTeX format."

HUNYUAN_CHART = (
    "Parse the chart in the image; use Mermaid format for flowcharts and Markdown for other charts."
)
"""HunyuanOCR: README of Tencent-Hunyuan/HunyuanOCR."""

GOT_PAGE = "OCR with format: "

GOT_TEMPLATE = (
    "<|im_start|>system\nYou should follow the instructions carefully and explain your answers in "
    "detail.<|im_end|><|im_start|>user\n<img><imgpad></img>\n{prompt}<|im_end|>"
    "<|im_start|>assistant\n"
)
"""GOT-OCR 2.0: transformers' GotOcr2Processor, which writes these."""

QIANFAN_PAGE = "Parse this document to Markdown."
"""Qianfan-OCR: transformers' documentation of qianfan_ocr."""

NANONETS = (
    "Extract the text from the above document as if you were reading it naturally. Return the "
    "tables in html format. Return the equations in LaTeX representation. If there is an image in "
    "the document and image caption is not present, add a small description of the image inside "
    "the <img></img> tag; otherwise, add the image caption inside <img></img>. Watermarks should "
    "be wrapped in brackets. Ex: <watermark>OFFICIAL COPY</watermark>. Page numbers should be "
    "wrapped in brackets. Ex: <page_number>14</page_number> or <page_number>9/22</page_number>. "
    "Prefer using ☐ and ☑ for check boxes."
)
"""Nanonets-OCR-s and Nanonets-OCR2: their model cards."""

OLMOCR = (
    "Attached is one page of a document that you must process. Just return the plain text "
    "representation of this document as if you were reading it naturally. Convert equations to "
    "LateX and tables to HTML.\n"
    "If there are any figures or charts, label them with the following markdown syntax ![Alt text "
    "describing the contents of the figure](page_startx_starty_width_height.png)\n"
    "Return your output as markdown, with a front matter section on top specifying values for the "
    "primary_language, is_rotation_valid, rotation_correction, is_table, and is_diagram parameters."
)
"""olmOCR from 0825, olmOCR 2: allenai/olmocr, `build_no_anchoring_v4_yaml_prompt`."""

_TAGS = [
    "math", "br", "i", "b", "u", "del", "sup", "sub", "table", "tr", "td", "p", "th", "div",
    "pre", "h1", "h2", "h3", "h4", "h5", "ul", "ol", "li", "input", "a", "span", "img", "hr",
    "tbody", "small", "caption", "strong", "thead", "big", "code",
]  # fmt: skip

_ATTRIBUTES = [
    "class", "colspan", "rowspan", "display", "checked", "type", "border", "value", "style",
    "href", "alt", "align",
]  # fmt: skip

_LABELS = [
    "Caption", "Footnote", "Equation-Block", "List-Group", "Page-Header", "Page-Footer", "Image",
    "Section-Header", "Table", "Text", "Complex-Block", "Code-Block", "Form", "Table-Of-Contents",
    "Figure",
]  # fmt: skip

_CHANDRA = """\
OCR this image to HTML, arranged as layout blocks.  Each layout block should be a div with the \
data-bbox attribute representing the bounding box of the block in BOX format.  Bboxes are \
normalized 0-SIDE. The data-label attribute is the label for the block.

Use the following labels:
LABELS

Only use these tags TAGS, and these attributes ATTRIBUTES.

Guidelines:
* Inline math: Surround math with <math>...</math> tags. Math expressions should be rendered in \
KaTeX-compatible LaTeX. Use display for block math.
* Tables: Use colspan and rowspan attributes to match table structure.
* Formatting: Maintain consistent formatting with the image, including spacing, indentation, \
subscripts/superscripts, and special characters.
* Images: Include a description of any images in the alt attribute of an <img> tag. Do not fill \
out the src property.IMAGES
* Forms: Mark checkboxes and radio buttons properly.
* Text: join lines together properly into paragraphs using <p>...</p> tags.  Use <br> tags for \
line breaks within paragraphs, but only when absolutely necessary to maintain meaning.
MORE* Use the simplest possible HTML structure that accurately represents the content of the block.
* Make sure the text is accurate and easy for a human to read and interpret.  Reading order \
should be correct and natural."""


def _chandra(
    box: str, side: int, labels: list[str], tags: list[str], attributes: list[str],
    images: str = "", more: str = "",
) -> str:  # fmt: skip
    """Returns a version of Chandra's prompt: how boxes are written, and what the version added."""
    filled = {
        "BOX": box,
        "SIDE": str(side),
        "LABELS": "\n".join(f"- {label}" for label in labels),
        "TAGS": str(tags),
        "ATTRIBUTES": str(attributes),
        "IMAGES": images,
        "MORE": more,
    }
    return re.sub("|".join(filled), lambda match: filled[match[0]], _CHANDRA)


CHANDRA_1 = _chandra("[x0, y0, x1, y1]", 1024, _LABELS, _TAGS, _ATTRIBUTES)

CHANDRA_2 = _chandra(
    "x0 y0 x1 y1",
    1000,
    [*_LABELS, "Chemical-Block", "Diagram", "Bibliography", "Blank-Page"],
    [*_TAGS, "chem"],
    [*_ATTRIBUTES, "data-bbox", "data-label"],
    " Describe in detail inside the div tag. Also convert charts to high fidelity data, and "
    "convert diagrams to mermaid.",
    "* Chemistry: Use <chem>...</chem> tags for chemical formulas with reactive SMILES.\n"
    "* Lists: Preserve indents and proper list markers.\n",
)
"""Chandra: datalab-to/chandra, `OCR_LAYOUT_PROMPT`; what its second version was trained on, too."""

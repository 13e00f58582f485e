"""Prompts of real texts that every Python has: its manual, its library and packages' metadata.

| workload | the text | the answer |
|---|---|---|
| `chat` | a keyword of Python's manual (`pydoc_data.topics`) | an explanation |
| `summarise` | a section of that manual | a summary |
| `copy` | a paragraph of that manual | the same paragraph, word for word |
| `copy-edit` | a function of the standard library | the same code with one variable renamed |
| `ocr-cleaning` | what RapidOCR reads of a small picture of that manual | the text without errors |
| `json` | the metadata of an installed package | a JSON object under a schema |
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sooner.errors import SoonerError

MODULES = (
    *("textwrap", "shlex", "bisect", "heapq", "posixpath", "fnmatch", "colorsys", "statistics"),
    *("calendar", "random", "glob", "genericpath", "difflib", "linecache", "tokenize", "quopri"),
)
"""Modules of the standard library whose functions are edited, in this order."""
PACKAGES = (
    *("numpy", "transformers", "tokenizers", "safetensors", "pillow", "typer", "rich", "packaging"),
    *("huggingface-hub", "pyyaml", "tqdm", "jinja2", "fsspec", "torch", "pydantic", "fastapi"),
    *("starlette", "uvicorn", "httpx", "click", "scipy", "matplotlib", "pdfplumber", "pypdfium2"),
)
"""Packages whose metadata is read, in this order; those that are not installed are passed over."""
SCHEMA = {
    "type": "object",
    "properties": {key: {"type": "string"} for key in ("name", "version", "summary", "licence")},
    "required": ["name", "version", "summary", "licence"],
    "additionalProperties": False,
}
FIELDS = ("Name", "Version", "Summary", "Home-page", "License", "License-Expression", "Author")
FUNCTION_LINES = (8, 24)
SECTION_WORDS = (120, 320)
PARAGRAPH_WORDS = (40, 130)
CODE = set('"*`[]=>')
"""Signs that a paragraph of prose has none of."""
OCR_WORDS = 70
OCR_FONT, OCR_COLUMNS, OCR_MARGIN = 11, 62, 12
"""Size of the letters, letters of a line and margin of a picture, in pixels where they are no
letters: small enough that RapidOCR errs."""


@dataclass(frozen=True)
class Prompt:
    """A prompt of a workload.

    Attributes:
        text: what the user writes.
        prediction: a text that the answer is expected to repeat in part; empty where there is none.
        schema: JSON schema of the answer.
        history: turns before it, what the user wrote and the answer of each.
    """

    text: str
    prediction: str = ""
    schema: dict[str, Any] | None = None
    history: tuple[tuple[str, str], ...] = ()


def chat(count: int) -> list[Prompt]:
    """Questions about keywords of Python."""
    keywords = ("with", "yield", "lambda", "assert", "global", "import", "raise", "del", "class")
    more = ("try", "return", "async", "break", "nonlocal", "pass", "for", "while", "else")
    form = "Explain in a few sentences what the `{}` statement of Python is for."
    return [Prompt(form.format(word)) for word in (*keywords, *more)[:count]]


def summarise(count: int) -> list[Prompt]:
    """Sections of Python's manual to be summarised."""
    return [
        Prompt(f"Summarise this text in three sentences:\n\n{section}")
        for section in list(_sections())[:count]
    ]


def copy(count: int) -> list[Prompt]:
    """Paragraphs of Python's manual to be repeated, behind the first one, which was."""
    form = "Repeat this text word for word:\n\n{}"
    paragraphs = list(dict.fromkeys(_paragraphs()))
    history = ((form.format(paragraphs[0]), paragraphs[0]),)
    return [
        Prompt(form.format(paragraph), paragraph, history=history)
        for paragraph in paragraphs[:count]
    ]


@dataclass(frozen=True)
class Renaming:
    """A function of the standard library and the variable that is to be renamed in it.

    Attributes:
        module: name of its module.
        code: its source.
        variable: the one that it names most often.
    """

    module: str
    code: str
    variable: str

    @property
    def ask(self) -> str:
        """What the user writes in front of the code."""
        new = f"{self.variable}_value"
        return f"Rename {self.variable} to {new} in this code and write it again:\n"

    @property
    def answer(self) -> str:
        """The code with the variable renamed."""
        return re.sub(rf"\b{self.variable}\b", f"{self.variable}_value", self.code)


def renamings(count: int) -> list[Renaming]:
    """Functions of the standard library in which a variable is to be renamed."""
    return list(islice(_functions(), count))


def copy_edit(count: int) -> list[Prompt]:
    """Functions in which a variable is to be renamed, as prompts."""
    return [Prompt(each.ask + each.code, each.code) for each in renamings(count)]


def ocr_cleaning(count: int) -> list[Prompt]:
    """What RapidOCR reads of pictures of Python's manual.

    Raises:
        SoonerError: rapidocr is not installed.
    """
    engine = ocr_engine("the workload ocr-cleaning")
    prompts = []
    for section in list(_sections())[:count]:
        output: Any = engine(_picture(" ".join(section.split()[:OCR_WORDS])))
        lines = output.txts or ()
        reading = "\n".join(lines)
        prompts.append(
            Prompt(f"Correct the errors of this text and write it again:\n\n{reading}", reading)
        )
    return prompts


def ocr_engine(what: str) -> Any:
    """Return RapidOCR with the models of its wheel; `what` needs it.

    Raises:
        SoonerError: rapidocr is not installed.
    """
    try:
        from rapidocr import RapidOCR
    except ImportError as error:
        raise SoonerError(
            f"{what} needs rapidocr, which is not installed; pip install 'sooner[ocr]'"
        ) from error
    return RapidOCR(params={"Global.log_level": "error"})


def json_extraction(count: int) -> list[Prompt]:
    """Metadata of installed packages, of which an object under `SCHEMA` is to be made."""
    prompts = []
    for package in PACKAGES:
        try:
            data = importlib.metadata.metadata(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        lines = [f"{name}: {str(data[name])[:120]}" for name in FIELDS if name in data]
        ask = "Write the name, version, summary and licence of this package as a JSON object:"
        prompts.append(Prompt(f"{ask}\n\n" + "\n".join(lines), schema=SCHEMA))
    return prompts[:count]


WORKLOADS: dict[str, Callable[[int], list[Prompt]]] = {
    "chat": chat,
    "summarise": summarise,
    "copy": copy,
    "copy-edit": copy_edit,
    "ocr-cleaning": ocr_cleaning,
    "json": json_extraction,
}
"""Workloads by name; each makes so many prompts, or fewer where there are no more texts."""


def _sections() -> Iterator[str]:
    """Yields the sections of Python's manual that are neither short nor long, in its order."""
    from pydoc_data.topics import topics

    low, high = SECTION_WORDS
    for text in topics.values():
        if low <= len(text.split()) <= high:
            lines = text.strip().split("\n")
            yield "\n".join(line for line in lines if not line or set(line) - set("*=-"))


def _paragraphs() -> Iterator[str]:
    """Yields the prose paragraphs of Python's manual that are of some length, each on one line."""
    from pydoc_data.topics import topics

    low, high = PARAGRAPH_WORDS
    for text in topics.values():
        for paragraph in text.split("\n\n"):
            words = paragraph.split()
            is_prose = not CODE & set(paragraph) and "\n " not in f"\n{paragraph}"
            if low <= len(words) <= high and is_prose:
                yield " ".join(words)


def _functions() -> Iterator[Renaming]:
    """Yields functions of `MODULES`, and of each the variable that it names most often."""
    for module in map(importlib.import_module, MODULES):
        for function in vars(module).values():
            if not inspect.isfunction(function):
                continue
            if function.__code__.co_filename != module.__file__ or "." in function.__qualname__:
                continue
            code = inspect.getsource(function).rstrip()
            edit = renaming(module.__name__, code, function.__code__.co_varnames)
            if edit is not None:
                yield edit


def renaming(module: str, code: str, variables: Collection[str]) -> Renaming | None:
    """Return the edit of a function's source; `None` where it is short, long, or has no variable
    that it names often."""
    low, high = FUNCTION_LINES
    if not low <= code.count("\n") + 1 <= high:
        return None
    names = Counter(
        node.id
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Name) and node.id in variables
    )
    longer = [(count, name) for name, count in names.items() if len(name) > 2 < count]
    return Renaming(module, code, max(longer)[1]) if longer else None


def _picture(text: str) -> Any:
    """Returns a picture of a text, `[height, width, 3]` uint8."""
    import textwrap

    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    lines, font = textwrap.wrap(text, OCR_COLUMNS), ImageFont.load_default(OCR_FONT)
    size = (OCR_COLUMNS * OCR_FONT * 6 // 10, (OCR_FONT + 4) * len(lines) + 2 * OCR_MARGIN)
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        top = OCR_MARGIN + number * (OCR_FONT + 4)
        draw.text((OCR_MARGIN, top), line, fill="#444444", font=font)
    return np.asarray(picture)

"""Prompts to learn from: functions and docstrings of the standard library, without the files that
`bench real` takes its prompts from, and paragraphs of licences of installed packages."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from itertools import chain, islice, zip_longest
from pathlib import Path

from ..real.texts import MODULES, PARAGRAPH_WORDS, SECTION_WORDS, Prompt, renaming

WITHOUT = {"pydoc_data", "test", "tests", "idlelib", "lib2to3", "site-packages", "__phello__"}
"""Folders of the standard library that are passed over."""
LICENCES = ("license", "licence", "copying", "notice")
COPY = "Repeat this text word for word:\n\n{}"


def training_prompts(count: int, seed: int) -> list[Prompt]:
    """Return prompts of four kinds in turns, those of each in an order that `seed` draws."""
    paragraphs = list(dict.fromkeys(_paragraphs()))
    pairs = zip(paragraphs, [*paragraphs[1:], *paragraphs[:1]], strict=True)
    copies = [Prompt(COPY.format(a), history=((COPY.format(b), b),)) for a, b in pairs]
    kinds = [copies, *(list(dict.fromkeys(kind)) for kind in _questions())]
    for number, kind in enumerate(kinds):
        random.Random(f"{seed} {number}").shuffle(kind)
    turns = chain.from_iterable(zip_longest(*kinds))
    return list(islice((prompt for prompt in turns if prompt is not None), count))


def files() -> list[Path]:
    """Return the modules of the standard library that are learnt from, in order."""
    home = Path(sysconfig.get_path("stdlib"))
    paths = sorted({*home.glob("*.py"), *home.glob("*/*.py")} - {home / f"{m}.py" for m in MODULES})
    return [path for path in paths if not WITHOUT & set(path.relative_to(home).parts)]


def _questions() -> tuple[list[Prompt], list[Prompt], list[Prompt]]:
    """Returns questions about functions, docstrings to be summarised, and code to be edited."""
    asked, summaries, edits = list[Prompt](), list[Prompt](), list[Prompt]()
    low, high = SECTION_WORDS
    for path in files():
        source = path.read_text(encoding="utf-8", errors="replace")
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if low // 2 <= len(text.split()) <= high:
                    summaries.append(Prompt(f"Summarise this text in three sentences:\n\n{text}"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                where = f"`{node.name}` of Python's module `{path.stem}`"
                asked.append(Prompt(f"Explain in a few sentences what {where} is for."))
                code = ast.get_source_segment(source, node) or ""
                inner = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
                names = {each.id for each in inner if isinstance(each.ctx, ast.Store)}
                edit = renaming(path.stem, code, names | {arg.arg for arg in node.args.args})
                edits += [] if edit is None else [Prompt(edit.ask + code)]
    return asked, summaries, edits


def _paragraphs() -> Iterator[str]:
    """Yields the paragraphs of licences that are of some length, each on one line."""
    low, high = PARAGRAPH_WORDS
    packages = sorted(distributions(), key=lambda each: str(each.metadata["Name"]))
    for path in (Path(str(file.locate())) for each in packages for file in each.files or ()):
        if path.name.lower().startswith(LICENCES) and path.is_file():
            for paragraph in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
                if low <= len(paragraph.split()) <= high:
                    yield " ".join(paragraph.split())

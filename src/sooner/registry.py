"""The methods that there are, as their classes declare them.

A class of `sooner.methods` is in the registry by what stands in its body:

    name: ClassVar[str] = "sd-tree"
    summary: ClassVar[str] = "a static tree of a draft model"
    draft_model: ClassVar[DraftModel] = "pixels"

and, to be a choice of `--method`, a class method `from_settings`. Command line, `sooner.<Class>`,
`sooner bench caption` and docs/methods.md follow from that. The declarations are read from the
source without importing it: `sooner --help` and `import sooner` load no torch.
"""

from __future__ import annotations

import ast
import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from .errors import SoonerError

DraftModel = Literal["none", "words", "pixels", "head"]
"""What a method drafts with: nothing that is loaded, a draft model that reads only, one that looks
at pixels if it can, or a head that was trained for the target."""

FOLDER = Path(__file__).parent / "methods"
DECLARED = ("name", "summary", "draft_model")
PAGE = """# Methods

Each is a frozen dataclass, `sooner.<Class>`. Those with a name in the first column are choices of
`--method`, and arms of `sooner bench caption` unless they need a head. This page is written by
`python -m sooner.registry > docs/methods.md` from what the classes declare, as
[Add a method](add-a-method.md) says.

| `--method` | class | drafts | draft model |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Entry:
    """One method.

    Attributes:
        name: its name on the command line, in records and in benchmarks.
        summary: what it drafts, in a few words.
        draft_model: what it needs for that.
        type_name, module: its class.
        is_choice: it can be built from a command's settings, so that `--method` knows it.
    """

    name: str
    summary: str
    draft_model: DraftModel
    type_name: str
    module: str
    is_choice: bool

    @property
    def needs_draft(self) -> bool:
        """Whether it needs a draft model, which may see pixels or not."""
        return self.draft_model in ("words", "pixels")

    def load(self) -> Any:
        """The class; imports its module."""
        return getattr(importlib.import_module(self.module), self.type_name)


@cache
def methods() -> dict[str, Entry]:
    """Every method by its name, in alphabetical order.

    Raises:
        SoonerError: a declaration that is missing or no literal, or a name that two classes have.
    """
    found: dict[str, Entry] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "ClassVar[" not in text and "(Method)" not in text:
            continue  # nothing is declared in it
        for node in ast.parse(text).body:
            entry = _entry(node, path) if isinstance(node, ast.ClassDef) else None
            if entry is not None:
                if entry.name in found:
                    raise _wrong(node, path, f"method '{entry.name}' is declared twice")
                found[entry.name] = entry
    return dict(sorted(found.items()))


def choices() -> dict[str, Entry]:
    """The methods that `--method` knows."""
    return {name: entry for name, entry in methods().items() if entry.is_choice}


def method_types() -> dict[str, Entry]:
    """Every method by the name of its class."""
    return {entry.type_name: entry for entry in methods().values()}


def _entry(node: ast.ClassDef, path: Path) -> Entry | None:
    """What a class declares; `None` if it has no name, as the base class and what is no method."""
    found = {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            what = line.target.id
            if what in DECLARED and ast.unparse(line.annotation).startswith("ClassVar"):
                found[what] = _literal(line, path, f"{what} of {node.name}")
    if not found.get("name"):
        is_method = any(isinstance(base, ast.Name) and base.id == "Method" for base in node.bases)
        if is_method and "name" not in found:
            raise _wrong(node, path, f"{node.name} declares no name")
        return None
    for what in DECLARED:
        if what not in found:
            raise _wrong(node, path, f"{node.name} declares no {what}")
    if found["draft_model"] not in get_args(DraftModel):
        known = ", ".join(get_args(DraftModel))
        told = f"draft_model of {node.name} is '{found['draft_model']}'; it must be one of {known}"
        raise _wrong(node, path, told)
    parts = path.relative_to(FOLDER).with_suffix("").parts
    is_choice = any(getattr(line, "name", "") == "from_settings" for line in node.body)
    module = ".".join((__package__ or "sooner", FOLDER.name, *parts))
    return Entry(type_name=node.name, module=module, is_choice=is_choice, **found)


def _literal(line: ast.AnnAssign, path: Path, what: str) -> Any:
    if isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
        return line.value.value
    raise _wrong(line, path, f"{what} is no literal text")


def _wrong(node: ast.AST, path: Path, what: str) -> SoonerError:
    place = f"{path.relative_to(FOLDER.parent)}:{getattr(node, 'lineno', 0)}"
    return SoonerError(f"{place}: {what}; see docs/add-a-method.md")


def page() -> str:
    """The text of docs/methods.md: the table, then the reference of every class."""
    rows = [
        f"| {f'`{entry.name}`' if entry.is_choice else ''} | `{entry.type_name}` "
        f"| {entry.summary} | {entry.draft_model} |\n"
        for entry in sorted(methods().values(), key=lambda entry: not entry.is_choice)
    ]
    modules = sorted({entry.module for entry in methods().values()})
    blocks = [f"::: {module}\n" for module in (f"{__package__}.methods.base", *modules)]
    return PAGE + "".join(rows) + "\n" + "".join(blocks)


if __name__ == "__main__":
    print(page(), end="")

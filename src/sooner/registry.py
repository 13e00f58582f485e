"""The methods that there are, as their classes declare them.

A class of `sooner.methods` is in the registry by what stands in its body:

    name: ClassVar[str] = "sd-tree"
    summary: ClassVar[str] = "a static tree of a draft model"
    draft_model: ClassVar[DraftModel] = "pixels"

and, to be a choice of `--method`, a class method `from_settings`. Command line, `sooner.<Class>`,
`sooner bench caption` and docs/methods.md follow from that. The declarations are read from the
source without importing it: `sooner --help` and `import sooner` load no torch.

Methods of other distributions are found by entry points of the group `sooner.methods`, such as
`repeat = "sooner_repeat:Repeat"`. Their source is read in the same way.
"""

from __future__ import annotations

import ast
import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from .errors import SoonerError

DraftModel = Literal["none", "words", "pixels", "head"]
"""What a method drafts with: nothing that is loaded, a draft model that reads only, one that looks
at pixels if it can, or a head that was trained for the target."""

FOLDER = Path(__file__).parent / "methods"
GROUP = "sooner.methods"
"""Entry points of other distributions, each a class."""
DECLARED = ("name", "summary", "draft_model")
PAGE = """# Methods

Each method is a frozen dataclass, `sooner.<Class>`. A name in the first column can be given to
`--method`. [Which method](which-method.md) helps to choose, and the [glossary](glossary.md)
explains the words. This page is written by `python -m sooner.registry > docs/methods.md`.

| `--method` | class | drafts | draft model |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Entry:
    """What the registry knows of one method.

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
    """Returns every method by its name, in alphabetical order.

    Raises:
        SoonerError: a declaration that is missing or no literal, a name that two classes have, or
            an entry point that names no such class.
    """
    entries: dict[str, Entry] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "ClassVar[" not in text and "(Method)" not in text:
            continue  # nothing is declared in it
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                _add(entries, node, path, _module(path))
    for point in entry_points(group=GROUP):
        node, path = _installed(point)
        _add(entries, node, path, point.module)
    return dict(sorted(entries.items()))


def _module(path: Path) -> str:
    parts = path.relative_to(FOLDER).with_suffix("").parts
    return ".".join((__package__ or "sooner", FOLDER.name, *parts))


def _add(entries: dict[str, Entry], node: ast.ClassDef, path: Path, module: str) -> None:
    entry = _entry(node, path, module)
    if entry is not None:
        if entry.name in entries:
            raise _wrong(node, path, f"method '{entry.name}' is declared twice")
        entries[entry.name] = entry


def _installed(point: EntryPoint) -> tuple[ast.ClassDef, Path]:
    """The class that an entry point names, and its file; the module itself is not imported."""
    try:
        spec = find_spec(point.module)
    except ModuleNotFoundError:  # of the package that should hold it
        spec = None
    path = Path(spec.origin) if spec is not None and spec.origin is not None else Path()
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == point.attr:
            return node, path
    raise SoonerError(
        f"entry point '{point.name}' of the group '{GROUP}' is '{point.value}', which is no class "
        "in a file of Python; write it as module:Class"
    )


def choices() -> dict[str, Entry]:
    """The methods that `--method` knows."""
    return {name: entry for name, entry in methods().items() if entry.is_choice}


def method_types() -> dict[str, Entry]:
    """Returns every method by the name of its class."""
    return {entry.type_name: entry for entry in methods().values()}


def _entry(node: ast.ClassDef, path: Path, module: str) -> Entry | None:
    """What a class declares; `None` if it has no name, as the base class and what is no method."""
    fields = {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            what = line.target.id
            if what in DECLARED and ast.unparse(line.annotation).startswith("ClassVar"):
                fields[what] = _literal(line, path, f"{what} of {node.name}")
    if not fields.get("name"):
        is_method = any(isinstance(base, ast.Name) and base.id == "Method" for base in node.bases)
        if is_method and "name" not in fields:
            raise _wrong(node, path, f"{node.name} declares no name")
        return None
    for what in DECLARED:
        if what not in fields:
            raise _wrong(node, path, f"{node.name} declares no {what}")
    if fields["draft_model"] not in get_args(DraftModel):
        known = ", ".join(get_args(DraftModel))
        message = (
            f"draft_model of {node.name} is '{fields['draft_model']}'; it must be one of {known}"
        )
        raise _wrong(node, path, message)
    is_choice = any(getattr(line, "name", "") == "from_settings" for line in node.body)
    return Entry(type_name=node.name, module=module, is_choice=is_choice, **fields)


def _literal(line: ast.AnnAssign, path: Path, what: str) -> Any:
    if isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
        return line.value.value
    raise _wrong(line, path, f"{what} is no literal text")


def _wrong(node: ast.AST, path: Path, what: str) -> SoonerError:
    file = path.relative_to(FOLDER.parent) if path.is_relative_to(FOLDER.parent) else path.name
    place = f"{file}:{getattr(node, 'lineno', 0)}"
    return SoonerError(f"{place}: {what}; see docs/add-a-method.md")


def page() -> str:
    """Returns the text of docs/methods.md: the table, then the reference of every class."""
    bundled = [item for item in methods().values() if item.module.startswith(f"{GROUP}.")]
    rows = [
        f"| {f'`{entry.name}`' if entry.is_choice else ''} | `{entry.type_name}` "
        f"| {entry.summary} | {entry.draft_model} |\n"
        for entry in sorted(bundled, key=lambda entry: not entry.is_choice)
    ]
    modules = sorted({entry.module for entry in bundled})
    blocks = [f"::: {module}\n" for module in (f"{__package__}.methods.base", *modules)]
    return PAGE + "".join(rows) + "\n" + "".join(blocks)


if __name__ == "__main__":
    print(page(), end="")

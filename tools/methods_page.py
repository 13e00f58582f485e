"""Writes docs/methods.md: the table of methods, then the reference of every class.

usage:
    python tools/methods_page.py        # writes docs/methods.md
"""

from __future__ import annotations

from pathlib import Path

from sooner.registry import GROUP, methods

PAGE = """# Methods

Each method is a frozen dataclass, `sooner.<Class>`. A name in the first column can be given to
`--method`. [Which method](which-method.md) helps to choose, and the [glossary](glossary.md)
explains the words. This page is written by `python tools/methods_page.py`.

| `--method` | class | drafts | draft model |
|---|---|---|---|
"""


def page() -> str:
    """Returns the text of the page."""
    bundled = [item for item in methods().values() if item.module.startswith(f"{GROUP}.")]
    rows = [
        f"| {f'`{entry.name}`' if entry.is_choice else ''} | `{entry.type_name}` "
        f"| {entry.summary} | {entry.draft_model} |\n"
        for entry in sorted(bundled, key=lambda entry: not entry.is_choice)
    ]
    base = f"{GROUP}.base"  # the plain method stands there, too
    modules = sorted({entry.module for entry in bundled} - {base})
    blocks = [f"::: {module}\n" for module in (base, *modules)]
    return PAGE + "".join(rows) + "\n" + "".join(blocks)


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "methods.md"
    path.write_text(page(), encoding="utf-8")
    print(path)

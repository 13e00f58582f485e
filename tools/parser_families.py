"""The tables of families of document parsers in `docs/reference/parsers.md`; prints them."""

from __future__ import annotations

import re

from sooner.tasks.parse.families import FAMILIES, KINDS, Family, FamilyPrompts

CROPS_ALONE = ("glm-ocr", "mineru", "paddleocr-vl")
"""Families that are officially asked about crops of regions, whose boxes another model finds."""


def families_table() -> str:
    """Returns the families as a Markdown table, as it stands in docs/reference/parsers.md."""
    rows = []
    for name, family in FAMILIES.items():
        size = f"{family.longest} px" if family.longest else "any"
        forms = ", ".join(f"`{form}`" for form in forms_of(family.ask))
        rows.append([f"`{name}`", known_by(family), forms, size])
    return _table(["family", "recognised by", "`--form`", "pages"], rows)


def known_by(family: Family) -> str:
    """Returns types and names of a family's checkpoints, in a line."""
    types = ", ".join(f"`{kind}`" for kind in family.types)
    if not family.named:
        return types
    name = re.match(r"[a-z]+", family.named)
    return f"{types} whose name has `{name[0] if name else family.named}`"


def forms_of(ask: FamilyPrompts) -> list[str]:
    """Returns names of all forms that a family answers in, that of a page first."""
    forms = [ask.form, ask.region_form, *(entry.form for entry in ask.by_label.values())]
    return [form for form in dict.fromkeys(forms) if form]


AS_PAGE, AS_TEXT = "as a page", "as text"


def prompts_table() -> str:
    """Returns what each family is asked, and its source, as in docs/reference/parsers.md."""
    rows = []
    for name, family in FAMILIES.items():
        ask = family.ask
        page = _shortened(ask.page) if ask.page else "nothing"
        page += " (officially about crops)" if name in CROPS_ALONE else ""
        text = _shortened(ask.region) if ask.region not in ("", ask.page) else AS_PAGE
        rows.append(
            [
                f"`{name}`",
                page,
                text,
                *(_about(ask, label) for label in KINDS.values()),
                family.source,
            ]
        )
    return _table(["family", "page", "text", *KINDS, "source"], rows)


def _about(ask: FamilyPrompts, label: str) -> str:
    """Returns the prompt about regions of a label, or the kind of prompt that stands for it."""
    entry = ask.by_label.get(label)
    if entry is None:
        return AS_TEXT if ask.region not in ("", ask.page) else AS_PAGE
    return AS_PAGE if entry.prompt == ask.page else _shortened(entry.prompt)


def _table(head: list[str], rows: list[list[str]]) -> str:
    header, *lines = [f"| {' | '.join(line)} |\n" for line in [head, *rows]]
    return "".join([header, f"|{'---|' * len(head)}\n", *lines])


def _shortened(prompt: str, limit: int = 48) -> str:
    line = " ".join(prompt.split())
    text = line if len(line) <= limit else line[:limit].rstrip() + " ..."
    return f"`{text.replace('|', chr(92) + '|')}`"


if __name__ == "__main__":
    print(families_table())
    print(prompts_table(), end="")

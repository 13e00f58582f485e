"""Tables and figures in Markdown, written from the results that they quote.

A table is declared where it stands: the rows of a result, then a line for each column with its key,
heading and format, and what its figures are multiplied by:

    <!-- table:caption arms
    method | arm | `{}`
    decode_speedup | decode | {:.2f}×
    -->
    <!-- /table -->

A key that begins with `/` leads into the result instead of the row, whose values stand for names in
braces: `/loops[method={method}&env=all].success_rate`. Inside a sentence,
`<!-- figure:NAME KEY FORMAT -->5.6×<!-- /figure -->` is the value at KEY of that result, such as
`arms[method=parallel].decode_speedup`, written by FORMAT, such as `{:.1f}×`.
`python -m sooner_lab.bench.readme` writes both anew. A test holds them equal, so that no figure in
the texts outlives its result.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

from .declared import Data
from .render import cell, table_lines

BLOCK = re.compile(
    r"(<!-- table:([a-z0-9-]+) (\S+)\n(.*?)-->\n)(?:(?!<!-- table).)*?(<!-- /table -->)", re.DOTALL
)
OPEN = re.compile(r"<!-- table:([^ ]*) ")
FIGURE = re.compile(
    r"(<!-- figure:([a-z0-9-]+)\s+(.+?)\s+(\{.+?)\s*-->)(.*?)(<!-- /figure -->)", re.DOTALL
)
STEP = re.compile(r"\[([^\]=]+)=([^\]]+)\]|\[(\d+)\]|\.?([^.\[\]]+)")
PAGES = ("README.md", "docs/drafters.md", "docs/figures.md", "docs/scale.md")
"""Where such tables and figures stand."""
VERDICTS = {True: "met", False: "**missed**"}


def value_at(result: Any, key: str) -> Any:
    """Return the value at a key such as `arms[method=parallel].decode_speedup`.

    `goals[0]` is an entry by its place, `points[rows=1&acceptance=0.9]` the first entry with both
    values, and `arms[*kind=image&window=None|64]` all of them that have one of the values.

    Raises:
        SoonerError: nothing stands there; says how far the key leads.
    """
    place = 0
    for step in STEP.finditer(key):
        field, values, number, name = step.groups()
        try:
            if field:
                pairs = [pair.split("=", 1) for pair in f"{field}={values}".split("&")]
                wanted = {each.lstrip("*"): value.split("|") for each, value in pairs}
                entries = (
                    entry
                    for entry in result
                    if all(str(entry.get(each)) in known for each, known in wanted.items())
                )
                result = list(entries) if field.startswith("*") else next(entries)
            else:
                result = result[int(number) if number else name]
        except (KeyError, IndexError, TypeError, AttributeError, StopIteration):
            raise SoonerError(
                f"key '{key}' leads nowhere behind '{key[:place]}'; look into the result's JSON"
            ) from None
        place = step.end()
    return result


def table_of(result: Data, rows: str, columns: str) -> list[str]:
    """Return the lines of a table that is declared in a text.

    Args:
        result: the JSON.
        rows: key of its rows.
        columns: a line for each column.
    """
    parts = [
        [part.strip() for part in re.split(r" \| ?", line)] for line in columns.strip().splitlines()
    ]

    def text(row: Data, key: str, heading: str, form: str, factor: str = "1") -> str:
        try:
            is_root = key.startswith("/")
            value = value_at(result, key[1:].format(**row)) if is_root else value_at(row, key)
        except (SoonerError, KeyError):
            value = None
        if isinstance(value, bool):
            value = VERDICTS[value]
        elif isinstance(value, int | float):
            value = value if factor == "1" else value * float(factor)
        return cell(value, form)

    lines = [[text(row, *part) for part in parts] for row in value_at(result, rows)]
    return table_lines([part[1] for part in parts], lines)


def rendered(text: str, results: Path) -> str:
    """Return `text` with every marked table and figure made anew from the results in the folder.

    Raises:
        SoonerError: a marker that is not closed, a result that is missing, or a key that leads
            nowhere in it.
    """

    def read(name: str) -> Data:
        path = results / f"{name}.json"
        if not path.is_file():
            raise SoonerError(f"'{path}' is missing; make it with `sooner bench {name}`")
        data: Data = json.loads(path.read_text())
        return data

    def fill(match: re.Match[str]) -> str:
        lines = table_of(read(match[2]), match[3], match[4])
        return match[1] + "\n".join(lines) + "\n" + match[5]

    def fill_figure(match: re.Match[str]) -> str:
        marker, name, key, form = match[1], match[2], match[3], match[4]
        return f"{marker}{form.format(value_at(read(name), key))}{match[6]}"

    marked, closed = OPEN.findall(text), [block[2] for block in BLOCK.finditer(text)]
    if marked != closed:
        pairs = zip(marked, [*closed, ""], strict=False)
        name = next((each for each, other in pairs if each != other), marked[-1])
        raise SoonerError(f"<!-- table:{name} --> is not closed; add <!-- /table --> behind it")
    return FIGURE.sub(fill_figure, BLOCK.sub(fill, text))


def main(arguments: list[str]) -> int:
    """Write `PAGES` (or the files named) from `docs/results` beside them."""
    for page in map(Path, arguments or PAGES):
        if not page.is_file():
            print(f"error: '{page}' is no file; run this beside README.md", file=sys.stderr)
            return 2
        try:
            home = page.parent / ("results" if page.parent.name == "docs" else "docs/results")
            page.write_text(rendered(page.read_text(), home))
        except SoonerError as error:
            print(f"error: {page}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

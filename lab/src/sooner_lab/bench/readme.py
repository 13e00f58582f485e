"""Tables and figures in Markdown, written from the results that they quote.

Between the lines `<!-- table:NAME -->` and `<!-- /table -->` of a Markdown file stands what
`docs/results/NAME.json` renders, and nothing else. Inside a sentence,
`<!-- figure:NAME KEY FORMAT -->5.6×<!-- /figure -->` is the value at KEY of that JSON, such as
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

from sooner.errors import SoonerError, unknown

from .declared import Data, times
from .imagine.settings import FIXED
from .render import Columns, Table, cell, table_lines

BLOCK = re.compile(r"(<!-- table:([a-z-]+) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
OPEN = re.compile(r"<!-- table:([^ ]*) -->")
FIGURE = re.compile(
    r"(<!-- figure:([a-z-]+)\s+(.+?)\s+(\{.+?)\s*-->)(.*?)(<!-- /figure -->)", re.DOTALL
)
STEP = re.compile(r"\[([^\]=]+)=([^\]]+)\]|\[(\d+)\]|\.?([^.\[\]]+)")
PAGES = ("README.md", "docs/figures.md", "docs/scale.md", "docs/cluster.md")
"""Where such tables and figures stand."""

Rows = list[Data]


def _arm(row: Data) -> str:
    return f"`{row['method']}`"


def _imagine(result: Data) -> Rows:
    """Every arm at the window that goals are about, from every start."""
    rows: Rows = []
    for kind, what in (("image", "picture"), ("video", "clip")):
        arms = [arm for arm in result["arms"] if arm["kind"] == kind]
        chosen = [arm for arm in arms if arm["window"] in (None, FIXED[kind])]
        for number, arm in enumerate(chosen):
            name = f"{what}, {result[kind]['new_tokens']} codes" if number == 0 else ""
            rows.append({**arm, "name": name})
    return rows


def _parsed(result: Data) -> Rows:
    """Arms on single pages, and every arm that read a whole document."""
    documents = result.get("document") or []
    spent: dict[str, Data] = {}
    for row in documents:
        spent.setdefault(row["method"], {})[row["document"]] = row["speedup"]
    names = [arm["method"] for arm in result["arms"]]
    alone = [{"method": name} for name in spent if name not in names]
    return [{**arm, "files": spent.get(arm["method"], {})} for arm in [*result["arms"], *alone]]


def _parse(result: Data) -> Columns:
    files = dict.fromkeys(row["document"] for row in result.get("document") or [])
    return (
        (_arm, "arm", "{}"), ("mode", "mode", "{}"), ("aal", "AAL", "{:.1f}"),
        ("decode_speedup", "decode", "{:.2f}×"),
        ("drafted_speedup", "decode and drafting", "{:.2f}×"),
        ("e2e_speedup", "one page", "{:.2f}×"),
        *((f"files.{name}", f"file: {name}", "{:.2f}×") for name in files),
    )  # fmt: skip


def _acted(result: Data) -> Rows:
    """Arms on recorded observations, and their success in closed loops over all tasks."""
    loops = [row for row in result.get("loops") or [] if row["env"] == "all"]
    success = {row["method"]: row["success_rate"] for row in loops}
    return [{**arm, "success": success.get(arm["method"])} for arm in result["arms"]]


def _longest(rows: Rows | None) -> dict[str, Data]:
    """Return the rows of the greatest length that all arms have, by arm."""
    longest = max((row["tokens"] for row in rows or []), default=0)
    return {row["method"]: row for row in rows or [] if row["tokens"] == longest}


def _prefilled(result: Data) -> Rows:
    """One layer and the whole model at their greatest length, each beside its own recall."""
    layer, model = _longest(result.get("layer")), _longest(result.get("model_rows"))
    return [
        {"method": name, "layer": layer.get(name, {}), "model": model.get(name, {})}
        for name in dict.fromkeys([*layer, *model])
    ]


def _prefill(result: Data) -> Columns:
    layer, model = (
        max((row["tokens"] for row in result.get(part) or []), default=0) / 1024
        for part in ("layer", "model_rows")
    )
    return (
        (_arm, "arm", "{}"), ("layer.speedup", f"one layer, {layer:.0f}k tokens", "{:.2f}×"),
        ("layer.flops_share", "FLOPs", "{:.1%}"), ("layer.recall", "recall", "{:.2f}"),
        ("model.speedup", f"whole prefill, {model:.0f}k tokens", "{:.2f}×"),
        ("model.recall", "its recall", "{:.2f}"), ("model.logit_error", "logit error", "{:.3f}"),
    )  # fmt: skip


def _clusters(result: Data) -> Rows:
    return [{**row, "million": row["cost"] / result["pages"] * 1e6} for row in result["rows"]]


REPLAYED: tuple[tuple[int, tuple[float, ...]], ...] = ((1, (0.5, 0.7, 0.9)), (32, (0.5, 0.7, 0.9)))
"""Rows of a batch, and the acceptances that are shown of them."""


def _replayed(result: Data) -> Rows:
    """Arms by what they gain at a set acceptance, and the share of what theory expects there."""
    by_method: dict[str, Data] = {}
    for rows, acceptances in REPLAYED:
        for acceptance in acceptances:
            key = f"points[rows={rows}&pattern=independent&acceptance={acceptance}].arms"
            for arm in value_at(result, key):
                if arm["method"] != "plain":
                    row = by_method.setdefault(arm["method"], {"method": arm["method"]})
                    row[f"{rows} {acceptance:g}"] = _of_theory(arm)
    return list(by_method.values())


def _of_theory(arm: Data) -> str:
    text = cell(arm.get("decode_speedup"), "{:.2f}×")
    return f"{text} ({arm['of_theory']:.0%})" if "of_theory" in arm else text


GOALS: Columns = (
    ("goal", "goal", "{}"),
    (lambda row: row["wanted"] if isinstance(row["wanted"], str) else f"at least {row['wanted']:g}",
     "wanted", "{}"),
    (lambda row: next(row[key] for key in ("reached", "value", "difference") if key in row),
     "reached", "{:.2f}"),
    (lambda row: "{:.2f} to {:.2f}".format(*row["interval"]) if row.get("interval") else None,
     "95 % interval", "{}"),
    (lambda row: "met" if row["met"] else "**missed**", "", "{}"),
)  # fmt: skip
CLUSTER = Table(
    "", _clusters,
    (
        ("accelerators", "accelerators", "{:,}"), ("rate", "pages/s", "{:,.1f}"),
        (times("pages_a_day", 1e-6), "pages a day", "{:,.2f} M"),
        ("efficiency", "of the smallest, each", "{:.0%}"), ("bottleneck", "busiest", "{}"),
        ("starved", "parsers starved", "{:.0%}"), (times("hours", 1 / 24), "days", "{:,.1f}"),
        ("cost", "cost", "{:,.0f}"), ("million", "a million pages", "{:,.0f}"),
    ),
)  # fmt: skip
"""Predicted clusters by their size: `sooner predict --cluster --json`."""
TABLES: dict[str, Table] = {
    "act": Table(
        "", _acted,
        (
            (_arm, "arm", "{}"), ("mode", "mode", "{}"),
            ("mean_acceptance_length", "acceptance length", "{:.2f}"),
            ("decode_speedup", "decode", "{:.2f}×"),
            ("e2e_speedup", "picture to action", "{:.2f}×"),
            ("p50_ms", "p50", "{:.0f} ms"), ("success", "success", "{:.0%}"),
        ),
    ),
    **dict.fromkeys(("arm", "documents"), Table("", "goals", GOALS)),
    "caption": Table(
        "", "arms",
        (
            (_arm, "arm", "{}"), ("tokens_per_second", "tokens/s", "{:.0f}"),
            ("decode_speedup", "decode", "{:.2f}×"), ("e2e_speedup", "end to end", "{:.2f}×"),
            ("mean_acceptance_length", "acceptance length", "{:.2f}"),
        ),
    ),
    "cluster": CLUSTER,
    "cluster-shards": CLUSTER,
    "imagine": Table(
        "", _imagine,
        (
            ("name", "", "{}"), (_arm, "arm", "{}"),
            (lambda row: row.get("init") or "–", "first drafts", "{}"), ("window", "L", "{}"),
            ("nfe", "NFE", "{:.1f}"), ("nfe_reduction", "fewer", "{:.2f}×"),
            ("decode_speedup", "decode", "{:.2f}×"),
        ),
    ),
    "parse": Table("", _parsed, _parse),
    "prefill": Table("", _prefilled, _prefill),
    "replay": Table(
        "", _replayed,
        (
            (_arm, "arm", "{}"),
            *((f"{rows} {acceptance:g}",
               f"{'one row' if rows == 1 else f'{rows} rows'}, {acceptance:g}", "{}")
              for rows, acceptances in REPLAYED for acceptance in acceptances),
        ),
    ),
}  # fmt: skip
"""By the name of the result and of the marker."""


def value_at(result: Any, key: str) -> Any:
    """The value at a key such as `arms[method=parallel].decode_speedup` or `goals[0].reached`.

    `points[rows=1&acceptance=0.9]` is the first entry with both.

    Raises:
        SoonerError: nothing stands there; says how far the key leads.
    """
    place = 0
    for step in STEP.finditer(key):
        field, values, number, name = step.groups()
        try:
            if field:
                pairs = [pair.partition("=") for pair in f"{field}={values}".split("&")]
                result = next(
                    entry
                    for entry in result
                    if all(str(entry.get(at)) == is_ for at, _, is_ in pairs)
                )
            else:
                result = result[int(number) if number else name]
        except (KeyError, IndexError, TypeError, AttributeError, StopIteration):
            raise SoonerError(
                f"key '{key}' leads nowhere behind '{key[:place]}'; look into the result's JSON"
            ) from None
        place = step.end()
    return result


def rendered(text: str, results: Path) -> str:
    """`text` with every marked table and figure made anew from the results in the folder.

    Raises:
        SoonerError: a marker of no table, one that is not closed, a result that is missing, or a
            key that leads nowhere in it.
    """

    def read(name: str) -> Data:
        path = results / f"{name}.json"
        if not path.is_file():
            raise SoonerError(f"'{path}' is missing; make it with `sooner bench {name}`")
        data: Data = json.loads(path.read_text())
        return data

    def fill(match: re.Match[str]) -> str:
        name = match[2]
        if name not in TABLES:
            raise unknown("table", name, TABLES)
        (table,) = TABLES[name].render(read(name))
        lines = table_lines(table.heads, table.rows)
        return match[1] + "\n".join(lines) + "\n" + match[4]

    def fill_figure(match: re.Match[str]) -> str:
        marker, name, key, form = match[1], match[2], match[3], match[4]
        return f"{marker}{form.format(value_at(read(name), key))}{match[6]}"

    marked, closed = OPEN.findall(text), [block[2] for block in BLOCK.finditer(text)]
    if marked != closed:
        open_ = next((name for name in marked if name not in closed), marked[-1])
        raise SoonerError(f"<!-- table:{open_} --> is not closed; add <!-- /table --> behind it")
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

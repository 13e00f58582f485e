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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError, unknown

from .imagine.goals import FIXED
from .render import cell, table_lines

Data = dict[str, Any]
Columns = tuple[tuple[str, str, str], ...]
BLOCK = re.compile(r"(<!-- table:([a-z-]+) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
OPEN = re.compile(r"<!-- table:([^ ]*) -->")
FIGURE = re.compile(
    r"(<!-- figure:([a-z-]+)\s+(.+?)\s+(\{.+?)\s*-->)(.*?)(<!-- /figure -->)", re.DOTALL
)
STEP = re.compile(r"\[([^\]=]+)=([^\]]+)\]|\[(\d+)\]|\.?([^.\[\]]+)")
PAGES = ("README.md", "docs/figures.md", "docs/scale.md")
"""Where such tables and figures stand."""

CAPTION: Columns = (
    ("tokens_per_second", "tokens/s", "{:.0f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("e2e_speedup", "end to end", "{:.2f}×"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
)  # fmt: skip
PARSE: Columns = (
    ("mode", "mode", "{}"), ("aal", "AAL", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("drafted_speedup", "decode and drafting", "{:.2f}×"), ("e2e_speedup", "one page", "{:.2f}×"),
)  # fmt: skip
ACT: Columns = (
    ("mode", "mode", "{}"), ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("decode_speedup", "decode", "{:.2f}×"), ("e2e_speedup", "picture to action", "{:.2f}×"),
    ("p50_ms", "p50", "{:.0f} ms"),
)  # fmt: skip
LAYER: Columns = (
    ("speedup", "one layer", "{:.2f}×"), ("flops_share", "FLOPs", "{:.1%}"),
    ("recall", "recall", "{:.2f}"),
)  # fmt: skip
MODEL: Columns = (
    ("speedup", "whole prefill", "{:.2f}×"), ("recall", "its recall", "{:.2f}"),
    ("logit_error", "logit error", "{:.3f}"),
)  # fmt: skip


def caption(result: Data) -> list[str]:
    """Arms by speed."""
    return table_lines(["arm", *_heads(CAPTION)], _rows(result["arms"], CAPTION))


def imagine(result: Data) -> list[str]:
    """Every arm at the window that goals are about, from every start."""
    rows = []
    for kind in ("image", "video"):
        arms = [arm for arm in result["arms"] if arm["kind"] == kind]
        shown = [arm for arm in arms if arm["window"] in (None, FIXED[kind])]
        for number, arm in enumerate(shown):
            what = {"image": "picture", "video": "clip"}[kind]
            name = f"{what}, {result[kind]['new_tokens']} codes" if number == 0 else ""
            start, window = arm.get("init") or "–", str(arm["window"] or "–")
            figures = [f"{arm['nfe']:.1f}", f"{arm['nfe_reduction']:.2f}×"]
            rows.append([name, f"`{arm['method']}`", start, window, *figures])
            rows[-1].append(cell(arm.get("decode_speedup"), "{:.2f}×"))
    return table_lines(["", "arm", "first drafts", "L", "NFE", "fewer", "decode"], rows)


def parse(result: Data) -> list[str]:
    """Arms on single pages, and on each whole document by every arm that read it."""
    documents = result.get("document") or []
    names = list(dict.fromkeys(one["document"] for one in documents))
    spent = {(one["document"], one["method"]): one["speedup"] for one in documents}
    arms = list(result["arms"])
    told = {arm["method"] for arm in arms}
    arms += [
        {"method": method}
        for method in dict.fromkeys(one["method"] for one in documents)
        if method not in told
    ]
    rows = [
        [*row, *(cell(spent.get((name, arm["method"])), "{:.2f}×") for name in names)]
        for row, arm in zip(_rows(arms, PARSE), arms, strict=True)
    ]
    return table_lines(["arm", *_heads(PARSE), *(f"file: {name}" for name in names)], rows)


def act(result: Data) -> list[str]:
    """Arms on recorded observations, and their success in closed loops over all tasks."""
    loops = [one for one in result.get("loops") or [] if one["env"] == "all"]
    success = {one["method"]: one["success_rate"] for one in loops}
    rows = []
    for row, arm in zip(_rows(result["arms"], ACT), result["arms"], strict=True):
        rows.append([*row, cell(success.get(arm["method"]), "{:.0%}")])
    return table_lines(["arm", *_heads(ACT), "success"], rows)


def prefill(result: Data) -> list[str]:
    """One layer and the whole model at their greatest length, each beside its own recall."""
    layer, model = _longest(result.get("layer")), _longest(result.get("model_rows"))
    names = list(dict.fromkeys([*layer, *model]))
    rows = [
        [f"`{name}`"]
        + [cell(layer.get(name, {}).get(key), form) for key, _, form in LAYER]
        + [cell(model.get(name, {}).get(key), form) for key, _, form in MODEL]
        for name in names
    ]
    lengths = [next((one["tokens"] for one in part.values()), 0) for part in (layer, model)]
    heads = [*_heads(LAYER), *_heads(MODEL)]
    for place, length in ((0, lengths[0]), (len(LAYER), lengths[1])):
        heads[place] += f", {length / 1024:.0f}k tokens"
    return table_lines(["arm", *heads], rows)


def cluster(result: Data) -> list[str]:
    """Predicted clusters by their size: `sooner predict --cluster --json`."""
    rows = [
        [
            f"{row['accelerators']:,}", f"{row['rate']:,.1f}", f"{row['pages_a_day'] / 1e6:,.2f} M",
            f"{row['efficiency']:.0%}", row["bottleneck"], f"{row['starved']:.0%}",
            f"{row['hours'] / 24:,.1f}", f"{row['cost']:,.0f}",
            f"{row['cost'] / result['pages'] * 1e6:,.0f}",
        ]
        for row in result["rows"]
    ]  # fmt: skip
    heads = [
        "accelerators", "pages/s", "pages a day", "of the smallest, each", "busiest",
        "parsers starved", "days", "cost", "a million pages",
    ]  # fmt: skip
    return table_lines(heads, rows)


REPLAYED: tuple[tuple[int, tuple[float, ...]], ...] = ((1, (0.5, 0.7, 0.9)), (32, (0.5, 0.7, 0.9)))
"""Rows of a batch, and the acceptances that are shown of them."""


def replay(result: Data) -> list[str]:
    """Arms by what they gain at a set acceptance, and the share of what theory expects there."""
    places = [(rows, one) for rows, chances in REPLAYED for one in chances]
    shown = [
        value_at(result, f"points[rows={rows}&pattern=independent&acceptance={chance}].arms")
        for rows, chance in places
    ]
    methods = [arm["method"] for arm in shown[0] if arm["method"] != "plain"]
    lines = []
    for method in methods:
        arms = [next(arm for arm in point if arm["method"] == method) for point in shown]
        lines.append([f"`{method}`", *map(_of_theory, arms)])
    heads = [f"{'one row' if rows == 1 else f'{rows} rows'}, {chance:g}" for rows, chance in places]
    return table_lines(["arm", *heads], lines)


def _of_theory(arm: Data) -> str:
    told = cell(arm.get("decode_speedup"), "{:.2f}×")
    return f"{told} ({arm['of_theory']:.0%})" if "of_theory" in arm else told


def marks(result: Data) -> list[str]:
    """The draft that may judge: what the gate asks of it, then each way to prune at α = 0.9."""
    draft = next(one for one in result["drafts"] if one["gate"]["may_judge"])
    lines = [
        ["gate", one["arm"], *_share(one), one["wanted"], "met" if one["met"] else "missed"]
        for one in draft["gate"]["arms"]
    ]
    lines += [
        ["", f"`{one['criterion']}`", *_share(one), "", ""]
        for one in draft["criteria"]
        if one["alpha"] == 0.9
    ]
    heads = ["", "kept tokens", "M", "of the unpruned M, %", "95 % interval", "wanted", ""]
    return table_lines(heads, lines)


def _share(arm: Data) -> list[str]:
    low, high = arm["interval"]
    return [f"{arm['run_length']:.2f}", f"{arm['share']:.1f}", f"{low:.1f} to {high:.1f}"]


def goals(result: Data) -> list[str]:
    """Goals that were fixed before any result, and what became of them."""
    told = result["goals"] if "goals" in result else result["speed"]["goals"]
    lines = []
    for one in told:
        reached = next(one[key] for key in ("reached", "value", "difference") if key in one)
        low, high = one.get("interval") or (None, None)
        edges = "–" if low is None else f"{low:.2f} to {high:.2f}"
        wanted = one["wanted"] if isinstance(one["wanted"], str) else f"at least {one['wanted']:g}"
        met = "met" if one["met"] else "**missed**"
        lines.append([one["goal"], wanted, f"{reached:.2f}", edges, met])
    return table_lines(["goal", "wanted", "reached", "95 % interval", ""], lines)


TABLES: dict[str, Callable[[Data], list[str]]] = {
    "act": act, "arm": goals, "canvas": goals, "canvas-leaves": goals, "caption": caption,
    "cluster": cluster, "cluster-shards": cluster, "documents": goals, "imagine": imagine,
    "marks": marks, "marks-speed": goals, "parse": parse, "prefill": prefill, "replay": replay,
}  # fmt: skip
"""By the name of the result and of the marker."""


def _heads(columns: Columns) -> list[str]:
    return [head for _, head, _ in columns]


def _rows(arms: list[Data], columns: Columns) -> list[list[str]]:
    return [
        [f"`{arm['method']}`", *(cell(arm.get(key), form) for key, _, form in columns)]
        for arm in arms
    ]


def _longest(rows: list[Data] | None) -> dict[str, Data]:
    """Rows by arm, of the greatest length that all of them have."""
    longest = max((row["tokens"] for row in rows or []), default=0)
    return {row["method"]: row for row in rows or [] if row["tokens"] == longest}


def value_at(result: Any, key: str) -> Any:
    """The value at a key such as `arms[method=parallel].decode_speedup` or `goals[0].reached`.

    `points[rows=1&acceptance=0.9]` is the first entry with both.

    Raises:
        SoonerError: nothing stands there; says how far the key leads.
    """
    place = 0
    for step in STEP.finditer(key):
        field, wanted, number, name = step.groups()
        try:
            if field:
                asked = [pair.partition("=") for pair in f"{field}={wanted}".split("&")]
                result = next(
                    one for one in result if all(str(one.get(at)) == is_ for at, _, is_ in asked)
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
        told: Data = json.loads(path.read_text())
        return told

    def fill(found: re.Match[str]) -> str:
        name = found[2]
        if name not in TABLES:
            raise unknown("table", name, TABLES)
        lines = TABLES[name](read(name))
        return found[1] + "\n".join(lines) + "\n" + found[4]

    def say(found: re.Match[str]) -> str:
        marker, name, key, form = found[1], found[2], found[3], found[4]
        return f"{marker}{form.format(value_at(read(name), key))}{found[6]}"

    marked, closed = OPEN.findall(text), [found[2] for found in BLOCK.finditer(text)]
    if marked != closed:
        open_ = next((name for name in marked if name not in closed), marked[-1])
        raise SoonerError(f"<!-- table:{open_} --> is not closed; add <!-- /table --> behind it")
    return FIGURE.sub(say, BLOCK.sub(fill, text))


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

"""The README's tables are those that the committed results render."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner_lab.bench import readme

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("page", readme.PAGES)
def test_pages_match_the_results(page: str) -> None:
    text = (ROOT / page).read_text()
    assert readme.rendered(text, RESULTS) == text, "run `python -m sooner_lab.bench.readme`"


def test_a_figure_in_a_sentence_is_the_value_at_its_key(tmp_path: Path) -> None:
    result = {"arms": [{"method": "a", "x": 1.25}, {"method": "b 2, c", "x": [7, 2.5]}]}
    (tmp_path / "one.json").write_text(json.dumps(result))
    sentence = "It is <!-- figure:one {} {{:.1f}}× -->old<!-- /figure --> faster."
    for key, text in (("arms[method=a].x", "1.2×"), ("arms[method=b 2, c].x[1]", "2.5×")):
        made = readme.rendered(sentence.format(key), tmp_path)
        assert f"-->{text}<!-- /figure --> faster." in made
        assert readme.rendered(made, tmp_path) == made
    with pytest.raises(SoonerError, match="leads nowhere behind 'arms'"):
        readme.rendered(sentence.format("arms[method=c].x"), tmp_path)


MARKED = """<!-- table:caption arms
method | arm | `{}`
decode_speedup | decode | {:.2f}× | 10
/batch.arms[method={method}].over_plain | in a batch | {:.2f}×
-->
<!-- /table -->"""


def test_a_table_is_what_its_columns_declare(tmp_path: Path) -> None:
    result = json.loads((RESULTS / "caption.json").read_text())
    result["arms"][1]["decode_speedup"] = 12.3456
    (tmp_path / "caption.json").write_text(json.dumps(result))
    lines = readme.rendered(MARKED, tmp_path).splitlines()[5:-1]
    assert lines[0] == "| arm | decode | in a batch |"
    assert lines[2:4] == ["| `plain` | 10.00× | 1.00× |", "| `hf` | 123.46× | – |"]
    assert len(lines) == 2 + len(result["arms"])
    made = readme.rendered(MARKED, RESULTS)
    assert "123.46×" not in made
    assert readme.rendered(made, RESULTS) == made


def test_rows_are_chosen_by_several_values() -> None:
    rows = [{"kind": kind, "window": window} for kind in "ab" for window in (None, 8, 64)]
    chosen = readme.value_at({"arms": rows}, "arms[*kind=b&window=None|64]")
    assert chosen == [rows[3], rows[5]]
    assert readme.value_at({"arms": rows}, "arms[kind=b&window=8]") == rows[4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:caption arms\na | b | {}\n-->\nx", "is not closed"),
        (MARKED, "is missing; make it with `sooner bench caption`"),
    ],
)
def test_a_bad_marker_raises_a_short_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match=message):
        readme.rendered(text, tmp_path)


def test_the_command_writes_the_file_next_to_its_results(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results").symlink_to(RESULTS)
    page = tmp_path / "README.md"
    page.write_text(MARKED)
    assert readme.main([str(page)]) == 0
    assert "`parallel`" in page.read_text()
    assert readme.main([str(tmp_path / "none.md")]) == 2

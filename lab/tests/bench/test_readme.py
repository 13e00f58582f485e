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


@pytest.mark.parametrize("name", readme.TABLES)
def test_every_committed_result_renders(name: str) -> None:
    made = readme.rendered(f"a\n<!-- table:{name} -->\nold\n<!-- /table -->\nb\n", RESULTS)
    lines = made.splitlines()
    assert (lines[0], lines[-1], "old" in made) == ("a", "b", False)
    table = lines[2:-2]
    assert len(table) > 3
    assert len({line.count("|") for line in table}) == 1
    assert readme.rendered(made, RESULTS) == made


def test_a_changed_figure_changes_the_table(tmp_path: Path) -> None:
    result = json.loads((RESULTS / "caption.json").read_text())
    result["arms"][1]["decode_speedup"] = 123.456
    (tmp_path / "caption.json").write_text(json.dumps(result))
    marked = "<!-- table:caption -->\n<!-- /table -->"
    assert "123.46×" in readme.rendered(marked, tmp_path)
    assert "123.46×" not in readme.rendered(marked, RESULTS)


def test_pictures_and_clips_stand_at_the_window_of_the_goals() -> None:
    def arm(kind: str, window: int | None, init: str | None, nfe: float) -> dict:
        name = "plain" if window is None else "sjd"
        row = {"kind": kind, "method": name, "window": window, "init": init, "nfe": nfe}
        return row | {"nfe_reduction": 256 / nfe, "decode_speedup": 1.5}

    arms = [arm("image", None, None, 256), arm("image", 16, "above", 9)]
    arms += [arm("image", 64, "random", 128), arm("image", 64, "above", 64)]
    (table,) = readme.TABLES["imagine"].render({"arms": arms, "image": {"new_tokens": 256}})
    assert table.rows == [
        ["picture, 256 codes", "`plain`", "–", "–", "256.0", "1.00×", "1.50×"],
        ["", "`sjd`", "random", "64", "128.0", "2.00×", "1.50×"],
        ["", "`sjd`", "above", "64", "64.0", "4.00×", "1.50×"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:captoin -->\n<!-- /table -->", "did you mean 'caption'"),
        ("<!-- table:caption -->\nx", "is not closed"),
        ("<!-- table:act -->\n<!-- /table -->", "is missing; make it with `sooner bench act`"),
    ],
)
def test_a_bad_marker_raises_a_short_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match=message):
        readme.rendered(text, tmp_path)


def test_the_command_writes_the_file_next_to_its_results(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results").symlink_to(RESULTS)
    page = tmp_path / "README.md"
    page.write_text("<!-- table:caption -->\n<!-- /table -->\n")
    assert readme.main([str(page)]) == 0
    assert "`parallel`" in page.read_text()
    assert readme.main([str(tmp_path / "none.md")]) == 2

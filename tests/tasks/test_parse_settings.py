"""Settings that decide a page's text decide its hash, and the clock decides neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner.methods.controller import Controller
from sooner.tasks.parse import PageParser, ParseSettings
from tasks.parsing import draft_of, noise_page, qwen3_vl


@pytest.mark.parametrize("stages", ["both", "page"])
def test_a_relaxed_page_does_not_depend_on_the_clock_or_the_pages_before_it(
    stages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured to choose by, and nothing is kept from page to page."""

    def refuse(*_: object) -> None:
        raise AssertionError("nodes were chosen by the clock")

    monkeypatch.setattr(Controller, "choose", refuse)
    pair = qwen3_vl()
    settings = ParseSettings(acceptance_threshold=0.3, stages=stages, max_new_tokens=30)
    page = noise_page()
    plain = PageParser(pair, ParseSettings(max_new_tokens=30, nodes=4))(page).raw
    words = plain.split(" ")
    draft = draft_of(page, " ".join(words[:10]), " ".join(["w7", *words[11:]]))
    alone = PageParser(pair, settings)(page, draft)
    assert alone.mode == "relaxed"
    parser = PageParser(pair, settings)
    for seed in range(3):
        parser(noise_page(seed=seed), draft_of(page, "w1 w2 w3 w4", " ".join(words[5:20])))
    assert parser(page, draft).raw == alone.raw
    prior = parser.experience.prior
    assert vars(prior) == vars(type(prior)())
    named = parser.experience.of("made-up")
    assert vars(named) == vars(type(prior)())


def test_a_pattern_file_counts_by_its_content(tmp_path: Path) -> None:
    digests = []
    for name, text in (("a", "1"), ("b", "1"), ("a", "2")):
        (tmp_path / name).write_text(text)
        settings = ParseSettings(prefill=str(tmp_path / name))
        digests.append(settings.digest("no/model", "auto", "ocr", None))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"stages": "pages"}, "did you mean 'page'"),
        ({"form": "markdwn"}, "did you mean 'markdown'"),
        ({"acceptance_threshold": 1.5}, "acceptance_threshold is 1.5"),
        ({"acceptance_threshold": 0.0}, "acceptance_threshold is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"margin": -1}, "margin is -1"),
        ({"nodes": 0}, "nodes is 0"),
        ({"prompt": " "}, "prompt is empty"),
    ],
)
def test_settings_refuse(options: dict, error: str) -> None:
    with pytest.raises(SoonerError, match=error):
        ParseSettings(**options)

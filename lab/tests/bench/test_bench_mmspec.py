"""`sooner bench mmspec` on a made-up folder in MMSpec's layout, with the video miniature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sooner import miniatures
from sooner.errors import SoonerError
from sooner.parity import Parity
from sooner_lab.bench.mmspec import Question, read_questions, rows_of, run
from sooner_lab.bench.mmspec_settings import ARMS, MMSpecSettings
from sooner_lab.bench.report import markdown
from sooner_lab.bench.run import Arm, ArmSamples, TimedRun

RECORDS: tuple[dict[str, Any], ...] = (
    {"id": "mmspec_001", "topic": "general vqa", "turns": ["what happens in this video ?"]},
    {"id": "mmspec_002", "topic": "general vqa", "turns": ["describe every scene ."]},
    {
        "id": "mmspec_501", "topic": "multi-turn conversation",
        "turns": ["describe the video .", "describe the scenes in order ."],
    },
)  # fmt: skip


def split(folder: Path, *records: dict[str, Any]) -> Path:
    """Write a split: a line and a picture for each record."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for number, record in enumerate(records):
        image = f"{record['id']}.jpg"
        Image.new("L", (60 + 20 * number, 80), 40 * number).save(folder / "images" / image)
        lines.append(json.dumps({"image": image, "category": "default", **record}))
    (folder / "mmspec.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_each_turn_is_a_question_and_topics_stand_together(tmp_path: Path) -> None:
    more = {**RECORDS[0], "id": "mmspec_003"}
    questions = read_questions(split(tmp_path / "test", *RECORDS, more))
    assert [(each.sample, len(each.turns)) for each in questions] == [
        ("mmspec_001", 1), ("mmspec_002", 1), ("mmspec_003", 1), ("mmspec_501", 1),
        ("mmspec_501", 2),
    ]  # fmt: skip
    assert questions[-1].turns == tuple(RECORDS[2]["turns"])
    assert questions[-1].picture.name == "mmspec_501.jpg"
    limited = read_questions(tmp_path / "test", 1)
    assert [each.sample for each in limited] == ["mmspec_001", "mmspec_501", "mmspec_501"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"turns": []}, "line 1: 'turns' is"),
        ({"turns": "one"}, "'turns' is str, not list"),
        ({"topic": None}, "'topic' is missing"),
        ({"image": "other.jpg"}, r"other\.jpg' is missing; fetch images/"),
    ],
)
def test_another_layout_is_refused(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    folder = split(tmp_path / "test", {**RECORDS[0], **record})
    with pytest.raises(SoonerError, match=message):
        read_questions(folder)


def test_a_folder_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match=r"--data: .* no mmspec\.jsonl with samples; give"):
        read_questions(tmp_path)


def timed(name: str, *runs: tuple[int, float, float, int]) -> ArmSamples:
    """Return an arm whose runs are tokens, seconds, seconds of decoding, and rounds."""
    made = [
        [TimedRun([list(range(tokens))], decode, seconds, tokens - 1, rounds=rounds)]
        for tokens, seconds, decode, rounds in runs
    ]
    parity = [Parity("identical")] * len(made)
    return ArmSamples(Arm(name, lambda index: made[index][0]), made, parity)


def test_metrics_are_ratios_of_totals_and_samples_are_drawn_whole() -> None:
    questions = [Question(name, "topic", Path(), ("a",)) for name in ("a", "b", "b")]
    plain = timed("plain", (11, 2.0, 1.0, 10), (11, 2.0, 1.0, 10), (21, 3.0, 2.0, 20))
    draft = timed("draft", (11, 1.5, 0.5, 5), (11, 1.5, 0.5, 5), (21, 2.0, 1.0, 10))
    first, second = rows_of("topic", questions, [plain, draft], 0)
    assert (second["samples"], second["questions"]) == (2, 3)
    assert first["mean_accepted_tokens"]["value"] == 1.0
    assert second["mean_accepted_tokens"] == {"value": 2.0, "interval": [2.0, 2.0]}
    assert second["walltime"]["value"] == pytest.approx(7 / 5)
    assert second["over_plain"]["value"] == pytest.approx(2.0)
    # With two samples, the one or the other alone is drawn a quarter of the time.
    assert second["walltime"]["interval"] == pytest.approx([2 / 1.5, 5 / 3.5])


def test_arms_answer_the_same_questions_and_are_exact(tmp_path: Path) -> None:
    data, kept = split(tmp_path / "test", *RECORDS[1:]), list[int]()
    settings = MMSpecSettings(
        data=data, drafter=str(miniatures.find("video").target.parent / "eagle3"),
        max_new_tokens=24, threads=1,
    )  # fmt: skip
    result = run(settings, lambda line: None, lambda result: kept.append(len(result["arms"])))
    rows = {(each["topic"], each["method"]): each for each in result["arms"]}
    topics = ("general vqa", "multi-turn conversation", "all")
    assert set(rows) == {(topic, name) for topic in topics for name in ARMS}
    assert kept == [len(ARMS), 2 * len(ARMS), 3 * len(ARMS)], "written topic by topic"
    assert {each["parity"] for each in rows.values()} <= {"identical", "tie"}
    for name in ARMS:
        whole = rows["all", name]
        assert (whole["samples"], whole["questions"]) == (2, 3)
        assert whole["tokens"] == sum(rows[topic, name]["tokens"] for topic in topics[:2])
        assert whole["walltime"]["value"] > 0
    assert rows["all", "plain"]["mean_accepted_tokens"]["value"] == 1.0
    assert rows["all", "hf"]["mean_accepted_tokens"]["value"] == 1.0
    assert all(each["mean_accepted_tokens"]["value"] >= 1 for each in rows.values())
    page = markdown(result, "mmspec.json")
    assert all(f"| multi-turn conversation | {name} |" in page for name in ARMS)

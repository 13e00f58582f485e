"""Answers in one code fence are taken out of it; fences of the page itself stay."""

from __future__ import annotations

import pytest

from sooner.tasks.parse.answers import unwrapped

CODE = "```python\nprint(1)\n```"


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        ("```markdown\n# Title\n\ntext\n```", "# Title\n\ntext"),
        ("  \n```md\ntext\n```\n\n", "text"),
        ("```Markdown \ntext\n``` ", "text"),
        ("~~~markdown\ntext\n~~~", "text"),
        (f"```markdown\nbefore\n{CODE}\nafter\n```", f"before\n{CODE}\nafter"),
        (f"````markdown\n{CODE}\n```\nplain\n```\n````", f"{CODE}\n```\nplain\n```"),
        ("```markdown\ncut off in the mid", "cut off in the mid"),
        ("```markdown\n```", ""),
    ],
)
def test_a_single_fence_around_an_answer_is_removed(answer: str, inside: str) -> None:
    assert unwrapped(answer) == inside


@pytest.mark.parametrize(
    "answer",
    [
        "text",
        "",
        CODE,
        "```\na listing that is the whole page\n```",
        f"# Title\n{CODE}",
        "```markdown\none\n```\n\ntext between\n\n```\ntwo\n```",
        "```markdown\none\n```\ntext behind",
        "``markdown``",
        "```markdown one line```",
    ],
)
def test_other_answers_stay_as_they_are(answer: str) -> None:
    assert unwrapped(answer) == answer

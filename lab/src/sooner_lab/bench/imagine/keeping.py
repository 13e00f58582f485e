"""Parts of an earlier result that a run does not measure again."""

from __future__ import annotations

from typing import Any

from sooner.errors import SoonerError

from ..earlier import earlier_runs
from .settings import KINDS, ImagineBenchSettings

OF_PARTS = {
    "speed": ("parity",), "batch": ("batch",), "quality": ("quality",),
    "breakdown": ("breakdown",), "study": ("study",), "story": ("story",),
}  # fmt: skip
"""What each part puts under its kind's name."""


def kept_of(before: dict[str, Any] | None, settings: ImagineBenchSettings) -> dict[str, Any]:
    """The kinds and parts of `before` that `settings` leave out, ready to be added to.

    Returns:
        As in a result: `arms`, figures under each kind's name, `vocabulary`, and `kept`, see
        `earlier_runs`. Without anything to keep `{"arms": []}`.
    """
    if before is None:
        return {"arms": []}
    found: dict[str, Any] = {"arms": []}
    parts: list[str] = []
    for kind in (kind for kind in KINDS if kind in before):
        anew = settings.parts if kind in settings.kinds else ()
        dropped = {name for part in anew for name in OF_PARTS[part]}
        found[kind] = {name: value for name, value in before[kind].items() if name not in dropped}
        if "speed" not in anew:
            found["arms"] += [arm for arm in before["arms"] if arm["kind"] == kind]
        there = {part for part, names in OF_PARTS.items() if set(names) & set(found[kind])}
        parts += [f"{kind} {part}" for part in OF_PARTS if part in there]
    if "vocabulary" in before and "breakdown" not in settings.parts:
        found["vocabulary"] = before["vocabulary"]
        parts.append("vocabulary")
    if parts:
        found["kept"] = earlier_runs(before, parts)
    return found


def check_model(result: dict[str, Any], kind: str, name: str) -> None:
    """Refuse to mix two models in what is told of one kind.

    Raises:
        SoonerError: `result` holds figures of another model.
    """
    before = result.get(kind, {}).get("model", name)
    if before != name:
        raise SoonerError(f"the result to add to is of '{before}'; write another file")

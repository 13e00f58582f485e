"""Questions about videos: the benchmarks' own questions, options and answers as one record."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.checks import check_whole
from sooner.errors import SoonerError, unknown

from .loading import cache_folder, find_root, find_video, seconds_of
from .schemas import SCHEMAS, ColumnSchema, Record, Schema, find_schema
from .scoring import LETTERS, choice_prompt, exact_match, letter_of
from .subtitles import Subtitles
from .tables import read_answers, read_tables
from .videos import VideoStore

logger = logging.getLogger("sooner")

SHORT = "Answer the question with a single word or a short phrase."
_MARK = re.compile(r"^\s*\(?([A-Z])[.):]\)?\s+")


@dataclass(frozen=True)
class Question:
    """One question with its right answer.

    Attributes:
        id: benchmark and question.
        video: the file.
        question: as published.
        options: without their letters; empty for an open question.
        answer: the right option's letter, the words of an open answer, or `None` where the
            benchmark keeps it to itself.
        form: `choice`, `open` or `description`.
        kind: the benchmark's own name for this sort of question, if it has one.
        seconds: length of the video.
        subtitles: its text, where they were asked for and are there.
    """

    id: str
    video: Path
    question: str
    options: tuple[str, ...]
    answer: str | None
    form: str
    kind: str | None = None
    seconds: float = 0.0
    subtitles: str | None = None

    @property
    def prompt(self) -> str:
        """What a model is asked: subtitles first, options under letters."""
        asked = self.question
        if self.form == "choice":
            asked = choice_prompt(self.question, self.options)
        elif self.form == "open":
            asked = f"{self.question}\n{SHORT}"
        if self.subtitles is None:
            return asked
        return f"The subtitles of this video:\n{self.subtitles}\n\n{asked}"

    def score(self, reply: str) -> bool:
        """Whether a reply is right: the letter, or the same words once both are normalised.

        Raises:
            SoonerError: no published answer, or a description, which has no exact one.
        """
        if self.answer is None:
            raise SoonerError(f"{self.id} has no published answer; submit it to its benchmark")
        if self.form == "description":
            raise SoonerError(
                f"{self.id} is a description, which is judged by a model; compare with its answer"
            )
        if self.form == "choice":
            chosen = letter_of(reply, self.options)
            return chosen is not None and LETTERS[chosen] == self.answer
        return exact_match(reply, [self.answer])


def load_questions(
    name: str,
    source: str | Path | None = None,
    *,
    count: int | None = None,
    seed: int = 0,
    subtitles: bool = False,
    cache: Path | None = None,
    revision: str | None = None,
) -> Iterator[Question]:
    """Yield a benchmark's questions, in an order that only `seed` decides.

    Args:
        name: one of `QUESTION_SETS`.
        source: a local folder laid out like the hub's repository, or a hub id; the benchmark's own
            by default, which is downloaded whole.
        count: most questions; all by default.
        seed: of the order.
        subtitles: with their text, for benchmarks that have some (VideoMME).
        cache: where videos in archives are unpacked; `~/.cache/sooner/datasets` by default.
        revision: of the hub's repository.

    Raises:
        SoonerError: an unknown name, a folder that is not there or is another dataset, subtitles
            that the benchmark does not have, or no video that can be read. Names and tables are
            checked at once, videos as they are yielded.
    """
    schema, asked = find_asked(name)
    if subtitles and not asked.subtitles:
        known = ", ".join(name for name in QUESTION_SETS if _asked(SCHEMAS[name]).subtitles)
        raise SoonerError(f"{schema.name} has no subtitles; only {known} has")
    if count is not None:
        check_whole("count", count)
    root = find_root(schema, source, revision)
    answers = read_answers(root, asked.answers)
    rows = [
        _row(schema, asked, table, {**record, **answers.get(str(record.get(asked.id)), {})}, place)
        for place, (table, record) in enumerate(read_tables(schema, root))
    ]
    random.Random(seed).shuffle(rows)
    store = VideoStore(root, (cache or cache_folder()) / schema.name)
    texts = Subtitles(root) if subtitles else None
    return _questions(schema, store, rows, count, texts)


def find_asked(name: str) -> tuple[Schema, ColumnSchema]:
    """The schema of a benchmark with questions.

    Raises:
        SoonerError: an unknown name, or one whose questions are not read; says which one is near.
    """
    schema = find_schema(name)
    if schema.asked is None:
        raise unknown("question set", schema.name, QUESTION_SETS)
    return schema, schema.asked


def _asked(schema: Schema) -> ColumnSchema:
    assert schema.asked is not None
    return schema.asked


QUESTION_SETS = tuple(name for name, schema in SCHEMAS.items() if schema.asked is not None)
"""Benchmarks whose questions are read."""


@dataclass(frozen=True)
class _Row:
    id: str
    video: str
    question: str
    options: tuple[str, ...]
    answer: str | None
    form: str
    kind: str | None


def _row(schema: Schema, asked: ColumnSchema, table: Path, record: Record, place: int) -> _Row:
    question = record.get(asked.question)
    if not isinstance(question, str) or not question.strip():
        raise SoonerError(
            f"{schema.name}: '{table}' has a record with the columns {', '.join(sorted(record))}, "
            f"but a question stands in {asked.question}; is it another dataset?"
        )
    video, options = schema.video(record, table), _options(asked, record)
    own = record.get(asked.id)
    # Some benchmarks number the questions of each video anew.
    name = f"{video}/{own if own is not None else place}"
    return _Row(
        id=f"{schema.name}/{name}",
        video=video,
        question=question.strip(),
        options=options,
        answer=_answer(schema, asked, record, options, name),
        form=asked.form,
        kind=str(record[asked.kind]) if asked.kind and record.get(asked.kind) else None,
    )


def _options(asked: ColumnSchema, record: Record) -> tuple[str, ...]:
    """The options, without letters that the benchmark put in front of them."""
    if len(asked.options) == 1:
        found: Sequence[Any] = record.get(asked.options[0]) or ()
    else:
        found = [record[name] for name in asked.options if record.get(name) is not None]
    texts = [str(one).strip() for one in found]
    marks = [mark.group(1) if (mark := _MARK.match(text)) else "" for text in texts]
    if texts and "".join(marks) == LETTERS[: len(texts)]:
        texts = [_MARK.sub("", text) for text in texts]
    return tuple(texts)


def _answer(
    schema: Schema, asked: ColumnSchema, record: Record, options: tuple[str, ...], name: str
) -> str | None:
    given = record.get(asked.answer)
    if given is None or str(given).strip() == "":
        return None
    text = str(given).strip()
    if asked.form != "choice":
        return text
    places: Mapping[str, int] = {
        "letter": {letter: place for place, letter in enumerate(LETTERS[: len(options)])},
        "index": {str(place): place for place in range(len(options))},
    }[asked.answer_is]
    if text not in places:
        raise SoonerError(
            f"{schema.name}: question '{name}' has {len(options)} options, but its answer is "
            f"'{text}'; is it another dataset?"
        )
    return LETTERS[places[text]]


def _questions(
    schema: Schema,
    store: VideoStore,
    rows: list[_Row],
    count: int | None,
    texts: Subtitles | None,
) -> Iterator[Question]:
    files: dict[str, tuple[Path, float] | None] = {}
    found = 0
    for row in rows:
        if found == count:
            return
        if row.video not in files:
            files[row.video] = _file(schema, store, row.video)
        if (file := files[row.video]) is None:
            continue
        found += 1
        said = texts.of(row.video) if texts is not None else None
        yield Question(
            row.id, file[0], row.question, row.options, row.answer, row.form, row.kind, file[1],
            said,
        )  # fmt: skip
    missing = [video for video, file in files.items() if file is None]
    if not found:
        raise SoonerError(
            f"{schema.name}: none of the {len(missing)} videos is under '{store.root}' or can be "
            "read; fetch the videos"
        )
    if missing:
        logger.warning(
            f"{schema.name}: {len(missing)} videos are not under '{store.root}' or can't be read "
            f"('{missing[0]}'); their questions are left out"
        )


def _file(schema: Schema, store: VideoStore, video: str) -> tuple[Path, float] | None:
    path = find_video(schema, store, video)
    seconds = None if path is None else seconds_of(path)
    return None if path is None or seconds is None else (path, seconds)

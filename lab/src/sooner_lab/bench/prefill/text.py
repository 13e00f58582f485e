"""Real text of an exact length with one sentence that the question at its end asks for."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, cycle
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..real.texts import MODULES

KINDS = ("prose", "mixed")
"""Haystacks: Python's manual, and the manual with source code of its library in turns."""
NEEDLE = "The secret number of {} is {}.\n\n"
QUESTION = "\n\nQuestion: What is the secret number of {0}?\nAnswer: The secret number of {0} is"
CITIES = ("Lisbon", "Nairobi", "Oslo", "Lima", "Kyoto", "Cairo", "Dublin", "Havana", "Riga")


@dataclass(frozen=True)
class TextSample:
    """A prompt `ids [tokens]`, the slots of its sentence, and the number in it."""

    ids: Tensor
    needle: slice
    answer: str

    def inputs(self, processor: Any = None, model: Any = None) -> dict[str, Tensor]:
        """Return the model's inputs, `[1, tokens]`, on its device."""
        ids = self.ids[None].to(model.device if model is not None else "cpu")
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def score(self, reply: str) -> bool:
        """Whether a reply begins with the number and no further digit."""
        return re.split(r"\D", reply.strip())[0] == self.answer


@dataclass(frozen=True)
class TextTask:
    """Makes samples of a kind of haystack with HF's tokenizer; a seed draws city, number, text."""

    tokenizer: Any
    kind: str = KINDS[0]
    unit: ClassVar[str] = "tokens"

    def sample(self, length: int, depth: float, seed: int = 0) -> TextSample:
        """Return a prompt of `length` tokens, the sentence between two paragraphs near `depth`."""
        rng = np.random.default_rng([seed, length, int(100 * depth), KINDS.index(self.kind)])
        city, number = CITIES[rng.integers(len(CITIES))], int(rng.integers(10_000, 100_000))
        begin = list({self.tokenizer.bos_token_id} & {*self.tokenizer("")["input_ids"]})
        needle = self._encode(NEEDLE.format(city, number))
        question = self._encode(QUESTION.format(city))
        room = length - len(begin) - len(needle) - len(question)
        texts, pieces, ends = paragraphs(self.kind), [], [0]
        first = int(rng.integers(len(texts)))
        for paragraph in cycle([*texts[first:], *texts[:first]]):
            if ends[-1] >= room:
                break
            pieces.append(self._encode(paragraph))
            ends.append(ends[-1] + len(pieces[-1]))
        text = list(chain.from_iterable(pieces))
        place = min(min(ends, key=lambda end: abs(end - depth * room)), room)
        ids = torch.tensor(begin + text[:place] + needle + text[place:room] + question)
        place += len(begin)
        return TextSample(ids, slice(place, place + len(needle)), str(number))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def paragraphs(kind: str) -> list[str]:
    """Return the paragraphs of a kind of haystack in their order."""
    from pydoc_data.topics import topics

    parts = [part for text in topics.values() for part in text.split("\n\n")]
    if kind == "mixed":
        sources = [inspect.getsource(import_module(name)) for name in MODULES]
        code = cycle([part for source in sources for part in source.split("\n\n")])
        parts = [part for each in parts for part in (each, next(code))]
    return [f"{part.strip()}\n\n" for part in parts if part.strip()]

"""What `sooner bench mmspec` measures: arms by name, and how many samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sooner.checks import option

from .fields import names
from .settings import BenchSettings

ARMS = ("plain", "hf", "hf-assisted", "hf-prompt-lookup", "prompt-lookup", "speculative", "drafter")


@dataclass(frozen=True)
class MMSpecSettings(BenchSettings):
    """Time plain decoding, HF's peers and our methods on MMSpec's pictures and questions.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.

    Attributes:
        data: folder of a split of MMSpec, with `mmspec.jsonl` and `images/`.
        model: target model; without it, the bundled miniature.
        draft: a smaller model of the same tokenizer, for `hf-assisted` and `speculative`.
        drafter: folder of a drafter that was trained for the target, as another arm.
        arms: only these arms (plain and hf are always in).
        samples: first ones of each topic; by default all.
        system: text of a system turn before the first question; by default there is none.
        repeats: timed runs of each arm on each question.
        max_new_tokens: where an answer is cut.
        threads: torch threads on a CPU; by default one for each core.
    """

    data: Path = option(Path("dataset/MMSpec/test"), metavar="DIR")
    model: str | None = option(None, metavar="ID_OR_PATH")
    draft: str | None = option(None, metavar="ID_OR_PATH")
    drafter: str | None = option(None, metavar="ID_OR_PATH")
    arms: tuple[str, ...] = names("arm", ARMS, "plain")
    samples: int | None = option(None, 1)
    system: str = option("", metavar="TEXT")
    repeats: int = option(1, 1)
    max_new_tokens: int = option(1024, 2)
    threads: int | None = option(None, 1)

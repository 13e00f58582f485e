"""Grammars of answers: which tokens may stand at each node of a draft's tree.

A matcher follows one answer. It is asked for the masks of a whole tree at once: it steps down to a
node, tells what may follow, and is rolled back. A node that the grammar forbids is pruned before it
is verified, and so is all below it: the target's masked distribution could never accept it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

from ..refusal import BadRequestError
from .protocol import ChatRequest

logger = logging.getLogger("sooner.serve")

MAX_LETTERS = 256 << 10
"""The longest text of a schema."""
MAX_GRAMMARS = 64
"""Compiled grammars that are kept for later requests."""


class GrammarError(RuntimeError):
    """A grammar and committed tokens do not go together: the engine's fault, not the client's."""


class GuidanceMatcher(LogitsProcessor):
    """Forbids every token that leaves the grammar of one answer, behind any draft of it.

    The grammar stands behind what is committed: whoever commits tokens has it `accept` them. Masks
    of a round are made once: those of a draft when its forbidden nodes are left out.

    Args:
        matcher: llguidance's, at the beginning of the answer.
        vocab_size: of the target's scores.
        stop_token_ids: may stand where the grammar is complete; nothing follows them.
        width: ids of the prompt.
    """

    def __init__(
        self, matcher: Any, vocab_size: int, stop_token_ids: Collection[int], width: int = 0
    ) -> None:
        self.matcher, self.vocab_size, self.width = matcher, vocab_size, width
        self.stop_token_ids = stop_token_ids
        self._committed = 0  # tokens that were accepted
        self._masks: dict[tuple[int, ...], Tensor] = {}  # by what is drafted above, `[vocab]`

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Returns scores of what follows `input_ids [1, prompt and answer]`, `[1, vocab]`."""
        path = tuple(input_ids[0, self.width + self._committed :].tolist())
        if path not in self._masks:
            self.allowed(path, range(-1, len(path) - 1))
        return scores.masked_fill(~self._masks[path].to(scores.device), -torch.inf)

    def allowed(self, tokens: Sequence[int], parents: Sequence[int]) -> list[bool]:
        """Returns which nodes of a draft may stand there; see `methods.prompt_lookup`."""
        masks, allowed = self.masks(tokens, parents)
        paths: list[tuple[int, ...]] = [()]
        for token, parent in zip(tokens, parents, strict=True):
            paths.append((*paths[1 + parent], token))
        self._masks.update(zip(paths, masks, strict=True))
        return allowed.tolist()

    def masks(self, tokens: Sequence[int], parents: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns what may stand in one row's tree.

        The first are tokens that may follow the root and each node, `[1 + nodes, vocab]` bool: any
        behind a forbidden node or an end token, where nothing is ever committed, as a row without a
        token would be no distribution. The second are nodes that may stand where they are,
        `[nodes]` bool.

        Args:
            tokens, parents: of the tree, as `engine.tree.Tree` has them: a parent is -1 for the
                root, the last token that was committed, and stands before its children.
        """
        children: list[list[int]] = [[] for _ in range(1 + len(tokens))]
        for node, parent in enumerate(parents):
            children[1 + parent].append(node)
        masks = torch.ones(1 + len(tokens), self.vocab_size, dtype=torch.bool)
        allowed = torch.zeros(len(tokens), dtype=torch.bool)
        masks[0] = self._mask()
        path = [iter(children[0])]
        while path:
            node = next(path[-1], -1)
            if node < 0:
                path.pop()
                if path:
                    self.matcher.rollback(1)
                continue
            token = tokens[node]
            if not masks[1 + parents[node], token]:  # its parent is allowed, or we'd not be here
                continue
            allowed[node] = True
            if token in self.stop_token_ids or not self.matcher.try_consume_tokens([token]):
                continue
            masks[1 + node] = self._mask()
            path.append(iter(children[1 + node]))
        return masks, allowed

    def accept(self, ids: Sequence[int]) -> None:
        """Go on behind tokens that were committed.

        Raises:
            GrammarError: they are not allowed.
        """
        end = next((at for at, token in enumerate(ids) if token in self.stop_token_ids), len(ids))
        count = self.matcher.try_consume_tokens(list(ids[:end]))
        if count < end or (end < len(ids) and not self.matcher.is_accepting()):
            reason = self.matcher.get_error() or f"token {ids[count]} is not allowed"
            raise GrammarError(f"the answer left its grammar: {reason}")
        self._committed += len(ids)
        self._masks = {}

    def _mask(self) -> Tensor:
        """Tokens that may follow, `[vocab]` bool."""
        biases = np.frombuffer(self.matcher.compute_logit_bias(), np.uint8)  # 0 is forbidden
        if self.matcher.is_error():
            raise GrammarError(f"the grammar failed: {self.matcher.get_error()}")
        return torch.from_numpy(biases[: self.vocab_size] != 0)


class GuidanceGrammars:
    """Holds grammars by llguidance, for one tokenizer.

    They are compiled one after the other in a thread of their own, without Python's lock; what
    would take too long or too much memory, llguidance refuses by limits of its own.

    Args:
        tokenizer: HF's, a fast one.
        vocab_size: of the target's scores.
        stop_token_ids: allowed where the grammar is complete.

    Attributes:
        missing: why there are none, where llguidance is not installed or can't read the tokenizer.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, stop_token_ids: Collection[int]) -> None:
        ends = sorted(stop_token_ids)
        self.vocab_size, self.stop_token_ids, self.missing = vocab_size, frozenset(ends), ""
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="sooner-grammar")
        submit = self._compiler.submit
        self._compiling = lru_cache(MAX_GRAMMARS)(lambda schema: submit(self._compile, schema))
        try:
            import llguidance

            self._guidance, text = llguidance, tokenizer.backend_tokenizer.to_str()
            self._tokenizer = llguidance.LLTokenizer(text, n_vocab=vocab_size, eos_token=ends)
        except ImportError:
            self.missing = "llguidance is not installed; pip install 'sooner[serve]'"
        except Exception as error:
            # Slow tokenizers have no backend; llguidance meets those of words, which the miniatures
            # have, with errors of its own.
            logger.info("no grammars: %s", error)
            self.missing = "llguidance can't use the model's tokenizer; leave it out"

    async def of(self, request: ChatRequest) -> Callable[[int], GuidanceMatcher | None]:
        """Returns what makes the matcher of each choice, by the ids of its prompt.

        Raises:
            BadRequestError: the schema is no grammar, or too large a one; or there are none.
        """
        schema = request.schema_of_answer
        if schema is None:
            return lambda width: None
        if self.missing:
            field = schema.field.partition(".")[0].replace("tools", "tool_choice")
            raise BadRequestError(field, f"{field} needs a grammar: {self.missing}")
        field, size = schema.field, len(schema.text)
        if size > MAX_LETTERS:
            raise BadRequestError(
                field, f"{field} has {size} letters as JSON, and may have {MAX_LETTERS}"
            )
        # Others may wait for the same grammar, so a client that leaves does not end it.
        compiling = self._compiling(schema.text)
        try:
            matcher = await asyncio.shield(asyncio.wrap_future(compiling))
        except Exception:
            self._compiling.cache_clear()  # it may not be the grammar that failed: try anew
            raise
        if isinstance(matcher, str):
            raise BadRequestError(field, f"{field} can't be made a grammar: {matcher[:300]}")
        ends = self.stop_token_ids
        return lambda width: GuidanceMatcher(matcher.deep_copy(), self.vocab_size, ends, width)

    def close(self) -> None:
        """End the thread that compiles."""
        self._compiler.shutdown(wait=False, cancel_futures=True)

    def _compile(self, schema: str) -> Any:
        """Returns the matcher of a JSON schema, or what is wrong with it."""
        try:
            grammar = self._guidance.grammar_from("json", schema)
        except ValueError as error:
            return str(error)
        matcher = self._guidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if not matcher.get_error():
            matcher.compute_bitmask()  # finds what only the first step would
        return matcher.get_error() or matcher

"""Grammars of answers: which tokens may stand at each node of a draft's tree.

A matcher follows one answer. It is asked for the masks of a whole tree at once: it steps down to a
node, tells what may follow, and is rolled back. A node that the grammar forbids is pruned before it
is verified, and so is all below it: the target's masked distribution could never accept it.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...errors import SoonerError
from .compiling import CompileProcess
from .errors import BadRequestError
from .planning import is_asked
from .protocol import ChatRequest, GenerationRequest, NamedTool

MOST_LETTERS = 256 << 10
"""Of a grammar's text."""
KEPT = 64
"""Compiled grammars that are kept for later requests."""
COMPILE_SECONDS = 5.0


class GrammarError(RuntimeError):
    """A grammar and committed tokens do not go together: the engine's fault, not the client's."""


@dataclass(frozen=True)
class TreeMasks:
    """What a grammar allows in one row's tree.

    Attributes:
        masks: tokens that may follow the root (first) and each node, `[1 + nodes, vocab]` bool;
            any behind a forbidden node or an end token, where nothing is ever committed: a row
            without a token would be no distribution.
        allowed: nodes that may stand where they are, `[nodes]` bool; a child's parent does, too.
    """

    masks: Tensor
    allowed: Tensor


class TokenMatcher(Protocol):
    """What the engine asks of a job's grammar."""

    def masks(self, tokens: Sequence[int], parents: Sequence[int]) -> TreeMasks:
        """Args:
        tokens, parents: of one row's tree, as `decoding.Tree` has them: a parent is -1 for the
            root, the last token that was committed, and stands before its children.
        """

    def accept(self, ids: Sequence[int]) -> None:
        """Go on behind tokens that were committed.

        Raises:
            GrammarError: they are not allowed.
        """


class GuidanceMatcher:
    """llguidance's matcher of one answer.

    Args:
        matcher: at the beginning of the answer.
        vocab_size: of the target's scores.
        stop_token_ids: may stand where the grammar is complete; nothing follows them.
    """

    def __init__(self, matcher: Any, vocab_size: int, stop_token_ids: Collection[int]) -> None:
        self.matcher, self.vocab_size = matcher, vocab_size
        self.stop_token_ids = stop_token_ids

    def masks(self, tokens: Sequence[int], parents: Sequence[int]) -> TreeMasks:
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
        return TreeMasks(masks, allowed)

    def accept(self, ids: Sequence[int]) -> None:
        end = next((at for at, one in enumerate(ids) if one in self.stop_token_ids), len(ids))
        taken = self.matcher.try_consume_tokens(list(ids[:end]))
        if taken < end or (end < len(ids) and not self.matcher.is_accepting()):
            told = self.matcher.get_error() or f"token {ids[taken]} is not allowed"
            raise GrammarError(f"the answer left its grammar: {told}")

    def _mask(self) -> Tensor:
        """Tokens that may follow, `[vocab]` bool."""
        packed = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        if self.matcher.is_error():
            raise GrammarError(f"the grammar failed: {self.matcher.get_error()}")
        bits = np.unpackbits(packed, bitorder="little", count=8 * len(packed))
        return torch.from_numpy(bits[: self.vocab_size].astype(np.bool_))


class Grammars(Protocol):
    """Makes the matchers of a request."""

    async def of(self, request: GenerationRequest) -> Callable[[], TokenMatcher | None]:
        """What makes the matcher of each choice.

        Raises:
            BadRequestError: the schema is no grammar, or takes too long to compile.
        """

    async def close(self) -> None: ...


class NoGrammars:
    """Refuses what would need one.

    Args:
        reason: why there are none.
    """

    def __init__(self, reason: str = "this server has none; leave it out") -> None:
        self.reason = reason

    async def of(self, request: GenerationRequest) -> Callable[[], TokenMatcher | None]:
        for name in ("response_format", "tool_choice"):
            if is_asked(request, name):
                raise BadRequestError(name, f"{name} needs a grammar: {self.reason}")
        return lambda: None

    async def close(self) -> None:
        pass


class GuidanceGrammars:
    """Grammars by llguidance, for one tokenizer.

    A schema is compiled in a process of its own first, which is killed if it takes too long; what
    has passed there takes as long here, once.

    Args:
        tokenizer: HF's, a fast one.
        vocab_size: of the target's scores.
        stop_token_ids: allowed where the grammar is complete.

    Raises:
        SoonerError: llguidance is not installed, or can't read the tokenizer.
    """

    def __init__(
        self,
        tokenizer: Any,
        vocab_size: int,
        stop_token_ids: Sequence[int],
        compile_seconds: float = COMPILE_SECONDS,
    ) -> None:
        try:
            import llguidance
        except ImportError as error:
            raise SoonerError(
                "grammars need llguidance, which is not installed; pip install 'sooner[serve]'"
            ) from error
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise SoonerError(
                f"grammars need a fast tokenizer, and {type(tokenizer).__name__} is none"
            )
        text, ends = backend.to_str(), sorted(stop_token_ids)
        self.vocab_size, self.stop_token_ids = vocab_size, frozenset(ends)
        self._guidance = llguidance
        self._tokenizer = llguidance.LLTokenizer(text, n_vocab=vocab_size, eos_token=ends)
        self._process = CompileProcess(text, vocab_size, ends, compile_seconds)
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    async def of(self, request: GenerationRequest) -> Callable[[], TokenMatcher | None]:
        found = schema_of(request)
        if found is None:
            return lambda: None
        field, schema = found
        matcher = await self._matcher(field, json.dumps(schema))
        return lambda: GuidanceMatcher(matcher.deep_copy(), self.vocab_size, self.stop_token_ids)

    async def close(self) -> None:
        await self._process.close()

    async def _matcher(self, field: str, schema: str) -> Any:
        if len(schema) > MOST_LETTERS:
            raise BadRequestError(
                field, f"{field} has {len(schema)} letters as JSON, and may have {MOST_LETTERS}"
            )
        if (kept := self._compiled.get(schema)) is not None:
            self._compiled.move_to_end(schema)
            return kept
        if told := await self._process.error_of(schema):
            raise BadRequestError(field, f"{field} can't be made a grammar: {told}")
        matcher = await asyncio.to_thread(self._compile, schema)
        if told := matcher.get_error():
            raise BadRequestError(field, f"{field} can't be made a grammar: {told}")
        self._compiled[schema] = matcher
        if len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return matcher

    def _compile(self, schema: str) -> Any:
        text = self._guidance.LLMatcher.grammar_from_json_schema(schema)
        return self._guidance.LLMatcher(self._tokenizer, text, log_level=0)


def schema_of(request: GenerationRequest) -> tuple[str, dict[str, Any]] | None:
    """The JSON schema that an answer has to have, and the field that asks for it."""
    if isinstance(request, ChatRequest) and (choice := request.tool_choice) is not None:
        functions = {tool.function.name: tool.function for tool in request.tools or ()}
        if isinstance(choice, NamedTool):
            return "tools", functions[choice.function.name].parameters or {"type": "object"}
        if choice == "required":
            calls = [
                {
                    "type": "object",
                    "properties": {
                        "name": {"const": name},
                        "parameters": function.parameters or {"type": "object"},
                    },
                    "required": ["name", "parameters"],
                    "additionalProperties": False,
                }
                for name, function in functions.items()
            ]
            most = {"maxItems": 1} if request.parallel_tool_calls is False else {}
            return "tools", {"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}}
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return "response_format", {"type": "object"}
    assert wanted.json_schema is not None  # `check` has seen to it
    return "response_format.json_schema.schema", wanted.json_schema.schema_ or {}

"""Grammars are compiled on trial in a process that can be killed: a schema may take for ever.

`python -m sooner.serve.openai.compiling` reads JSON lines: what the tokenizer is, then grammars; it
answers each with its error, empty if there is none.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

MEMORY = 4 << 30
"""Bytes of address space of the process."""
START_SECONDS = 60.0
"""What starting and reading the tokenizer may take."""
COMMAND = ("-m", __name__)
"""What Python runs."""


class CompileProcess:
    """Compiles schemas one after the other, each within a time; started when it is first needed.

    Args:
        tokenizer: `tokenizer.json`'s text.
        vocab_size: of the target's scores.
        stop_token_ids: that end an answer.
        seconds: for one schema.
    """

    def __init__(
        self, tokenizer: str, vocab_size: int, stop_token_ids: Sequence[int], seconds: float
    ) -> None:
        self.seconds = seconds
        self._hello = {"tokenizer": tokenizer, "vocab": vocab_size, "ends": list(stop_token_ids)}
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    async def error_of(self, kind: str, text: str) -> str:
        """Returns what is wrong with a grammar; empty if nothing is.

        Args:
            kind, text: see `extras.Structure`.
        """
        async with self._lock:
            try:
                if self._process is None:
                    async with asyncio.timeout(START_SECONDS):
                        await self._start()
                async with asyncio.timeout(self.seconds):
                    return str(await self._ask({"kind": kind, "text": text}))
            except TimeoutError:
                await self._kill()
                return f"it takes more than {self.seconds:g} s; send a simpler one"
            except (OSError, ValueError, asyncio.IncompleteReadError):
                await self._kill()
                return "compiling it failed; send a simpler one"
            except BaseException:  # the client left; what the process says now is not asked for
                await self._kill()
                raise

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._kill()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *COMMAND, stdin=PIPE, stdout=PIPE
        )
        await self._ask(self._hello)

    async def _ask(self, request: dict[str, Any]) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        await process.stdin.drain()
        return json.loads(await process.stdout.readuntil(b"\n"))

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def main() -> None:
    """The process."""
    import resource

    from llguidance import LLMatcher, LLTokenizer, grammar_from

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    tokenizer: Any = None
    for line in sys.stdin:
        request, error = json.loads(line), ""
        try:
            if tokenizer is None:
                tokenizer = LLTokenizer(
                    request["tokenizer"], n_vocab=request["vocab"], eos_token=request["ends"]
                )
            else:
                grammar = grammar_from(request["kind"], request["text"])
                matcher = LLMatcher(tokenizer, grammar, log_level=0)
                matcher.compute_bitmask()
                error = matcher.get_error()
        except ValueError as wrong:
            error = str(wrong)
        print(json.dumps(error[:300]), flush=True)


if __name__ == "__main__":
    main()

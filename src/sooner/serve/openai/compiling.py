"""Grammars are compiled on trial in a process that can be killed: a schema may take for ever."""

from __future__ import annotations

import json
from typing import Any

from ..media.processes import DecodeProcesses
from ..media.sources import MediaError, MediaLimits
from ..media.worker import DecodeTask

MEMORY = 4 << 30
"""Bytes that the process may take."""
CHECK = f"{__name__}:check"
_tokenizers: dict[str, Any] = {}  # of the process: the one that it was given, made once


def trial_processes(seconds: float) -> DecodeProcesses:
    """Returns what compiles grammars, each within a time; started when it is first needed."""
    return DecodeProcesses(1, MediaLimits(seconds=seconds, memory=MEMORY))


def error_of(processes: DecodeProcesses, tokenizer: dict[str, Any], kind: str, text: str) -> str:
    """Returns what is wrong with a grammar; empty if nothing is. Blocks.

    Args:
        tokenizer: `text` of its `tokenizer.json`, `vocab_size` of the target's scores, and the
            `stop_token_ids` that end an answer.
        kind, text: see `extras.Structure`.
    """
    data = json.dumps({"tokenizer": tokenizer, "kind": kind, "text": text}).encode()
    try:
        return str(processes.decode(CHECK, data).report["error"])
    except MediaError:
        seconds = processes.limits.seconds
        return f"compiling it failed, or took more than {seconds:g} s; send a simpler one"


def check(task: DecodeTask) -> dict[str, Any]:
    """Compile a grammar in the process; its `error` is empty if there is none."""
    from llguidance import LLMatcher, LLTokenizer, grammar_from

    request = json.loads(task.data)
    spec = request["tokenizer"]
    if spec["text"] not in _tokenizers:
        _tokenizers.clear()
        _tokenizers[spec["text"]] = LLTokenizer(
            spec["text"], n_vocab=spec["vocab_size"], eos_token=spec["stop_token_ids"]
        )
    try:
        grammar = grammar_from(request["kind"], request["text"])
        matcher = LLMatcher(_tokenizers[spec["text"]], grammar, log_level=0)
        matcher.compute_bitmask()
        return {"error": matcher.get_error()[:300]}
    except ValueError as error:
        return {"error": str(error)[:300]}

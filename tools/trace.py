"""Counts the files of the library that a call enters, and how often it goes from one to another.

usage:
    python tools/trace.py generate        # sooner.generate of a tiny random Llama, 8 tokens
    python tools/trace.py chat            # a chat request through the server's app

A call is a step from a frame of one file of `src/sooner` into another. Imports are done before: a
first call warms up, the second is counted. Threads are counted too.
"""

from __future__ import annotations

import argparse
import collections
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sooner

LIBRARY = str(Path(sooner.__file__).parent)


class Trace:
    """Counts calls into files of the library.

    Attributes:
        files: calls that each file was entered by.
        changes: calls and returns from one file of the library to another.
    """

    def __init__(self) -> None:
        self.files: collections.Counter[str] = collections.Counter()
        self.changes = 0
        self.is_on = False
        self._here: dict[int, str] = {}

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if not self.is_on or event not in ("call", "return"):
            return
        if event == "return":
            frame = frame.f_back
        name = None if frame is None else frame.f_code.co_filename
        if name is None or not name.startswith(LIBRARY):
            return
        thread = threading.get_ident()
        if self._here.get(thread) != name:
            self.changes += 1
            self._here[thread] = name
        if event == "call":
            self.files[name] += 1

    def run(self, act: Callable[[], Any]) -> None:
        """Counts what `act` does, in every thread that it starts."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            act()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def generate() -> Callable[[], Any]:
    """Returns a plain `sooner.generate` of a tiny model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    inputs = {"input_ids": torch.arange(1, 9)[None]}
    return lambda: sooner.generate(model, inputs, max_new_tokens=8, do_sample=False)


def chat(trace: Trace) -> None:
    """Traces a chat with the server of the bundled video miniature, which runs in this process."""
    import json
    import os
    import signal
    import socket
    import time
    import urllib.request

    from sooner.cli.main import app

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    body = {
        "model": "miniature", "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": "what is seen?"}],
    }  # fmt: skip

    def ask() -> None:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        header = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), header)
        with urllib.request.urlopen(request) as answer:
            answer.read()

    def client() -> None:
        for _ in range(600):
            try:
                ask()
                break
            except OSError:
                time.sleep(0.1)
        trace.is_on = True
        ask()
        trace.is_on = False
        os.kill(os.getpid(), signal.SIGINT)

    asking = threading.Thread(target=client)
    asking.start()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        app(["serve", "miniature", "--port", str(port)])
    except (SystemExit, KeyboardInterrupt):
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    asking.join()


def main() -> int:
    """Prints the files, most entered first, and their number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("call", choices=("generate", "chat"))
    trace = Trace()
    if parser.parse_args().call == "chat":
        chat(trace)
    else:
        call = generate()
        call()
        trace.is_on = True
        trace.run(call)
    for name, count in trace.files.most_common():
        print(f"{count:7}  {Path(name).relative_to(LIBRARY)}")
    print(f"{len(trace.files)} files, {trace.changes} changes of file")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

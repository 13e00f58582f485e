"""A process of clients: threads that ask and misbehave until their time is over.

`python -m sooner_lab.bench.soak.clients FILE` reads what to do, and writes a line of JSON: what
came of it.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .faults import SoakClient
from .requests import SoakAnswer, SoakRequest
from .settings import MIX

BROKEN = "broken"
"""The end of what breaks a law."""
MAX_REPLY = 20
"""Broken laws of a process that are told whole."""


class Outcomes:
    """How often what came to which end.

    Attributes:
        counts: by kind and end; an end that breaks a law is `broken`.
        broken: some of these, in words.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.broken: list[str] = []
        self._lock = threading.Lock()

    def run(self, client: SoakClient, kind: str) -> None:
        """Do one thing and count its end."""
        try:
            ends = client.do(kind)
        except Exception as error:  # whatever it is, the request is lost
            self._count(kind, BROKEN, f"{kind}: {type(error).__name__}: {error}"[:1000])
        else:
            for end in ends:
                self._count(kind, end)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        counts = [[kind, end, times] for (kind, end), times in sorted(self.counts.items())]
        return {"counts": counts, "broken": self.broken}

    def _count(self, kind: str, end: str, message: str = "") -> None:
        with self._lock:
            self.counts[kind, end] += 1
            if message and len(self.broken) < MAX_REPLY:
                self.broken.append(message)


def write_plan(path: Path, client: SoakClient, seconds: float, threads: int, seed: int) -> None:
    """What a process of clients reads."""
    plan = {
        "address": client.address,
        "requests": [asdict(item) for item in client.requests],
        "said": [item.choices for item in client.output],
        "media": {name: base64.b64encode(data).decode() for name, data in client.media.items()},
        "damaged": base64.b64encode(client.damaged).decode(),
        "burst": client.burst,
        "seconds": seconds,
        "threads": threads,
        "seed": seed,
    }
    path.write_text(json.dumps(plan))


def clients_of(plan: dict[str, Any]) -> list[SoakClient]:
    """A client for each thread, and one for heads that never end."""
    requests = [SoakRequest(**{**item, "media": tuple(item["media"])}) for item in plan["requests"]]
    answers = [SoakAnswer(tuple((text, reason) for text, reason in item)) for item in plan["said"]]
    media = {name: base64.b64decode(data) for name, data in plan["media"].items()}
    damaged = base64.b64decode(plan["damaged"])
    return [
        SoakClient(
            plan["address"], requests, answers, media, damaged, plan["burst"],
            random.Random(1000 * plan["seed"] + number),
        )
        for number in range(plan["threads"] + 1)
    ]  # fmt: skip


def run(plan: dict[str, Any]) -> Outcomes:
    """All threads, until the time is over and each has its last answer."""
    outcomes, end = Outcomes(), time.monotonic() + plan["seconds"]
    slow, *clients = clients_of(plan)
    kinds, weights = list(MIX), list(MIX.values())

    def live(client: SoakClient) -> None:
        while time.monotonic() < end:
            outcomes.run(client, client.draw.choices(kinds, weights)[0])

    def trickle() -> None:
        while time.monotonic() < end:
            outcomes.run(slow, "slowloris")
            time.sleep(slow.draw.uniform(0, 10))

    threads = [threading.Thread(target=live, args=(client,)) for client in clients]
    threads.append(threading.Thread(target=trickle))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text())).as_dict()))

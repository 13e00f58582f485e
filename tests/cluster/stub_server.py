"""A server on Ray over a tiny model that takes its time; started by tests as a process of its own.

    python stub_server.py REPLICAS MOST ADDRESS SECONDS [UPSCALE DOWNSCALE]

Its address is the first line that it prints; SECONDS are those of a forward.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from sooner.ray.serving import RayServer
from sooner.serve.settings import ChatSettings, ReplicaSettings

ROWS, QUEUE, THRESHOLD = 2, 6, 2


def load(seconds: float) -> Any:
    """A pair whose target sleeps in each forward."""
    from serve.test_chat_run import pair

    loaded = pair()
    loaded.target.model.get_output_embeddings().register_forward_pre_hook(
        lambda *args: time.sleep(seconds)
    )
    return loaded


if __name__ == "__main__":
    replicas, maximum, address, seconds, *delays = sys.argv[1:]
    from cluster import stub_server  # so that replicas import it by its name

    RayServer(
        partial(stub_server.load, float(seconds)),
        "org/tiny",
        ChatSettings(
            port=0, served_model_name="tiny", media_workers=1, max_rows=ROWS, max_queue=QUEUE,
            method="prompt-lookup", grace_seconds=60.0,
        ),
        ReplicaSettings(int(replicas), int(maximum), THRESHOLD, *map(float, delays)),
        address,
        on_ready=partial(print, flush=True),
    ).run()  # fmt: skip

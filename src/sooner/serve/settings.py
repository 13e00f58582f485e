"""How a server runs, checked before a model is loaded."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..checks import check_fields, option
from ..errors import SoonerError
from ..registry import choices
from .media.sources import MEBI, MediaSettings


def parse_bytes(text: str) -> int:
    """Returns a number of bytes, such as `8GiB`, `8G` (10**9 each) or `8589934592`.

    Raises:
        SoonerError: any other text.
    """
    from pydantic import ByteSize, TypeAdapter

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValueError as error:
        raise SoonerError(
            f"'{text}' is no number of bytes; write it as 8GiB, 8G or 8589934592"
        ) from error


@dataclass(frozen=True)
class ServerSettings:
    """Address and limits of any server.

    Args:
        host: address to bind; others than the loopback need a token.
        port: 0 takes a free one.
        token: what clients send as `Authorization: Bearer TOKEN`; by default nothing is asked for.
        max_body: bytes of a request.
        max_connections: connections that may be open at once; beyond, requests get a bare 503.
        body_seconds: what sending a body may take.
        grace_seconds: what answers under way may take once the server is told to stop; those that
            take longer are refused.

    Raises:
        SoonerError: a value out of range, or an open address without a token.
    """

    host: str = option("127.0.0.1", metavar="ADDRESS")
    port: int = option(8000, 0, 65_535)
    token: str | None = option(None, metavar="SECRET", env="SOONER_TOKEN")
    max_body: int = option(16 * MEBI, 1)
    max_connections: int = option(256, 1)
    body_seconds: float = option(30.0, 0)
    grace_seconds: float = option(30.0, 0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SoonerError("the token has characters that no HTTP header can carry; use ASCII")
        if self.token is not None and not self.token.strip():
            raise SoonerError("the token is empty; give a secret, or leave it out on a loopback")
        if self.token is None and not is_loopback(self.host):
            raise SoonerError(
                f"host '{self.host}' can be reached from other machines; give --token (or set "
                "SOONER_TOKEN), or bind 127.0.0.1"
            )


@dataclass(frozen=True)
class ServeSettings(ServerSettings):
    """Holds the server of a robot policy.

    Args:
        method: how actions are decoded; the policy's own choice by default.
        max_batch: robots that share a forward.
        max_queue: requests that may be under way at once; others are told to come back.
        window_ms: how long a batch waits for requests that are likely to come. It waits only
            if the previous batch had several requests, so a single robot never waits.
        deadline_ms: deadline of requests that name none; by default there is none.

    Raises:
        SoonerError: as `ServerSettings`.
    """

    method: str | None = None
    max_batch: int = option(16, 1)
    max_queue: int = option(64, 1)
    window_ms: float = option(5.0, 0, metavar="MS")
    deadline_ms: float | None = option(None, 0, above=True, metavar="MS")


METHODS = {
    **{name: entry.summary for name, entry in choices().items()},
    "hsd": "a request's `prediction`; others decode plainly",
}
"""What `--method` may be, and what each drafts."""


@dataclass(frozen=True)
class ChatSettings(MediaSettings, ServerSettings):
    """The server of a model that answers OpenAI's API.

    Args:
        served_model_name: what clients call the model; by default as it was named here.
        method: how drafts are made; by default `eagle` with a head, `speculative` with a draft
            model, else `prompt-lookup`.
        num_draft_tokens: draft tokens a round, for `eagle` nodes of the tree.
        head: folder of a draft head that was trained for the model, for `eagle`.
        max_rows: requests that decode together; 1 with `parallel`, which takes no batches.
        max_model_len: tokens that prompt and answer may have together; by default the model's
            positions, or what fits into memory.
        kv_cache_memory_bytes: memory for keys and values, such as 8GiB; by default a share of a
            GPU, elsewhere what `max_rows` requests can need, 4 GiB at most.
        gpu_memory_utilization: share of a GPU that weights, keys and values take; the rest is for
            what is computed.
        prefix_caching: reuse keys and values of what prompts have in common.
        compile: let `torch.compile` make the forwards of target and draft, which takes minutes
            before the first request, and makes steps of small models shorter.
        verify_every: rounds after which a committed block is decoded again, plainly; one that
            differs is logged, counted (sooner:alarms_total), and ends its request's drafts. 1000
            takes at most 1 % of the forwards. By default none is.
        prefill_chunk: prompt tokens of one step; others decode in between.
        max_queue: requests that may wait for a row; more are told to come back.
        time_per_token_ms: that a stream may take, on average; prompts are held back for it, 4 s at
            most. By default none waits while there is a row.
        deadline: seconds that a request may take, if it names none; by default any.
        ping_seconds: after which a stream without tokens says that it is alive.
        stream_interval: seconds between two wake-ups for tokens of streams; what comes meanwhile
            goes out together, but first tokens and ends at once. 0 sends each round's.

    Raises:
        SoonerError: as `ServerSettings`; or a media folder that is none.
    """

    max_body: int = option(64 * MEBI, 1)
    served_model_name: str | None = option(None, metavar="NAME")
    method: str | None = option(None, known=METHODS)
    num_draft_tokens: int | Literal["auto"] = option("auto")
    head: str | None = option(None, metavar="DIR")
    max_rows: int = option(8, 1)
    max_model_len: int | None = option(None, 2)
    kv_cache_memory_bytes: int | None = option(None, 1, metavar="BYTES", parse=parse_bytes)
    gpu_memory_utilization: float = option(0.85, 0, 1, above=True)
    prefix_caching: bool = True
    compile: bool = False
    verify_every: int | None = option(None, 1)
    prefill_chunk: int = option(512, 1)
    max_queue: int = option(64, 0)
    time_per_token_ms: float | None = option(None, 0, above=True, metavar="MS")
    deadline: float | None = option(None, 0, above=True, metavar="S")
    ping_seconds: float = option(5.0, 0, above=True)
    stream_interval: float = option(0.02, 0, metavar="S")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.media_root is not None and not Path(self.media_root).is_dir():
            raise SoonerError(f"media root '{self.media_root}' is no folder; name one that is")
        if self.served_model_name is not None and not self.served_model_name.strip():
            raise SoonerError("the served model name is empty; leave it out for the model's own")


@dataclass(frozen=True)
class ReplicaSettings:
    """Holds replicas of a server on Ray.

    Args:
        replicas: processes that each load the model; with more than one GPU, one each.
        max_replicas: most of them, when more requests come than `replicas` decode together; by
            default as many as `replicas`.
        imbalanced_threshold: a request goes to the replica that has seen its media, or the
            beginning of its prompt, unless that has so many requests more than the least busy one.
        upscale_seconds: of more requests than replicas decode together before one is added.
        downscale_seconds: of fewer before one is taken away.

    Raises:
        SoonerError: a value out of range, or fewer replicas at most than at least.
    """

    replicas: int = option(1, 1)
    max_replicas: int | None = option(None, 1)
    imbalanced_threshold: int = option(4, 1)
    upscale_seconds: float = option(30.0, 0)
    downscale_seconds: float = option(600.0, 0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise SoonerError(
                f"max_replicas is {self.max_replicas}, less than the {self.replicas} there are "
                "always (replicas); give more, or leave it out"
            )

    @property
    def maximum(self) -> int:
        """Replicas that there may be."""
        return self.max_replicas or self.replicas


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address; no name but localhost is trusted."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

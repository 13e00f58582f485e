"""Connects to Ray: a cluster of one machine that ends with the run, or one that is there."""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import SoonerError
from ..methods.threads import cores

LOCAL = "local"
"""Address of a cluster that is started here, and ends with the run."""

LOOPBACK = "127.0.0.1"

TOKEN = Path("~/.ray/auth_token").expanduser()
"""Where Ray keeps what lets one into a user's clusters."""

MODE, TOKENS = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables that say whether a token is asked for, and which or where it is."""

JOINING = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Whether other machines may join. Unless they may not, `init` takes the loopback for "any address
of this machine" and listens on all of them, where who reaches a port may run code."""

ROW = 2 << 20
"""What a page under way may take of the object store."""

REACH = 10.0
"""Seconds for a head to take a connection."""

MAX_LETTERS = 16
"""The longest path of the folder for temporary files: Ray's sockets lie 90 letters below it, and
may have 107.
"""

MIN_STORE = 80 << 20
"""Ray takes no store below 75 MB."""

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # A machine without an accelerator: Ray would hide from tasks what they don't ask for.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray ends processes that had no task for a second, and a document's last page comes seconds
    # after another's: each of them would wait for a new process, a second of a core.
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
}
"""Variables of this process and of what it starts: usage is reported to nobody."""

MISSING = "ray is not installed; pip install 'sooner[ray]'"


def import_ray(debug: bool = False) -> Any:
    """Returns the module `ray`, told to send nobody anything, and to print nothing.

    Args:
        debug: let it print.

    Raises:
        SoonerError: it is not installed, or not with Ray Data.
    """
    quiet = {} if debug else {"RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DATA_LOG_LEVEL": "ERROR"}
    for name, value in {**SETTINGS, **quiet}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise SoonerError(MISSING) from error
    if not debug:
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return ray


@contextmanager
def connected(
    address: str = LOCAL,
    pages_in_flight: int = 8,
    debug: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[bool]:
    """Be connected to a cluster inside the block; yields whether it was started here.

    Args:
        address: `local`, `auto` (the one that `ray start` started on this machine), or host:port.
        pages_in_flight: in all, which decides how large the object store of a local one is.
        debug: let Ray and its workers print.
        environment: variables of its processes, or on another's cluster of this driver's actors.

    Raises:
        SoonerError: ray is not installed; no cluster there; or it runs another Python or Ray.
    """
    ray = import_ray(debug)
    if ray.is_initialized():  # a notebook's own
        yield False
        return
    quiet = {
        "log_to_driver": debug,
        "logging_level": logging.WARNING if debug else logging.CRITICAL,
    }
    options: dict[str, Any]
    with ExitStack() as stack:
        if address == LOCAL:
            _forbid_joining(stack)
            os.environ.update(environment or {})
            stack.callback(lambda: [os.environ.pop(name, None) for name in environment or ()])
            _authenticated(ray, stack, address)
            folder = tempfile.mkdtemp(prefix="sooner-", dir=_short_folder())
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            options = {
                "address": LOCAL,
                "_node_ip_address": LOOPBACK,
                "include_dashboard": False,
                "num_cpus": cores(),
                "object_store_memory": max(ROW * pages_in_flight, MIN_STORE),
                # Of sockets and logs, and of the store where /dev/shm is too small for it.
                "_temp_dir": folder,
            }
        else:
            _check_reachable(address)
            _authenticated(ray, stack, address)
            options = {"address": address, **_node_address(address)}
            if environment:
                options["runtime_env"] = {"env_vars": dict(environment)}
        try:
            _init(ray, options | quiet, debug)
        except Exception as error:
            raise SoonerError(_explain(address, error)) from error
        stack.callback(_shutdown, ray, debug)
        yield address == LOCAL


def _forbid_joining(stack: ExitStack) -> None:
    """Have no other machine join a local cluster until `stack` is closed, unless the environment
    says whether some may."""
    from ray._private import ray_constants

    if JOINING in os.environ:
        return
    before = ray_constants.ENABLE_RAY_CLUSTER  # of the environment when ray was imported
    os.environ[JOINING], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    stack.callback(setattr, ray_constants, "ENABLE_RAY_CLUSTER", before)
    stack.callback(os.environ.pop, JOINING, None)


def _authenticated(ray: Any, stack: ExitStack, address: str) -> None:
    """Have Ray ask for a token, and tell it, until `stack` is closed; unless the environment says
    whether it does.

    A local cluster's is of this run alone. Its processes have it of their environment, which nobody
    but the user can read; without it, whoever reaches one of their ports may run code.
    """
    added = {}
    if MODE not in os.environ:
        has_token = any(name in os.environ for name in TOKENS)
        if address == LOCAL or has_token or TOKEN.is_file():  # `ray start --head` finds it, too
            added[MODE] = "token"
        if address == LOCAL and not has_token:
            added[TOKENS[0]] = secrets.token_hex(32)
    os.environ.update(added)
    stack.callback(_read_settings, ray, added)
    _read_settings(ray)


def _read_settings(ray: Any, without: Collection[str] = ()) -> None:
    """Have Ray read the environment as its processes will: it does when it is first imported, and
    one that thinks that no token is asked for is not let into its own cluster.

    Args:
        without: variables that go first.
    """
    for name in without:
        os.environ.pop(name, None)
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _init(ray: Any, options: dict[str, Any], debug: bool) -> None:
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        with silenced(debug):
            ray.init(**options)
        if callable(on_term) and threading.current_thread() is threading.main_thread():
            # `init` has put one before it that prints a trace and ends the process at once.
            signal.signal(signal.SIGTERM, on_term)
    except BaseException:
        with suppress(Exception):
            _shutdown(ray, debug)  # what it has of a node that came up halfway
        raise
    if not debug:  # `init` has set it anew
        logging.getLogger("ray").setLevel(logging.CRITICAL)


def _shutdown(ray: Any, debug: bool) -> None:
    with silenced(debug):
        ray.shutdown()


@contextmanager
def silenced(debug: bool) -> Iterator[None]:
    """Without the lines that Ray's own code writes to this process's standard error, and those of
    the cluster that it prints."""
    if debug:
        yield
        return
    streams = {1: sys.stdout, 2: sys.stderr}
    for stream in streams.values():
        stream.flush()
    before = {number: os.dup(number) for number in streams}
    try:
        with open(os.devnull, "wb") as nowhere:
            for number in streams:
                os.dup2(nowhere.fileno(), number)
        yield
    finally:
        for number, stream in streams.items():
            stream.flush()
            os.dup2(before[number], number)
            os.close(before[number])


def _short_folder() -> Path:
    """Returns where temporary folders go; sockets below them must have short names."""
    usual, short = Path(tempfile.gettempdir()), Path("/tmp")
    return short if len(str(usual)) > MAX_LETTERS and short.is_dir() else usual


def _check_reachable(address: str) -> None:
    """Refuse an address behind which nobody is; Ray would try for minutes.

    Raises:
        SoonerError: as said.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= 65_535
    if not host or "/" in host or not is_port:  # such as ray://..., which is Ray's client
        raise SoonerError(
            f"'{address}' is no address of a Ray cluster; give HOST:PORT as `ray start --head` "
            "tells it, auto for the one of this machine, or leave it out"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), REACH):
            return
    except OSError as error:
        raise SoonerError(_explain(address, error)) from error


def _node_address(address: str) -> dict[str, str]:
    """This machine's address in a cluster of the loopback."""
    host = address.rpartition(":")[0].strip("[]")
    if address == "auto":
        with suppress(Exception):  # not there: `init` says so
            from ray._private.services import canonicalize_bootstrap_address

            host = (canonicalize_bootstrap_address("auto") or "").rpartition(":")[0]
    with suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return {"_node_ip_address": LOOPBACK}
    return {}


def _explain(address: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:300]
    if address == LOCAL:
        return f"ray could not be started on this machine: {reason.rstrip('.')}; --debug shows more"
    way = "start one with `ray start --head`, or leave the address out"
    if "ersion mismatch" in reason:
        way = "make versions of Ray and Python the same on all machines"
    return f"no Ray cluster at '{address}' ({reason}); {way}"

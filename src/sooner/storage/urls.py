"""Stores by their folder or URL; files behind URLs, found by listing and fetched one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.request import url2pathname

from ..errors import SoonerError, reason_of
from .local import STATE_FOLDER, LocalStore
from .store import MemoryStore, S3Store, StorageError, Store, check_name

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)

MAGIC = re.compile(r"[*[]")  # a `?` is a part of names, and begins queries

S3 = ("s3", "s3a")

WRITES_WHOLE = {*S3, "gs", "gcs", "az", "abfs", "abfss", "oss", "memory"}
"""Schemes whose single writes are whole or not there; others show what is half written."""

EXTRAS = {"s3": "s3", "s3a": "s3"}
"""Extras of `sooner` that bring the file system of a scheme."""


def is_url(place: str | Path) -> bool:
    """Returns whether a place is a URL such as `s3://bucket/folder`; `C:\\folder` is none."""
    return isinstance(place, str) and URL.fullmatch(place) is not None


def local_folder(place: str | Path) -> Path | None:
    """Returns the folder of this machine that a place is; `None` if it is none."""
    match = URL.fullmatch(place) if isinstance(place, str) else None
    if match is None:
        return Path(place)
    if match[1].lower() not in ("file", "local"):
        return None
    return Path(url2pathname(match[2]) if match[1].lower() == "file" else match[2])


def open_store(place: str | Path, **options: Any) -> Store:
    """Returns the store below a folder or a URL.

    Args:
        place: `out`, `file:///data/out`, `s3://bucket/out`, `memory://out`, or the URL of another
            object store. S3 finds its keys and its endpoint (`AWS_ENDPOINT_URL`) as other clients
            do.
        options: of fsspec's file system, such as `endpoint_url`.

    Raises:
        StorageError: no such scheme, one that does not write objects whole, what reads it is not
            installed, or a file where a folder should be.
    """
    folder = local_folder(place)
    if folder is not None:
        if folder.is_file():
            raise StorageError(f"output '{folder}' is a file; name a folder, it is made if need be")
        return LocalStore(folder)
    import fsspec  # which local folders don't need

    root = str(place)
    match = URL.fullmatch(root)
    assert match is not None
    scheme = match[1].lower()
    if scheme not in WRITES_WHOLE and scheme in fsspec.available_protocols():
        raise StorageError(
            f"'{scheme}://' shows objects that are half written; write to a folder (it may be "
            f"mounted) or to {', '.join(sorted(WRITES_WHOLE))}"
        )
    system, path = file_system(root, **options)
    if scheme in S3 and not path.strip("/"):
        raise StorageError(f"'{root}' names no bucket; write it as s3://bucket/folder")
    kind = S3Store if scheme in S3 else MemoryStore if scheme == "memory" else Store
    return kind(root, system, path)


def file_system(url: str, **options: Any) -> tuple[Any, str]:
    """Returns fsspec's file system of a URL, without a cache of listings, and the path in it.

    Raises:
        StorageError: no such scheme, or what reads it is not installed.
    """
    match = URL.fullmatch(url)
    assert match is not None, url
    scheme = match[1].lower()
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(scheme)
        known = kind._get_kwargs_from_urls(url)
        known.pop("version_aware", None)  # a `?` of S3 is part of a name
        system = kind(**{"use_listings_cache": False, **known, **options})
        return system, str(kind._strip_protocol(url))
    except ImportError as error:
        way = f"sooner[{EXTRAS[scheme]}]" if scheme in EXTRAS else scheme
        raise StorageError(
            f"'{url}' needs what is not installed ({error}); pip install '{way}'"
        ) from error
    except SoonerError:
        raise
    except Exception as error:  # each file system has its own
        if scheme not in fsspec.available_protocols():
            raise StorageError(
                f"'{url}' has an unknown scheme '{scheme}'; known are s3, http, https, file and "
                "others of fsspec's"
            ) from error
        raise StorageError(f"'{url}' can't be opened: {reason_of(error)}") from error


@dataclass(frozen=True)
class RemoteFile:
    """Holds a file behind a URL.

    Attributes:
        url: of it.
        place: below the folder that was searched, with `/`.
    """

    url: str
    place: str


def find_files(url: str, accepts: Callable[[str], bool]) -> list[RemoteFile]:
    """Returns files meant by a URL: a file, a folder searched to the bottom, or a pattern with `*`.

    Folders of results below it, which hold a `.sooner`, are left out.

    Args:
        accepts: by a file's name; a file that the URL names itself is found whatever it says.

    Raises:
        StorageError: nothing is there, it can't be listed, or a name is no path, such as one with
            `..`, which could lead out of a folder of results.
    """
    system, path = file_system(url)
    try:
        if MAGIC.search(path):
            root, paths = MAGIC.split(path)[0].rpartition("/")[0], system.glob(path)
        elif not url.endswith("/") and system.isfile(path):
            return [RemoteFile(str(system.unstrip_protocol(path)), _name_of(path))]
        elif system.isdir(path):
            root, paths = path, _without_results(path, system.find(path))
        else:
            raise StorageError(f"'{url}' does not exist; check the name")
        selected = [entry for entry in paths if accepts(_name_of(entry))]
        return [_below(root.rstrip("/"), entry, url, system) for entry in selected]
    except SoonerError:
        raise
    except Exception as error:  # each file system has its own
        raise StorageError(
            f"'{url}' can't be listed: {reason_of(error)}; check the address and, where there are "
            "any, the credentials"
        ) from error


def fetch(url: str, target: Path) -> None:
    """Copy the file behind a URL, in pieces; nothing is left of one that fails.

    Raises:
        StorageError: it can't be read.
    """
    system, path = file_system(url)
    try:
        system.get_file(path, str(target))
    except FileNotFoundError:
        target.unlink(missing_ok=True)
        raise StorageError(f"'{url}' does not exist") from None
    except Exception as error:  # each file system has its own
        target.unlink(missing_ok=True)
        raise StorageError(f"'{url}' can't be fetched: {reason_of(error)}") from error


def _without_results(root: str, files: list[str]) -> list[str]:
    """Returns files below a folder, without those of earlier runs' outputs below it."""
    mark = f"/{STATE_FOLDER}/"
    results = {path.partition(mark)[0] for path in files if mark in path} - {root.rstrip("/")}
    if not results:
        return files
    return [
        path
        for path in files
        if not any(str(folder) in results for folder in PurePosixPath(path).parents)
    ]


def _below(root: str, path: str, url: str, system: Any) -> RemoteFile:
    place = path[len(root) :].removeprefix("/")
    try:
        check_name(place)
    except StorageError:
        raise StorageError(
            f"'{path}' below '{url}' has a name that is no path; rename it, or name files one by "
            "one"
        ) from None
    return RemoteFile(str(system.unstrip_protocol(path)), place)


def _name_of(path: str) -> str:
    """Returns the last part of a path, without the query of an address of the web."""
    match = URL.fullmatch(path)
    if match and match[1].lower().startswith("http"):
        path = path.partition("?")[0]
    return path.rstrip("/").rpartition("/")[2]

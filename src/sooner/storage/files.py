"""Files behind URLs, to be read: found by listing, and fetched one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import SoonerError, reason_of
from .local import STATE_FOLDER
from .store import StorageError, check_name
from .urls import URL, file_system

MAGIC = re.compile(r"[*[]")  # a `?` is a part of names, and begins queries


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

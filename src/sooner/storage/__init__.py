"""Objects by name in folders and behind URLs, written by many processes at once."""

from .attempts import Attempts
from .local import LocalStore
from .store import MissingObjectError, ObjectError, ObjectInfo, StorageError, Store
from .urls import is_url, open_store

__all__ = [
    "Attempts",
    "LocalStore",
    "MissingObjectError",
    "ObjectError",
    "ObjectInfo",
    "StorageError",
    "Store",
    "is_url",
    "open_store",
]

"""`sooner parse --ray`: the same run by all machines of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SoonerError
from . import options

if TYPE_CHECKING:
    from ..documents import Document
    from ..ray import RayJob
    from ..tasks.parse import ParseJob
    from ..tasks.parse.result import Counts
    from .parse_options import ParseOptions


def ray_job(
    request: ParseOptions,
    on_page: Callable[[dict[str, Any], Counts], None],
    job: ParseJob | None = None,
) -> RayJob:
    """Returns the run that the options describe, on Ray.

    Args:
        job: the same in one process, if its documents or files are others than those of the
            options.

    Raises:
        SoonerError: ray is not installed; an option that is for one process; else as
            `ParseOptions.job`.
    """
    address = options.check_ray(request.ray, "behind which folders are not this machine's")
    from ..ray import RayJob
    from ..ray.parser import IN_FLIGHT
    from ..tasks.parse.drafters import TIMEOUT

    if request.compare:
        raise SoonerError("--compare times one process on one machine; leave --ray out")
    job = job or request.job(on_page)
    documents, part, delivery = job.documents, job.shard, job.output.delivery
    if part is not None:
        documents = [item for item in documents if part.has(item.place.as_posix())]
    parser: dict[str, Any] = {
        "settings": request.settings,
        "drafter": request.drafter,
        "drafter_options": {
            "language": request.language,
            "ocr_models": request.ocr_model_dir and os.path.abspath(request.ocr_model_dir),
            "pictures": request.model is None,
        },
        "timeout": request.settings.timeout or TIMEOUT,
    }
    if request.model is not None:
        parser |= {
            "model": options.from_root(request.model),
            "device": request.device,
            "dtype": request.dtype,
            "trust_remote_code": request.trust_remote_code,
            "threads": request.threads,
        }
    return RayJob(
        documents=[_absolute(item) for item in documents],
        inputs=[_named(str(item)) for item in request.inputs or []],
        output=replace(
            job.output,
            delivery=replace(delivery, folder=_named(str(delivery.folder))),
        ),
        parser=parser,
        address=address,
        parsers=request.actors,
        pages_in_flight=request.in_flight or IN_FLIGHT,
        notes_of=job.notes_of,
        stop_on_error=job.stop_on_error,
        on_page=on_page,
        debug=request.debug,
    )


def _named(place: str) -> str:
    """Returns a path from the root, so that every machine means the same by it; URLs as
    they are.
    """
    from ..storage import is_url

    return place if is_url(place) else os.path.abspath(place)


def _absolute(document: Document) -> Document:
    """As `_named`."""
    if document.url is not None:
        return document
    return replace(document, path=Path(os.path.abspath(document.path)))

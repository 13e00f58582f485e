"""Requests in every form that clients send, and what is wrong with others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serve.robots import body_of, from_json_numpy, json_numpy, npy, png, request
from sooner.errors import FieldError
from sooner.serve.act import ActRequest, NumpyImage, write
from sooner.serve.http import parse
from sooner.serve.refusal import RefusedError, refusal_of
from tiny_policy import image

PICTURE = image(3, 5, 4)
FORMS = {
    "lists": PICTURE.tolist(),
    "png": png(PICTURE),
    "npy": npy(PICTURE),
    "url": "data:image/png;base64," + png(PICTURE),
    "json_numpy": json_numpy(PICTURE),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_arrives_in_every_form(form: str) -> None:
    parsed = parse(ActRequest, body_of(request(image=FORMS[form], unnorm_key="table")))
    np.testing.assert_array_equal(parsed.observation.image, PICTURE)
    assert parsed.observation.unnorm_key == "table"
    assert isinstance(parsed.image, NumpyImage) == (form == "json_numpy")
    assert parsed.deadline_ms is None


def changed(**fields: Any) -> bytes:
    body = request(image=PICTURE.tolist())
    body.update(fields)
    return body_of({name: value for name, value in body.items() if value is not ...})


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"", None, "the body is no JSON"),
        (b"{", None, "the body is no JSON"),
        (b"\xff\xfe", None, "the body is no JSON"),
        (b"[" * 200_000, None, "the body is no JSON"),
        (b"[1]", None, "the body is [1]"),
        (b"null", None, "the body is None"),
        (changed(image=...), "image", "image is missing"),
        (changed(image=None), "image", "image is None"),
        (changed(instruction=...), "instruction", "instruction is missing"),
        (changed(instruction=""), "instruction", "instruction is empty"),
        (changed(instruction=["a"]), "instruction", "instruction is ['a']"),
        (changed(unnorm_key=7), "unnorm_key", "unnorm_key is 7"),
        (changed(deadline_ms="soon"), "deadline_ms", "deadline_ms is 'soon'"),
        (changed(deadline_ms=0), "deadline_ms", "greater than 0"),
        (changed(deadline_ms=True), "deadline_ms", "deadline_ms is True"),
        (changed(image=5), "image", "image is 5"),
        (changed(image=True), "image", "image is True"),
        (changed(image={"a": 1}), "image.__numpy__", "image.__numpy__ is missing"),
        (changed(image="hello!"), "image", "no base64"),
        (changed(image="aGVsbG8="), "image", "no PNG, JPEG, WebP or npy"),
        (changed(image=[]), "image", "shape [0]"),
        (changed(image=[["a"]]), "image[0][0]", "image[0][0] is 'a'; it should be a list"),
        (changed(image=[[[1, 2, 3]], [[1, 2]]]), "image", "rows of different length"),
        (changed(image=[[1, 2, 3]]), "image[0][0]", "image[0][0] is 1; it should be a list"),
        (changed(image=[[[1, 2]]]), "image", "shape [1, 1, 2]"),
        (changed(image=[[[1, 2, 256]]]), "image[0][0][2]", "is 256; it should be less than or equ"),
        (changed(image=[[[1, 2, -1]]]), "image[0][0][2]", "is -1; it should be greater than or"),
        (changed(image=[[[0.5, 0.5, 1.0]]]), "image[0][0][0]", "is 0.5; it should be a valid int"),
        (changed(image=[[[1, 2, 10**30]]]), "image[0][0][2]", "be less than or equal to 255"),
        (changed(image=[[[1, 2, float("nan")]]]), "image[0][0][2]", "should be a valid integer"),
        (changed(image=json_numpy(PICTURE * 1.0)), "image", "type '<f8'"),
        (changed(image={"__numpy__": "AAAA"}), "image", "type None"),
        (
            changed(image={**json_numpy(PICTURE), "shape": [9, 9, 3]}),
            "image", "60 bytes; shape [9, 9, 3]",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_wrong_is_reported_by_its_name(
    body: bytes, field: str | None, message: str
) -> None:
    with pytest.raises((RefusedError, FieldError)) as raised:
        _ = parse(ActRequest, body).observation
    refusal = refusal_of(raised.value, "name")
    assert (refusal.status, refusal.field) == (400, field)
    assert message in refusal.text
    assert "\n" not in refusal.text


def test_answers_have_the_form_of_their_requests() -> None:
    single, two = np.arange(7.0)[None], np.arange(8.0).reshape(2, 4)
    assert write(single, as_numpy=False) == single[0].tolist()
    assert write(two, as_numpy=False) == two.tolist()
    np.testing.assert_array_equal(from_json_numpy(write(single, as_numpy=True)), single[0])
    arrays = write(two, as_numpy=True)
    assert [from_json_numpy(part).tolist() for part in arrays] == two.tolist()

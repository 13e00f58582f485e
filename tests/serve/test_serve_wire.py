"""Requests in every form that clients send, and what is wrong with others."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from serve.robots import body_of, from_json_numpy, json_numpy, npy, png, request
from sooner.serve.refusal import RefusedError
from sooner.serve.wire import parse, write
from tiny_policy import image

PICTURE = image(3, 5, 4)
FORMS = {
    "lists": PICTURE.tolist(),
    "floats": PICTURE.astype(float).tolist(),
    "png": png(PICTURE),
    "npy": npy(PICTURE),
    "url": "data:image/png;base64," + png(PICTURE),
    "json_numpy": json_numpy(PICTURE),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_encoded", [False, True])
def test_a_picture_arrives_in_every_form(form: str, is_encoded: bool) -> None:
    body: dict[str, Any] = request(image=FORMS[form], unnorm_key="table")
    parsed = parse(body_of({"encoded": json.dumps(body)} if is_encoded else body))
    np.testing.assert_array_equal(parsed.observation.image, PICTURE)
    assert parsed.observation.unnorm_key == "table"
    answer = "numpy" if form == "json_numpy" else "plain"
    assert parsed.form == ("encoded" if is_encoded else answer)
    assert (parsed.deadline_ms, parsed.details) == (None, False)


def changed(**fields: Any) -> bytes:
    body = request(image=PICTURE.tolist())
    body.update(fields)
    return body_of({name: value for name, value in body.items() if value is not ...})


@pytest.mark.parametrize(
    ("body", "status", "field", "message"),
    [
        (b"", 400, None, "the body is no JSON"),
        (b"{", 400, None, "the body is no JSON"),
        (b"\xff\xfe", 400, None, "the body is no JSON"),
        (b"[" * 200_000, 400, None, "the body is no JSON"),
        (b"[1]", 400, None, "the body is a list"),
        (b"null", 400, None, "the body is null"),
        (changed(image=...), 422, "image", "image is missing"),
        (changed(image=None), 422, "image", "image is missing"),
        (changed(instruction=...), 422, "instruction", "instruction is missing"),
        (changed(instruction=""), 422, "instruction", "instruction is empty"),
        (changed(instruction=["a"]), 422, "instruction", "instruction is a list"),
        (changed(unnorm_key=7), 422, "unnorm_key", "unnorm_key is 7"),
        (changed(imgae=1), 422, "imgae", "unknown field 'imgae' (did you mean 'image'?)"),
        (changed(deadline_ms="soon"), 422, "deadline_ms", "deadline_ms is 'soon'"),
        (changed(deadline_ms=0), 422, "deadline_ms", "above 0"),
        (changed(deadline_ms=True), 422, "deadline_ms", "deadline_ms is True"),
        (changed(details="yes"), 422, "details", "details is 'yes'"),
        (changed(image=5), 422, "image", "image is a number"),
        (changed(image=True), 422, "image", "image is a truth value"),
        (changed(image={"a": 1}), 422, "image", "image is an object"),
        (changed(image="hello!"), 422, "image", "no base64"),
        (changed(image="aGVsbG8="), 422, "image", "no PNG, JPEG, WebP or npy"),
        (changed(image=[]), 422, "image", "other things than numbers"),
        (changed(image=[["a"]]), 422, "image", "other things than numbers"),
        (changed(image=[[[1, 2, 3]], [[1, 2]]]), 422, "image", "rows of different length"),
        (changed(image=[[1, 2, 3]]), 422, "image", "shape [1, 3]"),
        (changed(image=[[[1, 2]]]), 422, "image", "shape [1, 1, 2]"),
        (changed(image=[[[1, 2, 256]]]), 422, "image", "image holds 256"),
        (changed(image=[[[1, 2, -1]]]), 422, "image", "image holds -1"),
        (changed(image=[[[0.5, 0.5, 1.0]]]), 422, "image", "image holds 0.5"),
        (changed(image=[[[1, 2, 10**30]]]), 422, "image", "image holds 1e+30"),
        (changed(image=[[[1, 2, 10**400]]]), 422, "image", "a number beyond 255"),
        (changed(image=[[[1, 2, float("nan")]]]), 400, None, "the body is no JSON: it has NaN"),
        (changed(image=json_numpy(PICTURE * 1.0)), 422, "image", "float64"),
        (changed(image={"__numpy__": "AAAA"}), 400, "image", "does not know"),
        (
            changed(image={**json_numpy(PICTURE), "shape": [9, 9, 3]}),
            422, "image", "60 bytes; shape [9, 9, 3]",
        ),
        (b'{"encoded": 3}', 422, "encoded", "must be a JSON text"),
        (b'{"encoded": "{}", "image": 1}', 422, "encoded", "the only field"),
        (b'{"encoded": "{"}', 400, None, "encoded is no JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_wrong_is_reported_by_its_name(
    body: bytes, status: int, field: str | None, message: str
) -> None:
    with pytest.raises(RefusedError) as raised:
        parse(body)
    assert (raised.value.status, raised.value.field) == (status, field)
    assert message in raised.value.text
    assert "\n" not in raised.value.text


def test_answers_have_the_form_of_their_requests() -> None:
    single, two = np.arange(7.0)[None], np.arange(8.0).reshape(2, 4)
    assert write(single, "plain") == single[0].tolist()
    assert write(two, "plain") == two.tolist()
    np.testing.assert_array_equal(from_json_numpy(write(single, "numpy")), single[0])
    assert [from_json_numpy(part).tolist() for part in write(two, "numpy")] == two.tolist()
    assert isinstance(write(single, "encoded"), str)
    np.testing.assert_array_equal(from_json_numpy(json.loads(write(single, "encoded"))), single[0])

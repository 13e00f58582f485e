"""`sooner serve --ray` on the command line: what is refused, in a line each."""

from __future__ import annotations

import pytest

from sooner.cli.main import main

pytest.importorskip("uvicorn")

AT = ("--ray", "--ray-address")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["serve", *arguments, "--port", "0"])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["miniature", "--replicas", "2"], "are of --ray; add it"),
        (["miniature", "--ray", "--replicas", "0"], "replicas is 0"),
        (["miniature", "--ray", "--replicas", "3", "--max-replicas", "2"], "max_replicas is 2"),
        (["miniature", "--ray", "--imbalanced-threshold", "0"], "imbalanced_threshold is 0"),
        (["miniature", "--ray", "--upscale-seconds", "-1"], "upscale_seconds is -1"),
        (["miniature", "--downscale-seconds", "9"], "are of --ray; add it"),
        (["miniature", "--ray-address", "auto"], "are of --ray; add it"),
        (["minature", "--ray"], "did you mean 'miniature'?"),
        (["./nosuch", "--ray"], "folder './nosuch' does not exist"),
        (["miniature", "--ray", "--head", "/no/head"], "folder '/no/head' does not exist"),
        (["--ray"], "name a model"),
    ],
)
def test_what_can_not_be_is_refused_before_ray_starts(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *arguments)


def test_a_cluster_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "miniature", *AT, "127.0.0.1:9", "--quiet")
    assert "no Ray cluster at '127.0.0.1:9'" in error


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "localhost:port", "[::1]", "127.0.0.1:70000", "ray://head:10001"]
)
def test_what_is_no_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "miniature", *AT, address, "--quiet")
    assert f"'{address}' is no address of a Ray cluster; give HOST:PORT" in error

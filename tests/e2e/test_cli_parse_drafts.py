"""`sooner parse` without a model: drafts are the result, and say that they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from commands import Run, records
from documents import layouts, paper

NOT_VERIFIED = "not verified by a model; name one with --model"


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return layouts.manual(tmp_path / "in" / "manual.pdf")


def page_json(out: Path, document: str, number: int = 1) -> dict[str, Any]:
    return json.loads((out / document / f"page-{number:04d}.json").read_text())


def test_a_text_layer_is_the_draft_and_is_labelled_so(
    run: Run, manual: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run("parse", manual, "-o", out)
    assert done.code == 0
    assert "loading models" not in done.err
    assert "manual.pdf page 1: DRAFT, " in done.err
    assert f"1 page is a draft: {NOT_VERIFIED}" in done.err
    (record,) = records(out)
    summary = {name: record[name] for name in ("status", "mode", "reason", "drafter", "tokens")}
    assert summary == {
        "status": "DRAFT", "mode": "draft", "reason": NOT_VERIFIED, "drafter": "text-layer",
        "tokens": 0,
    }  # fmt: skip
    page = page_json(out, "manual.pdf")
    assert (page["status"], page["mode"], page["reason"]) == ("DRAFT", "draft", NOT_VERIFIED)
    assert all(region["bbox"] and region["bbox_1000"] for region in page["regions"])
    assert json.loads((out / "manual.pdf.json").read_text())["status"] == "DRAFT"
    text = (out / "manual.pdf.md").read_text()
    assert text == page["markdown"]
    assert text.startswith("# A Manual of Wizardry\n\n")
    assert layouts.CODE in text


def test_wrong_places_and_parts_are_reported_in_a_line(
    run: Run, manual: Path, tmp_path: Path
) -> None:
    done = run("parse", manual, "-o", manual)
    assert done.code == 2
    assert done.errors == [
        f"sooner: output '{manual}' is a file; name a folder, it is made if need be"
    ]
    shards = [run("parse", manual, "-o", tmp_path / "out", "--shard", f"{n}/2") for n in (1, 2)]
    assert [shard.code for shard in shards] == [0, 0]
    idle = [n for n, shard in enumerate(shards, 1) if "0 of 0 pages parsed" in shard.err]
    assert len(idle) == 1
    message = f"shard {idle[0]}/2 has nothing to do: documents go by their places"
    assert [message in shard.err for shard in shards] == [n in idle for n in (1, 2)]


@pytest.mark.slow
def test_it_needs_no_torch(manual: Path, tmp_path: Path) -> None:
    """In a process of its own."""
    script = (
        "import sys\n"
        "from sooner.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(sorted({'torch', 'transformers', 'onnxruntime'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", script, "parse", str(manual), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_scans_and_pictures_are_drafted_by_ocr(run: Run, manual: Path, tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    from PIL import Image

    from sooner.documents import Page, read_pages

    folder = tmp_path / "scans"
    folder.mkdir()
    paper.scan(folder / "scan.pdf", manual)
    (page,) = read_pages(manual)
    assert isinstance(page, Page)
    Image.fromarray(page.picture).save(folder / "photo.png")
    out = tmp_path / "out"
    assert run("parse", folder, "-o", out).code == 0
    assert [record["status"] for record in records(out)] == ["DRAFT", "DRAFT"]
    for name in ("scan.pdf", "photo.png"):
        page_record = page_json(out, name)
        assert "Manual of Wizardry" in page_record["markdown"]
        assert page_record["regions"][0]["bbox"]
    drafters = {record["document"]: record["drafter"] for record in records(out)}
    assert drafters == {"photo.png": "ocr", "scan.pdf": "ocr"}


@pytest.mark.slow
def test_drafts_do_not_replace_what_a_model_verified(
    run: Run, manual: Path, tmp_path: Path, target_folder: Path
) -> None:
    """Unless they are asked for; the same command with the model then costs no model."""
    out = tmp_path / "out"
    model = ["--model", target_folder, "--max-new-tokens", 8, "--dpi", 36]
    assert run("parse", manual, "-o", out, *model).code == 0
    names = ("manual.pdf.md", "manual.pdf/page-0001.json", "manifest.jsonl")
    before = {name: (out / name).read_bytes() for name in names}
    refused = run("parse", manual, "-o", out)
    assert refused.code == 2
    (line,) = refused.errors
    assert "a model verified 'manual.pdf' in an earlier run" in line
    assert line.endswith("another folder with -o, or give --fresh")
    assert {name: (out / name).read_bytes() for name in names} == before
    assert "1 of 1 pages parsed" in run("parse", manual, "-o", out, "--fresh").err
    assert page_json(out, "manual.pdf")["status"] == "DRAFT"
    again = run("parse", manual, "-o", out, *model)
    assert "0 of 0 pages parsed, 1 done before" in again.err
    assert "loading models" not in again.err
    assert {name: (out / name).read_bytes() for name in names} == before


@pytest.mark.parametrize("options", [["--compare"], ["--drafter", "none"]])
def test_what_needs_a_model_is_refused(
    run: Run, manual: Path, tmp_path: Path, options: list[str]
) -> None:
    done = run("parse", manual, "-o", tmp_path / "out", *options)
    assert done.code == 2
    (line,) = done.errors
    assert line.endswith("name one with --model")

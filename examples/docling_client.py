"""docling turns PDFs into Markdown with the model behind `sooner serve`, several pages at once.

    sooner serve MODEL                                      # in one shell; MODEL reads pages
    pip install docling
    python examples/docling_client.py paper.pdf -o out/     # in another

Pages that docling asks for together are decoded in one batch, so `--pages` up to the server's
`--max-rows` costs little. `sooner serve miniature:document` needs no download, but reads pages of
its own world alone; those are 512 x 640 points, `--scale 1`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from docling.datamodel.base_models import ConversionStatus, InputFormat
from docling.datamodel.pipeline_options import VlmPipelineOptions
from docling.datamodel.pipeline_options_vlm_model import ApiVlmOptions, ResponseFormat
from docling.datamodel.settings import settings
from docling.document_converter import DocumentConverter, PdfFormatOption
from docling.pipeline.vlm_pipeline import VlmPipeline

READ = (ConversionStatus.SUCCESS, ConversionStatus.PARTIAL_SUCCESS)
"""The second one is that of a page that was cut at `--max-tokens`, or refused by the server."""


def converter_of(given: argparse.Namespace) -> DocumentConverter:
    """A converter whose pages the server reads."""
    settings.perf.page_batch_size = given.pages  # docling asks for one batch after the other
    params = {"max_tokens": given.max_tokens} if given.max_tokens else {}
    options = VlmPipelineOptions(
        enable_remote_services=True,  # docling's word for any address, this machine's too
        vlm_options=ApiVlmOptions(
            url=f"{given.url.rstrip('/')}/v1/chat/completions",
            headers={"Authorization": f"Bearer {given.token}"} if given.token else {},
            params=params,
            prompt=given.prompt,
            scale=given.scale,
            timeout=given.timeout,
            concurrency=given.pages,
            response_format=ResponseFormat.MARKDOWN,
        ),
    )
    pdf = PdfFormatOption(pipeline_cls=VlmPipeline, pipeline_options=options)
    return DocumentConverter(format_options={InputFormat.PDF: pdf})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="PDF")
    parser.add_argument("-o", "--out", type=Path, default=Path("out"))
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", help="if the server wants one")
    parser.add_argument("--prompt", default="Convert this page to Markdown.")
    parser.add_argument("--scale", type=float, default=2.0, help="pixels of a page by its points")
    parser.add_argument("--max-tokens", type=int, help="of a page; by default what the model has")
    parser.add_argument("--pages", type=int, default=4, help="pages that are asked for together")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of a page")
    given = parser.parse_args()

    converter = converter_of(given)
    given.out.mkdir(parents=True, exist_ok=True)
    for done in converter.convert_all(given.files, raises_on_error=False):
        told = f"{done.input.file}: {done.status.value}, {len(done.pages)} pages"
        if done.status in READ:
            target = given.out / f"{done.input.file.stem}.md"
            target.write_text(done.document.export_to_markdown(), encoding="utf-8")
            told += f", {target}"
        print(told)


if __name__ == "__main__":
    main()

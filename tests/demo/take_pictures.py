"""The pictures of docs/demo.md: `make demo-pictures` (needs gradio, playwright, Chromium).

An animation of the race, and one screenshot of each tab, on a desk and on a phone.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from test_demo_page import CHROMIUM, Server, Visit

FRAMES, SECONDS = 26, 0.35
TABS = ("Document", "Picture")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as log, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        server = Server(Path(log))
        try:
            _race(Visit(browser, server.url, 1100), folder / "race.webp")
            for tab in TABS:
                _tab(Visit(browser, server.url, 1100), tab, folder)
            phone = Visit(browser, server.url, 390, "dark")
            phone.panel().get_by_role("button", name="To the end").click()
            _save(phone.page.screenshot(), folder / "phone.webp", 390)
        finally:
            server.end()
            browser.close()


def _race(visit: Visit, path: Path) -> None:
    """The replay at even moments, and what follows it, as one animation."""
    panel, pictures = visit.panel(), []
    slider = panel.locator("input[aria-label='Time of the replay']")
    box = panel.locator(".sooner").first.bounding_box()
    clip = {"x": box["x"], "y": box["y"], "width": box["width"], "height": 760}
    for frame in range(FRAMES):
        slider.evaluate(
            "(one, at) => { one.value = at; one.dispatchEvent(new Event('input')); }",
            round(1000 * frame / (FRAMES - 1)),
        )
        shot = visit.page.screenshot(clip=clip, full_page=True)
        pictures.append(_picture(shot, 660))
    times = [int(1000 * SECONDS)] * (FRAMES - 1) + [3000]
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=times, loop=0, quality=32,
        method=6, minimize_size=True,
    )  # fmt: skip


def _tab(visit: Visit, tab: str, folder: Path) -> None:
    visit.page.get_by_role("tab", name=tab).click()
    visit.run(120)
    visit.page.wait_for_timeout(12_000 if tab == "Picture" else 1_000)
    shot = visit.panel().locator(".sooner").first.screenshot()
    _save(shot, folder / f"{tab.lower().replace(' ', '-')}.webp", 820)


def _picture(shot: bytes, width: int) -> Image.Image:
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    return picture.resize((width, round(picture.height * width / picture.width)))


def _save(shot: bytes, path: Path, width: int) -> None:
    _picture(shot, width).save(path, quality=60, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/demo"))

"""The document miniature: a world of pages and a small Qwen3-VL that reads them as Markdown."""

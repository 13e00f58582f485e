"""`sooner bench pages`: HSD on real logits, of a model that writes pages as Markdown."""

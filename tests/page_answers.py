"""Pages as models write them, for tests of what reads their answers."""

from __future__ import annotations

from itertools import pairwise

from sooner.documents import PageDraft
from sooner.documents.forms import PageForm
from sooner.documents.regions import Size


def page_text(form: PageForm, draft: PageDraft, seen: Size | None = None) -> str:
    """A page of first drafts as a model writes it; regions without a text in it are left out."""
    candidates = [(entry, form.texts(entry, draft.size, seen)[:1]) for entry in draft.regions]
    pairs = [(region, texts[0]) for region, texts in candidates if texts]
    if not pairs:
        return ""
    ends = [form.between(a, b) for (a, _), (b, _) in pairwise(pairs)]
    ends.append(form.end(pairs[-1][0]))
    texts = (text + end for (_, text), end in zip(pairs, ends, strict=True))
    return form.start(pairs[0][0]) + "".join(texts)

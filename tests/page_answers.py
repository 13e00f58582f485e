"""Pages as models write them, for tests of what reads their answers."""

from __future__ import annotations

from itertools import pairwise

from sooner.documents import PageDraft
from sooner.documents.forms import PageForm
from sooner.documents.regions import Size


def page_text(form: PageForm, draft: PageDraft, seen: Size | None = None) -> str:
    """A page of first drafts as a model writes it; regions without a text in it are left out."""
    found = [(one, form.texts(one, draft.size, seen)[:1]) for one in draft.regions]
    kept = [(region, texts[0]) for region, texts in found if texts]
    if not kept:
        return ""
    ends = [form.between(a, b) for (a, _), (b, _) in pairwise(kept)]
    ends.append(form.end(kept[-1][0]))
    texts = (text + end for (_, text), end in zip(kept, ends, strict=True))
    return form.start(kept[0][0]) + "".join(texts)

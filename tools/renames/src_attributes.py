# ruff: noqa
"""Attributes that need different names on different classes, which a table cannot say.

usage, from the root of the tree: python tools/renames/src_attributes.py pre|post [--write]

`pre` runs before `rename.py apply` (attributes and fields only, so that no scope is renamed),
`post` after it (methods, texts in quotes that name a renamed parameter or field). Prints what found
nothing.
"""

import re
import sys
from pathlib import Path

phase, write = sys.argv[1], "--write" in sys.argv
texts: dict[str, str] = {}
made: set[tuple[str, str]] = set()
S = "src/sooner/"


def edit(file, pattern, new, label):
    path = file if file.startswith(("tests/", "lab/", "src/")) else S + file
    if path not in texts:
        if not Path(path).exists():
            print("no file", path)
            return
        texts[path] = Path(path).read_text()
    texts[path], count = re.subn(pattern, new, texts[path], flags=re.M)
    if not count:
        print(f"nothing: {path}: {label}")


def attr(files, old, new):
    """`.old` and, where a class has it, the field, the method and its line under `Attributes:`."""
    for file in files.split():
        path = file if file.startswith(("tests/", "lab/")) else S + file
        before = texts.get(path) or (Path(path).read_text() if Path(path).exists() else "")
        if (
            re.search(rf"(?<=[\w\])])\.{new}\b|^    {new}: ", before, re.M)
            and (path, new) not in made
        ):
            print(f"there already: {path}: {new}")
        made.add((path, new))
        edit(
            file,
            rf"(?<=[\w\])])\.{old}\b|\bdef {old}\b(?=\()|^    {old}(?=: [^\n]*[^,\n]$)"
            rf"|^        {old}(?=: [a-z`][a-z` ,'-]* [a-z`])|`{old}`",
            lambda m: m[0].replace(old, new),
            f"{old} -> {new}",
        )


def dot(files, old, new):
    """`.old` alone."""
    for file in files.split():
        edit(file, rf"(?<=[\w\])])\.{old}\b", f".{new}", f"{old} -> {new}")


def word(files, old, new):
    """The whole word, wherever it stands."""
    for file in files.split():
        path = file if file.startswith(("tests/", "lab/")) else S + file
        if (path, new) not in made and re.search(rf"\b{new}\b", Path(path).read_text()):
            print(f"there already: {path}: {new}")
        made.add((path, new))
        edit(file, rf"\b{old}\b", new, f"{old} -> {new}")


def text(files, old, new):
    """A literal text."""
    for file in files.split():
        edit(file, re.escape(old), new.replace("\\", r"\\"), f"{old} -> {new}")


if phase == "pre":
    attr("tasks/streaming.py", "told", "sent")
    attr("serve/openai/usage.py", "told", "sent_tokens")
    attr("serve/held.py", "told", "reported_at")
    text("serve/engine_loop.py", "held.told", "held.reported_at")
    text("serve/engine_loop.py", "told=job.arrived", "reported_at=job.arrived")
    attr("serve/engine_options.py", "said", "generated")
    text("tasks/imagine/loading.py", "asked.trust", "asked.remote_code")
    text("tasks/imagine/loading.py", "    trust: bool\n", "    remote_code: bool\n")
    attr("methods/parallel/method.py", "least", "min_visual")
    text(
        "methods/parallel/method.py hub/repositories.py tests/methods/parallel_runs.py tests/methods/test_parallel.py",
        '"least"',
        '"min_visual"',
    )
    text("tests/methods/test_parallel.py", "least is -1", "min_visual is -1")
    for path in [*Path("tests").rglob("*.py"), *Path("lab").rglob("*.py")]:
        if re.search(r"\bleast=0\b", path.read_text()):
            edit(str(path), r"\bleast=0\b", "min_visual=0", "least=0")
    word("storage/leases.py tests/storage/test_leases.py", "_held", "_leases")
    word("serve/media/reader.py serve/media/processed.py", "_held", "_items")
    word("ray/rows.py", "_held", "_stack")
    word("tasks/parse/concurrent.py tasks/parse/drafting.py", "_given", "_drafted")
    word("serve/media/reader.py methods/dflash/tree.py", "_kept", "_cache")
    word("demo/jobs.py", "_kept", "_recent")
    word("memory/manager.py", "_kept", "_cached_pages")
    text("tests/serve/test_real_schedules.py", "memory._kept", "memory._cached_pages")
    attr("graphs/forwards.py", "behind", "offset")
    attr("documents/forms/doctags.py", "found", "entries")
    attr("methods/chain_draft.py", "found", "lookup")
    attr("io.py", "found", "records")
    dot("tests/unit/test_io.py", "found", "records")
    text("tasks/records.py", "_file.found", "_file.records")
    text("lab/src/sooner_lab/bench/parallel/book.py", "file.found", "file.records")
    attr("serve/openai/text.py", "found", "stop")
    text("serve/openai/choice.py", "_stops.found", "_stops.stop")
    text("tests/serve/test_openai_text.py", "stream.found", "stream.stop")
    attr("methods/tree_draft.py", "given", "probs")
    attr(
        "decoding/grid.py tasks/imagine/progress.py tasks/imagine/video_tokenizer.py",
        "given",
        "prefix",
    )
    text(
        "tasks/imagine/video_tokenizer.py models/cosmos_ar/canvas.py tests/methods/test_jacobi_distributions.py",
        "given=",
        "prefix=",
    )
    text("tests/models/test_canvas.py", 'r"given=3', 'r"prefix=3')
    text("tests/unit/test_grid.py", '"given":', '"prefix":')
    text("tests/tiny_canvas.py", '"given": 1', '"prefix": 1')
    text("tasks/imagine/drawing_model.py", '"given": latents', '"prefix": latents')
    text(
        "drawing.py models/cosmos_ar/canvas.py tasks/imagine/batch.py tasks/imagine/comparison.py tasks/imagine/job.py "
        "lab/src/sooner_lab/bench/imagine/story.py lab/src/sooner_lab/bench/imagine/quality.py "
        "tests/unit/test_grid.py tests/models/test_canvas.py tests/fake_models.py",
        "grid.given",
        "grid.prefix",
    )
    text("tasks/imagine/drawing_model.py", "video_tokenizer.given", "video_tokenizer.prefix")
    attr("tasks/parse/regions.py", "heard", "texts")
    text("tasks/parse/drafting.py", "verified.heard", "verified.texts")
    attr("serve/bodies.py", "held", "in_use")
    text("tests/serve/test_serve_limits.py", "bodies.held", "bodies.in_use")
    attr("methods/parallel/standing.py methods/parallel/spawned.py", "held", "processes")
    text("tests/serve/test_serve_parallel.py", "_standing.held", "_standing.processes")
    dot(
        "tests/methods/test_spawned_draft.py tests/methods/spawned_drafts.py tests/methods/test_standing_draft.py",
        "held",
        "processes",
    )
    attr("tasks/train_draft/blocks.py", "held", "hits")
    attr("graphs/recorder.py", "held", "buffers")
    attr("memory/row_pages.py", "kept", "cached")
    attr("methods/parallel/mailbox.py", "kept", "tokens")
    attr("serve/media/processed.py", "kept", "max_bytes")
    attr("sparse/attention/cpu/canvas.py", "kept", "last_mask")
    attr("decoding/stopping.py methods/sharded.py", "others", "criteria")
    attr(
        "methods/context.py methods/base.py methods/chain_draft.py memory/batch_slots.py",
        "own",
        "output_ids",
    )
    text("methods/base.py", "            own=own,", "            output_ids=own,")
    attr("methods/sharded.py", "own", "inner")
    attr("tasks/parse/page_source.py", "own", "numbers")
    text("tasks/parse/job.py", "source.own", "source.numbers")
    attr("tasks/train_draft/losses.py", "own", "steps")
    attr("serve/media/processed.py", "shown", "media_keys")
    text("serve/openai/prompts.py", "processed.shown", "processed.media_keys")
    attr("tasks/parse/finishing.py", "shown", "versions")
    attr("tasks/train_draft/log.py", "shown", "visible")
    text("tasks/train_draft/trainer.py", "log.shown", "log.visible")
    text("request.py prefilling.py engine.py", ".shown", ".prompt_info")
    text("request.py", "    shown: PromptInfo", "    prompt_info: PromptInfo")
    attr(
        "tasks/train_draft/blocks.py tasks/train_draft/dataset.py tasks/train_draft/losses.py",
        "wanted",
        "targets",
    )
    text("tasks/train_draft/dataset.py", "wanted=states", "targets=states")
    text("tests/tasks/test_train_dflash.py", "batch.wanted", "batch.targets")
    attr("methods/target_layers.py", "asked", "tap_layers")
    text("graphs/store.py", '"asked", ()', '"tap_layers", ()')
    attr("ray/exchange.py", "asked", "request")
    attr("serve/openai/answering.py", "asked", "choices")
    text("serve/openai/stream.py serve/openai/routes.py", "answering.asked", "answering.choices")
    word("methods/target_layers.py", "_asked", "_by_layer")
    word("tasks/parse/regions.py", "_asked", "_lengths")
    word("methods/sizing/pauses.py", "_said", "_extent")
    word("decoding/sampling.py", "_said", "_generated")
    word("ray/exchange.py", "_said", "_parts")
    word("ray/exchange.py", "_taken", "_drained")
    word("tasks/parse/sharing.py", "_taken", "_claimed")
    word("tasks/streaming.py", "_shown", "_sent_tokens")
    word("cli/live.py", "_told", "_mark")
    word("serve/openai/text.py", "_told", "_sent")
    word("stats/timing.py", "_told", "_listeners")
    word("methods/parallel/method.py", "_own", "_started")
    word("serve/media/processed.py", "_own", "_processor")
    word("methods/eagle/runner.py", "_own", "_self_masks")
    word("memory/batch_slots.py", "_beside", "_batch")
else:
    word("memory/batch_slots.py", "_kept", "_reused")
    word("decoding/stopping.py", "_asked", "_wants_stop")
    word("ray/front.py", "_asked", "_ask")
    word("methods/jacobi/drafter.py", "_said", "_outputs")
    word("serve/openai/forms.py", "_shown", "_visible")
    word("engine.py", "_told", "_explained")
    word("ray/parser.py", "_told", "_report")
    word("sparse/compression/families.py", "_told", "_input")
    word("tasks/parse/concurrent.py", "_told", "_on_done")
    word("decoding/rows.py", "_others", "_joined_parts")
    word("decoding/sampling.py", "_one", "_processed")
    word("tasks/train_draft/trainer.py", "_one", "_train_step")
    word("cli/caption.py", "_found", "_videos")
    word("methods/aligned/alignment.py", "_found", "_matches")
    word("tasks/parse/finishing.py", "_found", "_done_pages")
    attr("decoding/sampling.py", "asked", "params_of")
    text("decoding/loop.py methods/forbidden.py", "processing.asked(", "processing.params_of(")
    text("tests/unit/test_aligned_idle.py", "SimpleNamespace(asked=", "SimpleNamespace(params_of=")
    attr("serve/openai/planning.py", "asked", "plan")
    text("serve/openai/routes.py", "_planner.asked(", "_planner.plan(")
    attr("methods/found_drafts.py methods/chain_draft.py", "beside", "merge_into")
    attr("tasks/parse/result.py", "found", "add_pages")
    text("tasks/parse/page_source.py tasks/parse/job.py", "counts.found(", "counts.add_pages(")
    attr("methods/settings.py", "given", "explicit")
    text(
        "methods/prompt_lookup.py methods/parallel/method.py methods/specvlm.py methods/sparse_to_dense.py",
        "settings.given(",
        "settings.explicit(",
    )
    attr("tasks/imagine/batch.py", "given", "prefix")
    for path in sorted(Path("src/sooner").rglob("*.py")):
        if re.search(r"(?<=[\w\])])\.held\b|\bdef held\(", path.read_text()):
            attr(str(path.relative_to("src/sooner")), "held", "buffers")
    attr("sparse/search/sidecar.py", "kept", "count")
    dot("tests/sparse/test_sparse_search.py", "kept", "count")
    attr("tasks/parse/sharing.py", "kept", "note_saved")
    text("tasks/parse/job.py", "claims.kept(", "claims.note_saved(")
    attr("tasks/parse/crops.py", "own", "length")
    attr("sparse/prefill/hooks.py", "passage", "state")
    attr("methods/parallel/wakeup.py methods/parallel/worker.py", "say", "send")
    text("ray/parser.py", "def taken(", "def acquire(")
    text("ray/parser.py", "_turns.taken(", "_turns.acquire(")
    # Texts that name a parameter or a field that the table renamed.
    text("ray/serving.py", '"told"', '"report"')
    text("ray/pipeline.py", '"told_of"', '"notes_of"')
    text("cli/imagine_jobs.py", 'pop("trust_code")', 'pop("remote_code")')
    text("prefilling.py", 'pop("said"', 'pop("generated"')
    text("engine.py", 'get("said"', 'get("generated"')
    text("generation.py", '"said": len(', '"generated": len(')
    text("generation.py", "said= is for one row", "generated= is for one row")
    text("tests/methods/test_interrupted.py", "said=before", "generated=before")
    text("tests/models/test_length_rope.py", "said=tuple(", "generated=tuple(")
    text("tests/serve/test_kv_memory.py", '(module, "KEPT",', '(module, "CACHE_FACTOR",')
    text("tasks/loading.py", '"one_line"', '"error_line"')
    text("tasks/loading.py", '"told_config"', '"config_dict"')
    text("tasks/loading.py", '"told_type"', '"config_type"')
    text("methods/sized_draft.py", 'TypeVar("Heard"', 'TypeVar("Prompts"')

if write:
    for path, content in texts.items():
        Path(path).write_text(content)
print(f"{len(texts)} files")

"""Trains the needle miniature: `python -m sooner_lab.worlds.needle.train FOLDER`.

The vision tower of a LLaVA-OneVision learns to name what a token shows. Then the three decoder
layers learn on ever longer clips, made of frames whose features are computed once. Many questions
about a clip, as turns of one conversation, make each clip count. Behind the second layer, a needle
tells its colour, letter and number, and a question its colour; without this nothing is learnt but
to name any letter. Tokens are placed further apart than they are, so that long distances are known
before long clips are seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from sooner import miniatures

from ...needles import reader, run
from . import world
from .task import KINDS, LetterTask

SEED = 11
LAYERS, WIDTH, PATCH = 3, 128, 8
VIDEO, ASSISTANT, IGNORED = 5, 53, -100
"""Tokens, and the label of those that predict nothing."""
COLOUR = 6
"""Tokens from a question's colour to the answer's role."""
TOWER, FRAMES = 300, 128
"""Steps of the vision tower, and frames of each."""
SIZE = 0.3
"""Root mean square of a feature."""
FAR = 9000
"""Greatest position that a token gets in training."""
VARIANTS, PLAIN = 6, 1200
"""Frames that are drawn of each colour and letter, and of noise alone."""
EVERY, SAVED = 20, 100
"""Steps between lines of the log, and between checkpoints."""
CHECKED = (1024, 4096)
"""Lengths at which the card says how often answers are right."""


@dataclass(frozen=True)
class Stage:
    """Steps with clips of the same kind.

    Attributes:
        frames: fewest and most of a clip.
        lr: constant; in the last stage it falls to zero.
        tokens: of a step, about.
        twins: greatest number of colours with two needles.
        mixed: share of steps in which captions stand between pieces of a clip.
    """

    steps: int
    frames: tuple[int, int]
    lr: float
    tokens: int = 4096
    twins: int = 3
    mixed: float = 0.3


STAGES = (
    Stage(300, (3, 6), 1e-3, twins=0, mixed=0.0),
    Stage(700, (4, 24), 1e-3),
    Stage(300, (12, 64), 8e-4),
    Stage(120, (48, 160), 5e-4),
    Stage(40, (128, 512), 3e-4, 8192),
)


def build_model() -> Any:
    """Return a new model; its weights come from torch's global generator."""
    text = Qwen2Config(
        vocab_size=176, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16_384,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7}, bos_token_id=None,
        eos_token_id=3, pad_token_id=0, tie_word_embeddings=False, initializer_range=0.05,
    )  # fmt: skip
    vision = SiglipVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
        image_size=world.SIDE, patch_size=PATCH, vision_use_head=False,
    )  # fmt: skip
    config = LlavaOnevisionConfig(
        vision_config=vision, text_config=text, image_token_index=4, video_token_index=VIDEO,
        image_grid_pinpoints=[[world.SIDE] * 2], tie_word_embeddings=False,
    )  # fmt: skip
    model = LlavaOnevisionForConditionalGeneration(config)
    generation = model.generation_config
    generation.eos_token_id, generation.pad_token_id, generation.do_sample = 3, 0, False
    return model


def build_processor() -> Any:
    """Return the video miniature's processor at this one's sizes; they share their words."""
    processor = AutoProcessor.from_pretrained(miniatures.find("video").target)
    for part in (processor.image_processor, processor.video_processor):
        part.size = {"height": world.SIDE, "width": world.SIDE}
    processor.image_processor.image_grid_pinpoints = [[world.SIDE] * 2]
    processor.video_processor.do_sample_frames = False
    processor.num_image_tokens = (world.SIDE // PATCH) ** 2
    processor.tokenizer.model_max_length = 16_384
    return processor


def embed_frames(model: Any, pixels: np.ndarray) -> Tensor:
    """Return visual tokens `[frames, TOKENS, width]` of `pixels [frames, side, side, 3]`."""
    frames = torch.from_numpy(pixels).permute(0, 3, 1, 2)[None].float() / 127.5 - 1
    features = model.get_video_features(
        frames, vision_feature_layer=-1, vision_feature_select_strategy="full"
    )
    return features.pooler_output[0, :-1].unflatten(0, (len(pixels), -1))


def train_tower(model: Any, rng: np.random.Generator) -> None:
    """Train the vision tower and the projector to name what each token shows."""
    noise = len(world.COLOURS) + len(world.LETTERS)
    head, inner, right = nn.Linear(WIDTH, noise + 1), model.model, 0.0
    parts = nn.ModuleList([head, inner.vision_tower, inner.multi_modal_projector])
    optimizer = torch.optim.AdamW(parts.parameters(), 2e-3)
    for step in range(1, TOWER + 1):
        shown = [rng.integers(-1, len(each), FRAMES) for each in (world.COLOURS, world.LETTERS)]
        pixels, labels = world.draw(rng, *shown)
        names = torch.from_numpy(labels).flatten()
        logits = head(embed_frames(model, pixels)).flatten(0, 1)
        optimizer.zero_grad()
        cross_entropy(logits, names).backward()
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - (step - 1) / TOWER)
        optimizer.step()
        right += float((logits.argmax(-1) == names)[names < noise].float().mean()) / EVERY
        if step % EVERY == 0:
            print(f"tower {step}, right {right:.3f}", flush=True)
            right = 0.0
    # Features as large as the decoder's first outputs: it learns nothing beside larger ones.
    with torch.no_grad():
        size = embed_frames(model, pixels).square().mean().sqrt()
        for weights in inner.multi_modal_projector.linear_2.parameters():
            weights *= SIZE / size


class Writer:
    """Draws batches from frames of each colour and letter with their `features [frames, TOKENS,
    width]`, which are computed once."""

    @torch.no_grad()
    def __init__(self, model: Any, vocabulary: dict[str, int], rng: np.random.Generator) -> None:
        self.vocabulary, self.letters = vocabulary, len(world.LETTERS) + 1
        self.colours, self.numbers, self.names = (
            np.array([vocabulary[word] for word in words])
            for words in (world.COLOURS, world.NUMBERS, world.LETTERS)
        )
        kinds = np.arange((len(world.COLOURS) + 1) * self.letters)
        self.counts = np.where(kinds == 0, PLAIN, VARIANTS)
        self.first = self.counts.cumsum() - self.counts
        colours, letters = np.divmod(kinds.repeat(self.counts), self.letters)
        pixels, shown = world.draw(rng, colours - 1, letters - 1)
        parts = [embed_frames(model, part) for part in np.array_split(pixels, 8)]
        self.features = torch.cat(parts)
        is_letter = (shown >= len(world.COLOURS)) & (shown < shown.max())
        self.places = is_letter.argmax(1)  # [frames], of the letter's token

    def write(self, rng: np.random.Generator, stage: Stage) -> tuple[Tensor, Tensor, Tensor]:
        """Return `ids [rows, width]` with a placeholder for each visual token, `labels [3, rows,
        width]` of the last layer and two of the second one, and visual tokens' features `[rows,
        pieces, tokens, width]`."""
        least, most = stage.frames
        count = int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))
        keys = int(rng.integers(1, min(8, count) + 1))
        twins = int(rng.integers(min(stage.twins, keys, count - keys) + 1))
        pieces, gap = 1, 0
        if rng.random() < stage.mixed:
            pieces = int(rng.choice([size for size in range(2, count + 1) if count % size == 0]))
            gap = max(1, round(count * world.TOKENS / 3 / world.CAPTION / pieces))
        rows = max(stage.tokens // ((count + keys) * world.TOKENS + 10 * gap * pieces), 1)
        film = "<video> " * (count // pieces * world.TOKENS + 1)
        frames, texts, taught = [], [], np.full((2, rows, count, world.TOKENS), IGNORED)
        for row in range(rows):
            clip = world.sample_clip(rng, count, keys, twins)
            kinds = (clip.colours + 1) * self.letters + clip.letters + 1
            frames.append(self.first[kinds] + rng.integers(self.counts[kinds]))
            needles = np.flatnonzero(clip.numbers != world.NONE)
            places = self.places[frames[-1][needles]]
            taught[0, row, needles, places] = self.colours[clip.colours[needles]]
            taught[1, row, needles, places] = self.names[clip.letters[needles]]
            taught[0, row, needles, -1] = self.numbers[clip.numbers[needles]]
            text = film + "".join(f"{world.captions(rng, gap)} {film}" for _ in range(pieces - 1))
            turns = (
                f"{ask.question} <|im_end|> <|im_start|> assistant {ask.answer} <|im_end|>"
                for ask in rng.permutation(np.array(clip.asks))
            )
            texts.append(f"<|im_start|> user {text}" + " <|im_start|> user ".join(turns))
        ids = torch.tensor([[self.vocabulary[word] for word in text.split()] for text in texts])
        labels = torch.full((3, *ids.shape), IGNORED)
        visual = torch.from_numpy(taught).unflatten(2, (pieces, -1)).flatten(3)
        visual = nn.functional.pad(visual, (0, 1), value=IGNORED)  # of newlines
        labels[1:, ids == VIDEO] = visual.flatten(1)
        for place in (ids[0] == ASSISTANT).nonzero()[:, 0].tolist():
            labels[0, :, place : place + 2] = ids[:, place + 1 : place + 3]
            labels[1, :, place] = ids[:, place - COLOUR]
        features = self.features[np.stack(frames)].unflatten(1, (pieces, -1)).flatten(2, 3)
        return ids, labels, features


def predict(
    model: Any, ids: Tensor, labels: Tensor, features: Tensor, positions: Tensor
) -> tuple[Tensor, float]:
    """Return the loss, and the share of right answers."""
    inner = model.model
    newline = inner.image_newline.expand(*features.shape[:2], 1, -1)
    embeds = inner.get_input_embeddings()(ids)
    embeds = embeds.masked_scatter((ids == VIDEO)[..., None], torch.cat([features, newline], 2))
    decoder, states = inner.language_model, []
    hook = decoder.layers[1].register_forward_hook(lambda *call: states.append(call[-1]))
    with hook, torch.autocast("cpu", dtype=torch.bfloat16):
        last = decoder(
            inputs_embeds=embeds,
            attention_mask=torch.ones_like(ids),  # else gaps would mean packed sequences
            position_ids=positions[None],
            use_cache=False,
        )[0]
    early = decoder.norm(states[0])
    hidden = torch.stack([last, early, early])
    picked = labels != IGNORED
    logits = model.lm_head(hidden[picked].float())
    right = (logits.argmax(-1) == labels[picked])[: picked[0].sum() : 2]
    return cross_entropy(logits, labels[picked]), float(right.float().mean())


def spread(rng: np.random.Generator, width: int, starts: np.ndarray) -> Tensor:
    """Return positions `[width]`, in half of all steps with gaps in front of some of `starts`."""
    steps = np.ones(width, int)
    steps[0] = 0
    if rng.random() < 0.5 and width < FAR:
        total = int(np.exp(rng.uniform(0, np.log(FAR - width))))  # short ones are learnt first
        steps[rng.choice(starts, 6)] += rng.multinomial(total, [1 / 6] * 6)
    return torch.from_numpy(steps.cumsum())


def train(folder: Path, stages: tuple[Stage, ...] = STAGES, seed: int = SEED) -> None:
    """Train, go on from the last checkpoint in `folder` if there is one, and write the model."""
    torch.manual_seed(seed)
    model, processor = build_model(), build_processor()
    state, step, seconds = folder / "checkpoint.pt", 0, 0.0
    if not state.exists():
        train_tower(model, np.random.default_rng([seed, 2]))
    optimizer = torch.optim.AdamW(model.parameters(), 0.0, (0.9, 0.98), weight_decay=0.01)
    if state.exists():
        known = torch.load(state)
        model.load_state_dict(known["model"])
        optimizer.load_state_dict(known["optimizer"])
        step, seconds = known["step"], known["seconds"]
    vocabulary = processor.tokenizer.get_vocab()
    writer = Writer(model, vocabulary, np.random.default_rng([seed, 0]))
    ends, began, right = np.cumsum([each.steps for each in stages]), time.perf_counter(), 0.0
    while step < ends[-1]:
        if step % SAVED == 0:
            folder.mkdir(parents=True, exist_ok=True)
            known = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            spent = seconds + time.perf_counter() - began
            torch.save({**known, "step": step, "seconds": spent}, state)
        stage = stages[int(np.searchsorted(ends, step, side="right"))]
        share = min(1.0, (ends[-1] - step) / stages[-1].steps, (step + 1) / 100)
        optimizer.param_groups[0]["lr"] = share * stage.lr
        rng = np.random.default_rng([seed, 1, step])
        ids, labels, features = writer.write(rng, stage)
        video = (ids[0] == VIDEO).nonzero().view(features.shape[1], -1)
        starts = video[:, : -1 : world.TOKENS].flatten().numpy()  # of frames
        positions = spread(rng, ids.shape[1], starts)
        loss, share_right = predict(model, ids, labels, features, positions)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        right += share_right / EVERY
        if step % EVERY == 0:
            spent = seconds + time.perf_counter() - began
            far = int(positions[-1])
            print(
                f"{step}, {spent:.0f} s, far {far}, loss {loss:.3f}, right {right:.3f}", flush=True
            )
            right = 0.0
    recipe = {"seed": seed, "stages": [asdict(each) for each in stages]}
    save(model, processor, folder / "target", {"training_seconds": round(spent), "recipe": recipe})


def save(model: Any, processor: Any, folder: Path, card: dict[str, Any]) -> None:
    """Write the checkpoint in half precision, with its card."""
    model.half().save_pretrained(folder)
    processor.save_pretrained(folder)
    model, without = model.float().eval(), []
    for layer in model.model.language_model.layers:
        with layer.register_forward_hook(lambda layer, args, output: args[0]):
            without.append(accuracy(model, processor, KINDS[0], CHECKED[:1]))
    card |= {
        "parameters": sum(each.numel() for each in model.parameters()),
        "layers": LAYERS, "trained_layers": LAYERS,
        "accuracy": {kind: accuracy(model, processor, kind, CHECKED) for kind in KINDS},
        "accuracy_without_layer": without,
    }  # fmt: skip
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")


def accuracy(
    model: Any, processor: Any, kind: str, lengths: Sequence[int], seeds: Sequence[int] = range(4)
) -> dict[str, float]:
    """Return the share of right answers by length, over depths and seeds."""
    answer, depths = reader(model, processor, max_new_tokens=2), (0.0, 0.25, 0.5, 0.75, 1.0)
    grid = run(LetterTask(processor, kind), answer, lengths, depths, seeds)
    return dict(zip(map(str, lengths), grid.accuracy.mean(1).tolist(), strict=True))


if __name__ == "__main__":
    train(Path(sys.argv[1]))

"""SmolVLM2's folders as published, with tiny widths: `config.json` and the processor's files by
their names and keys, the towers' image, patches and pixel shuffle, and the ids of all marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, GenerationConfig, SmolVLMForConditionalGeneration

VOCAB, WORDS, IMAGE, END, VIEW_TOKENS = 49_280, 49_152, 49_190, 49_279, 64
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
PROCESSOR: dict[str, Any] = {"image_seq_len": VIEW_TOKENS, "processor_class": "SmolVLMProcessor"}
PREPROCESSOR: dict[str, Any] = {
    "do_convert_rgb": True, "do_image_splitting": True, "do_normalize": True, "do_pad": True,
    "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "SmolVLMImageProcessor", "image_std": [0.5, 0.5, 0.5],
    "max_image_size": {"longest_edge": 512}, "processor_class": "SmolVLMProcessor", "resample": 1,
    "rescale_factor": 0.00392156862745098, "size": {"longest_edge": 2048},
    "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 512}},
}  # fmt: skip
MARKS = {
    "end_of_utterance_token": "<end_of_utterance>", "fake_image_token": "<fake_token_around_image>",
    "global_image_token": "<global-img>", "image_token": "<image>",
}  # fmt: skip
TOKENIZER: dict[str, Any] = {
    "bos_token": "<|im_start|>", "clean_up_tokenization_spaces": False,
    "eos_token": "<end_of_utterance>", "extra_special_tokens": MARKS, **MARKS,
    "model_max_length": 8192, "pad_token": "<|im_end|>", "processor_class": "SmolVLMProcessor",
    "tokenizer_class": "PreTrainedTokenizerFast", "truncation_side": "left",
    "unk_token": "<|endoftext|>",
}  # fmt: skip


def config(hidden: int, heads: int, layers: int) -> dict[str, Any]:
    """The keys that SmolVLM2-500M's and 256M's configs share; only widths and layers are tiny."""
    return {
        "architectures": ["SmolVLMForConditionalGeneration"], "image_token_id": IMAGE,
        "model_type": "smolvlm", "pad_token_id": 128_002, "scale_factor": 4,
        "text_config": {
            "architectures": ["VLlama3ForCausalLM"], "head_dim": hidden // heads,
            "hidden_size": hidden, "intermediate_size": 2 * hidden, "is_llama_config": True,
            "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": heads,
            "num_hidden_layers": layers, "num_key_value_heads": heads // 3, "pad_token_id": 2,
            "pixel_shuffle_factor": 4, "rms_norm_eps": 1e-05, "rope_interleaved": False,
            "rope_theta": 100_000, "use_resampler": False, "vocab_size": VOCAB,
        },
        "tie_word_embeddings": False, "use_cache": False,
        "vision_config": {
            "hidden_size": 16, "image_size": 512, "intermediate_size": 24,
            "max_image_size": {"longest_edge": 512}, "model_type": "smolvlm_vision",
            "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 16,
            "size": {"longest_edge": 2048}, "use_base_siglip": False,
        },
        "vocab_size": VOCAB,
    }  # fmt: skip


def tokenizer() -> Tokenizer:
    """Bytes for words, and all marks at the ids that they have in SmolLM2's vocabulary."""
    vocab = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[letter] = len(vocab)
    vocab |= {f"<unused_{index}>": index for index in range(len(vocab), WORDS)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    reserved = [f"<|reserved_special_token_{index}|>" for index in range(88)]
    marks = ["<global-img>", *tiles, "<fake_token_around_image>", "<image>", *reserved]
    special = [
        AddedToken(name, special=True, normalized=False)
        for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks, "<end_of_utterance>")
    ]
    made.add_special_tokens(special)
    assert (made.token_to_id("<image>"), made.token_to_id("<end_of_utterance>")) == (IMAGE, END)
    return made


def model(folder: Path, seed: int, noise: float = 0.0) -> Any:
    """Random weights, large enough that a text depends on its pictures; `noise` shakes them."""
    torch.manual_seed(seed)
    built = SmolVLMForConditionalGeneration._from_config(AutoConfig.from_pretrained(folder))
    made = torch.Generator().manual_seed(seed)
    shaken = torch.Generator().manual_seed(7)
    for name, weights in built.named_parameters():
        if weights.ndim > 1:
            spread = 0.3 if "embed_tokens" in name else 0.2
            weights.data.normal_(0, spread, generator=made)
            weights.data += noise * spread * torch.randn(weights.shape, generator=shaken)
    built.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=END, pad_token_id=2)
    return built.float()


def write(folder: Path, hidden: int = 48, layers: int = 2, seed: int = 0, noise: float = 0) -> Path:
    """A folder with the files that the hub has, of a model with three heads to one for keys."""
    folder.mkdir(parents=True)
    files = {
        "config": config(hidden, 3, layers), "processor_config": PROCESSOR,
        "preprocessor_config": PREPROCESSOR, "tokenizer_config": TOKENIZER,
        "chat_template": {"chat_template": TEMPLATE},
    }  # fmt: skip
    for name, entries in files.items():
        (folder / f"{name}.json").write_text(json.dumps(entries), encoding="utf-8")
    tokenizer().save(str(folder / "tokenizer.json"))
    published = (folder / "config.json").read_bytes()
    model(folder, seed, noise).save_pretrained(folder)
    (folder / "config.json").write_bytes(published)
    return folder

"""The image miniature's world: captions of coloured shapes, and the tokenizer of its Janus."""

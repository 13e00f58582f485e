"""The image miniature's world: captions of coloured shapes."""

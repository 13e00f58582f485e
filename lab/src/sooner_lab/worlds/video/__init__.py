"""The video miniature's world of moving shapes.

`world` draws clips and scores captions, `film` makes real files of them, `questions` makes inputs
of them. Importing this imports none of them.
"""

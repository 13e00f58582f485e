"""The world of canvases: pictures and clips whose law is known in closed form; nothing is trained.

`law` has the law: every code's distribution behind those before it, drawings, their likelihood.
"""

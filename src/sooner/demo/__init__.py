"""A page on which one sees why decoding is faster: `sooner demo`.

`watching` notes what every round of a run did; `race`, `pictures`, `pages`, `robot` and `heads`
make records of tasks, which are plain JSON; `assets/player.js` shows a record in a browser, within
the page (`page`, Gradio, extra `demo`) or as one file without a server (`export`).
"""

"""A page on which one sees why decoding is faster: `sooner demo`.

`records` makes records of tasks, which are plain JSON (what every round of a run did is noted by
`round_records`); `assets/player.js` shows a record in a browser, within the page (`page`,
Gradio, extra `demo`) or as one file without a server (`export`).
"""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before anything here imports gradio

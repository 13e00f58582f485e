"""The parts of the bench over servers that run: every arm on the same requests, in turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

import torch

from ..run import Progress
from .direct import Direct
from .load import LoadProcess, LoadResult, mixed_order
from .parity import Gate
from .requests import Copies, ServeQuestion
from .servers import ServerProcess, Servers
from .settings import (
    HF_CONTINUOUS,
    HF_STATIC,
    PLAIN,
    SEQUENTIAL,
    ServeBenchSettings,
)
from .traces import Figures, LoadTraces, figures, over

TEXT_TIMES = 6
"""How often the text part asks each of its questions in a round."""


class ServeBench:
    """The arms of one run.

    Args:
        settings: what is measured.
        questions: the mix.
        direct: the models in this process.
        servers: asleep.
        clients: the process of clients.
        progress: is called with what runs.
    """

    def __init__(
        self,
        settings: ServeBenchSettings,
        questions: Sequence[ServeQuestion],
        direct: Direct,
        servers: Servers,
        clients: LoadProcess,
        progress: Progress,
    ) -> None:
        self.settings, self.questions, self.direct = settings, list(questions), direct
        self.servers, self.clients, self.progress = servers, clients, progress
        self.copies = Copies()
        self.loads: dict[tuple[str, int], list[LoadTraces]] = defaultdict(list)
        self.gates: dict[str, Gate] = {}

    def warm_up(self) -> None:
        """Make references, and run every arm once over every question with ids of its tokens."""
        self.progress("references")
        references = [self.direct.reference(item) for item in self.questions]
        is_exact = self.direct.model.dtype == torch.float32
        self.gates = {name: Gate(references, is_exact) for name in self.settings.arms}
        for arm in self.settings.served:
            self.progress(f"warm-up: {arm}")
            clients = 1 if arm == SEQUENTIAL else max(self.settings.clients)
            self._load(arm, clients, self._order(-(-clients // len(self.questions))), origins=True)
        if HF_STATIC in self.settings.arms:
            self._load(HF_STATIC, 2, range(min(2, len(self.questions))))

    def mix(self) -> Figures:
        """Return what the requests are, from the references."""
        gate = next(iter(self.gates.values()))
        kinds: dict[str, list[tuple[ServeQuestion, int]]] = {"clip": [], "text": []}
        for question, (tokens, _) in zip(self.questions, gate.references, strict=True):
            kinds["text" if question.clip is None else "clip"].append((question, len(tokens)))
        return {
            "kinds": [
                {
                    "kind": kind,
                    "requests": len(part),
                    "prompt_tokens": mean(
                        self.direct.inputs(question)["input_ids"].shape[1] for question, _ in part
                    ),
                    "tokens": [min(count for _, count in part), max(count for _, count in part)],
                    "max_tokens": part[0][0].max_tokens,
                }
                for kind, part in kinds.items()
                if part
            ]
        }

    def report(self) -> list[Figures]:
        """Return the gate of each arm."""
        gates = self.gates.items()
        return [{"arm": name, **gate.report()} for name, gate in gates if gate.verdict is not None]

    def clients_part(self) -> Figures:
        """Run closed loops, and HF's batches at their number of rows."""
        settings = self.settings
        for turn in range(settings.rounds):
            for clients in settings.clients:
                order = self._order(settings.times(clients), turn)
                arms = [*settings.batched]
                arms += [HF_STATIC] * (clients == settings.static_rows)
                arms += [SEQUENTIAL] * (clients == max(settings.clients))
                for arm in (arm for arm in arms if arm in settings.arms):
                    self.progress(f"round {turn + 1}/{settings.rounds}, {clients} clients: {arm}")
                    mine = self._order(1, turn) if arm == SEQUENTIAL else order
                    self.loads[arm, clients].append(self._load(arm, clients, mine))
        places = {arm: place for place, arm in enumerate(settings.arms)}
        rows = [
            self._row(arm, clients, loads, self.loads.get((PLAIN, clients), []))
            for (arm, clients), loads in self.loads.items()
        ]
        rows.sort(key=lambda row: (places[row["arm"]], row["clients"]))
        return {"clients": rows}

    def text_part(self) -> Figures:
        """Ask for text alone, beside HF's fixed batches and its continuous batching."""
        settings, clients = self.settings, self.settings.static_rows
        texts = [number for number, question in enumerate(self.questions) if question.clip is None]
        peers = [arm for arm in (HF_STATIC, HF_CONTINUOUS) if arm in settings.arms]
        loads: dict[str, list[LoadTraces]] = defaultdict(list)
        failed: dict[str, str] = {}
        for turn in range(settings.rounds if texts else 0):
            order = [
                texts[place] for place in mixed_order(len(texts), TEXT_TIMES, settings.seed + turn)
            ]
            for arm in (*settings.batched, *peers):
                self.progress(f"text, round {turn + 1}/{settings.rounds}: {arm}")
                try:
                    if arm in peers and turn == 0:
                        self._load(arm, clients, order[:clients])  # which warms up
                    if arm not in failed:
                        loads[arm].append(self._load(arm, clients, order))
                except Exception as error:
                    if arm not in peers:
                        raise
                    failed[arm] = f"{type(error).__name__}: {error}"[:400]
        rows = [
            self._row(arm, clients, part, loads[PLAIN])
            for arm, part in loads.items()
            if arm not in failed
        ]
        faults = [{"arm": arm, "clients": clients, "error": error} for arm, error in failed.items()]
        return {"text": [*rows, *faults]}

    def _order(self, times: int, turn: int | None = None) -> list[int]:
        """Return all questions `times` times, in the order of a turn."""
        seed = 0 if turn is None else self.settings.seed + turn
        return mixed_order(len(self.questions), times, seed)

    def _load(
        self, arm: str, clients: int, order: Sequence[int], origins: bool = False
    ) -> LoadTraces:
        """Run a closed loop of an arm, or HF's batches of as many rows, and compare its answers."""
        peers: dict[str, Callable[[Sequence[int], int], LoadTraces]] = {
            HF_STATIC: self.direct.static, HF_CONTINUOUS: self.direct.continuous,
        }  # fmt: skip
        if arm in peers:
            load = peers[arm](order, clients)
        else:
            with self.servers.awake(arm) as server:
                load = self._closed(server, clients, order, origins)
        self.gates[arm].load(load)
        return load

    def _closed(
        self, server: ServerProcess, clients: int, order: Sequence[int], origins: bool = False
    ) -> LoadTraces:
        sent = self.copies.http(self.questions, order, origins)
        made: LoadResult = self.clients.closed(server.port, sent, clients)
        return LoadTraces.of(made)

    def _row(
        self, arm: str, clients: int, loads: Sequence[LoadTraces], plain: Sequence[LoadTraces]
    ) -> Figures:
        gate = self.gates[arm]
        row: Figures = {"arm": arm, "clients": clients, "parity": gate.verdict}
        if gate.is_red:
            return row
        ours, base = (
            [block for load in each for block in load.blocks()] for each in (loads, plain)
        )
        return row | figures(loads) | {"over_plain": over(ours, base, self.settings.seed)}

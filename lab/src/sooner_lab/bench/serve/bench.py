"""The parts of the bench over servers that run: every arm on the same requests, in turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import torch

from ..run import quotient
from .direct import Direct, DirectRun
from .load import LoadProcess, LoadResult, mixed_order, poisson_arrivals
from .parity import Gate
from .requests import Copies, ServeQuestion, two_questions
from .servers import ServerProcess, Servers
from .settings import (
    DRAFTS,
    HF_CONTINUOUS,
    HF_STATIC,
    LOAD,
    PACE,
    PLAIN,
    SEQUENTIAL,
    ServeBenchSettings,
)
from .traces import Block, Figures, LoadTraces, figures, over

DIRECT = (PLAIN, DRAFTS)
"""Arms whose requests `sooner.generate` answers, too."""
TEXT_TIMES = 6
"""How often the text part asks each of its questions in a round."""


class ServeBench:
    """The arms of one run.

    Args:
        settings: what is measured.
        asked: the mix.
        direct: the models in this process.
        servers: asleep.
        asking: the process of clients.
    """

    def __init__(
        self,
        settings: ServeBenchSettings,
        questions: Sequence[ServeQuestion],
        direct: Direct,
        servers: Servers,
        asking: LoadProcess,
        progress: Callable[[str], None],
    ) -> None:
        self.settings, self.questions, self.direct = settings, list(questions), direct
        self.servers, self.asking, self.progress = servers, asking, progress
        self.copies = Copies()
        self.loads: dict[tuple[str, int], list[LoadTraces]] = defaultdict(list)
        self.gates: dict[str, Gate] = {}

    def warm_up(self) -> None:
        """References, and every arm once over every question with the ids of its tokens."""
        self.progress("references")
        references = [self.direct.reference(item) for item in self.questions]
        is_exact = self.direct.model.dtype == torch.float32
        names = (*self.settings.arms, *(f"generate, {arm}" for arm in self._direct_arms))
        self.gates = {name: Gate(references, is_exact) for name in names}
        maximum = max(self.settings.clients)
        for arm in self.settings.served:
            self.progress(f"warm-up: {arm}")
            clients = 1 if arm == SEQUENTIAL else maximum
            times = 1 if arm == SEQUENTIAL else -(-maximum // len(self.questions))
            self._closed(arm, clients, mixed_order(len(self.questions), times, 0), origins=True)
        if HF_STATIC in self.settings.arms:
            self.progress(f"warm-up: {HF_STATIC}")
            self.direct.static(self.questions[:2], 2)
        for arm in self._direct_arms:
            self.progress(f"warm-up: generate, {arm}")
            for number, question in enumerate(self.questions):
                self.gates[f"generate, {arm}"].tokens(
                    number, self.direct.generate(arm, question).tokens[0]
                )

    def mix(self) -> Figures:
        """What the requests are, from the references."""
        gate = next(iter(self.gates.values()))
        kinds = []
        for kind in ("clip", "text"):
            mine = [
                (question, len(tokens))
                for question, (tokens, _) in zip(self.questions, gate.references, strict=True)
                if (question.clip is not None) == (kind == "clip")
            ]
            if not mine:
                continue
            widths = [self.direct.inputs(question)["input_ids"].shape[1] for question, _ in mine]
            tokens = [count for _, count in mine]
            kinds.append(
                {
                    "kind": kind,
                    "requests": len(mine),
                    "prompt_tokens": mean(widths),
                    "tokens": [min(tokens), max(tokens)],
                    "max_tokens": mine[0][0].max_tokens,
                }
            )
        return {"kinds": kinds}

    def report(self) -> list[Figures]:
        """The gate of each arm."""
        return [
            {"arm": name, **gate.report()}
            for name, gate in self.gates.items()
            if gate.verdict is not None
        ]

    def clients_part(self) -> Figures:
        """Closed loops; at one client `sooner.generate` beside them, HF's batches at theirs."""
        settings = self.settings
        seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
        static: list[DirectRun] = []
        for turn in range(settings.rounds):
            for clients in settings.clients:
                order = mixed_order(
                    len(self.questions), settings.times(clients), settings.seed + turn
                )
                for arm in settings.batched:
                    self.progress(f"round {turn + 1}/{settings.rounds}, {clients} clients: {arm}")
                    load = self._closed(arm, clients, order)
                    self.loads[arm, clients].append(load)
                    if clients == 1 and arm in self._direct_arms:
                        seconds[arm] += self._compare_direct(arm, load)
                if clients == settings.static_rows and HF_STATIC in settings.arms:
                    self.progress(f"round {turn + 1}/{settings.rounds}: {HF_STATIC}")
                    static.append(self._static(order))
            if SEQUENTIAL in settings.arms:
                self.progress(f"round {turn + 1}/{settings.rounds}: {SEQUENTIAL}")
                maximum = max(settings.clients)
                order = mixed_order(len(self.questions), 1, settings.seed + turn)
                self.loads[SEQUENTIAL, maximum].append(self._closed(SEQUENTIAL, maximum, order))
        rows = [self._row(arm, clients, loads) for (arm, clients), loads in self.loads.items()]
        if static:
            rows.append(self._static_row(static, self._blocks(PLAIN, settings.static_rows)))
        costs = [self._cost(arm, pairs) for arm, pairs in seconds.items()]
        order_of = {arm: place for place, arm in enumerate(settings.arms)}
        rows.sort(key=lambda row: (order_of[row["arm"]], row["clients"]))
        return {"clients": rows, "direct": costs}

    def poisson_part(self) -> Figures:
        """Open loops at a share of each arm's saturation, with and without a pace of tokens."""
        settings, rows = self.settings, []
        maximum = max(settings.clients)
        for arm in DIRECT:
            if arm not in settings.batched or self.gates[arm].is_red:
                continue
            busy = figures(self.loads[arm, maximum])
            rate = LOAD * busy["requests_per_second"]
            self.progress(f"arrivals, {rate:.1f} a second: {arm}")
            times = -(-settings.arrivals // len(self.questions))
            order = mixed_order(len(self.questions), times, settings.seed)[: settings.arrivals]
            arrivals = poisson_arrivals(rate, len(order), settings.seed)
            idle = figures(self.loads[arm, min(settings.clients)])
            pace = PACE * idle["per_token_ms"]["p99"]
            with self.servers.awake(arm) as server:
                rows.append(self._arriving(arm, server, order, arrivals, idle))
            self.progress(f"arrivals, {rate:.1f} a second: {arm}, {pace:.1f} ms a token")
            with self.servers.paced(arm, pace) as server:
                self.gates[arm].load(LoadTraces.of(self._warm(server)))
                rows.append(self._arriving(arm, server, order, arrivals, idle, pace))
            for row in rows[-2:]:
                row["rate"] = rate
        return {"poisson": rows}

    def _warm(self, server: ServerProcess) -> LoadResult:
        """Every question once, of a server that was started just now."""
        order = mixed_order(len(self.questions), 1, 0)
        return self.asking.closed(server.port, self.copies.http(self.questions, order), len(order))

    def _arriving(
        self,
        arm: str,
        server: ServerProcess,
        order: Sequence[int],
        arrivals: Sequence[float],
        idle: Figures,
        pace: float | None = None,
    ) -> Figures:
        """An open loop of one server; `pace` is its `--time-per-token-ms`."""
        load = LoadTraces.of(
            self.asking.open(server.port, self.copies.http(self.questions, order), arrivals)
        )
        self.gates[arm].load(load)
        row: Figures = {"arm": arm, "pace_ms": pace, "parity": self.gates[arm].verdict}
        if self.gates[arm].is_red:
            return row
        row |= figures([load])
        tail = row["per_token_ms"]["p99"] / idle["per_token_ms"]["p99"]
        return row | {"idle_per_token_ms": idle["per_token_ms"], "tail": tail}

    def second_part(self) -> Figures:
        """Two questions on a clip that the server has not seen, one after the other."""
        clips, times = self.settings.second
        seeing = [question for question in self.questions if question.clip is not None][:clips]
        references = [
            self.direct.reference(question) for clip in seeing for question in two_questions(clip)
        ]
        rows = []
        for arm in DIRECT:
            if arm not in self.settings.batched:
                continue
            self.progress(f"second questions: {arm}")
            gate = Gate(references, self.gates[arm].is_exact)
            pairs = [pair for _ in range(times) for pair in self._two(arm, seeing, gate)]
            row: Figures = {"arm": arm, "pairs": len(pairs), "parity": gate.verdict}
            if pairs and not gate.is_red:
                first, second = ([pair[side].first_token for pair in pairs] for side in (0, 1))
                ones = [1.0] * len(pairs)
                row |= {
                    "first_ms": 1000 * mean(first),
                    "second_ms": 1000 * mean(second),
                    "ratio": quotient((second, ones), (first, ones), self.settings.seed),
                    "prompt_tokens": mean(pair[1].prompt for pair in pairs),
                    "cached_tokens": mean(pair[1].cached for pair in pairs),
                }
            rows.append(row)
        return {"second": rows}

    def text_part(self) -> Figures:
        """Text alone, beside HF's fixed batches and its continuous batching."""
        settings = self.settings
        texts = [number for number, question in enumerate(self.questions) if question.clip is None]
        if not texts:
            return {"text": []}
        clients, loads = settings.static_rows, defaultdict(list)
        runs: dict[str, list[DirectRun]] = defaultdict(list)
        failed: list[Figures] = []
        works = {HF_STATIC: self.direct.static, HF_CONTINUOUS: self.direct.continuous}
        for turn in range(settings.rounds):
            order = [
                texts[place] for place in mixed_order(len(texts), TEXT_TIMES, settings.seed + turn)
            ]
            for arm in settings.batched:
                self.progress(f"text, round {turn + 1}/{settings.rounds}: {arm}")
                loads[arm].append(self._closed(arm, clients, order))
            for arm, work in works.items():
                if arm not in settings.arms or any(row["arm"] == arm for row in failed):
                    continue
                self.progress(f"text, round {turn + 1}/{settings.rounds}: {arm}")
                try:
                    if turn == 0:
                        work([self.questions[number] for number in order[:clients]], clients)
                    runs[arm].append(self._compared(arm, order, work))
                except Exception as error:
                    failed.append(
                        {"arm": arm, "clients": clients,
                         "error": f"{type(error).__name__}: {error}"[:400]}
                    )  # fmt: skip
        plain = [block for load in loads[PLAIN] for block in load.blocks()]
        rows = [self._row(arm, clients, part, plain) for arm, part in loads.items()]
        rows += [
            self._static_row(part, plain, arm)
            for arm, part in runs.items()
            if not any(row["arm"] == arm for row in failed)
        ]
        return {"text": [*rows, *failed]}

    @property
    def _direct_arms(self) -> list[str]:
        return [arm for arm in DIRECT if arm in self.settings.batched]

    def _closed(
        self, arm: str, clients: int, order: Sequence[int], origins: bool = False
    ) -> LoadTraces:
        requests = self.copies.http(self.questions, order, origins)
        with self.servers.awake(arm) as server:
            load = LoadTraces.of(self.asking.closed(server.port, requests, clients))
        self.gates[arm].load(load)
        return load

    def _compare_direct(self, arm: str, load: LoadTraces) -> list[tuple[float, float]]:
        """Seconds of each request by a server and by `sooner.generate`."""
        pairs = []
        for trace in load.traces:
            run = self.direct.generate(arm, self.questions[trace.number])
            self.gates[f"generate, {arm}"].tokens(trace.number, run.tokens[0])
            pairs.append((trace.seconds, run.seconds))
        return pairs

    def _static(self, order: Sequence[int]) -> DirectRun:
        return self._compared(HF_STATIC, order, self.direct.static)

    def _compared(
        self,
        arm: str,
        order: Sequence[int],
        work: Callable[[Sequence[ServeQuestion], int], DirectRun],
    ) -> DirectRun:
        run = work([self.questions[number] for number in order], self.settings.static_rows)
        for number, tokens in zip(order, run.tokens, strict=True):
            self.gates[arm].tokens(number, tokens)
        return run

    def _two(self, arm: str, seeing: Sequence[ServeQuestion], gate: Gate) -> list[tuple[Any, Any]]:
        pairs = []
        for place, clip in enumerate(seeing):
            copy, self.copies.next_copy = self.copies.next_copy, self.copies.next_copy + 1
            sent = [
                question.http(2 * place + side, copy, origins=True)
                for side, question in enumerate(two_questions(clip))
            ]
            with self.servers.awake(arm) as server:
                load = LoadTraces.of(self.asking.closed(server.port, sent, 1))
            gate.load(load)
            if len(load.traces) == len(sent):
                pairs.append((load.traces[0], load.traces[1]))
        return pairs

    def _blocks(self, arm: str, clients: int) -> list[Block]:
        return [block for load in self.loads.get((arm, clients), []) for block in load.blocks()]

    def _row(
        self,
        arm: str,
        clients: int,
        loads: Sequence[LoadTraces],
        plain: Sequence[Block] | None = None,
    ) -> Figures:
        gate = self.gates[arm]
        row: Figures = {"arm": arm, "clients": clients, "parity": gate.verdict}
        if gate.is_red:
            return row
        base = self._blocks(PLAIN, clients) if plain is None else plain
        mine = [block for load in loads for block in load.blocks()]
        return row | figures(loads) | {"over_plain": over(mine, base, self.settings.seed)}

    def _static_row(
        self, runs: Sequence[DirectRun], plain: Sequence[Block], arm: str = HF_STATIC
    ) -> Figures:
        gate = self.gates[arm]
        row: Figures = {
            "arm": arm, "clients": self.settings.static_rows, "parity": gate.verdict,
        }  # fmt: skip
        if gate.is_red:
            return row
        blocks = [block for run in runs for block in run.blocks]
        seconds = sum(run.seconds for run in runs)
        requests = sum(len(run.tokens) for run in runs)
        return row | {
            "requests": requests,
            "requests_per_second": requests / seconds,
            "tokens_per_second": sum(block[0] for block in blocks) / seconds,
            "over_plain": over(blocks, plain, self.settings.seed),
        }

    def _cost(self, arm: str, pairs: Sequence[tuple[float, float]]) -> Figures:
        """What a server adds to the same requests in this process, as a share of their time."""
        server, direct = zip(*pairs, strict=True)
        row: Figures = {"arm": arm, "requests": len(pairs)}
        if self.gates[arm].is_red or self.gates[f"generate, {arm}"].is_red:
            return row
        ones = [1.0] * len(pairs)
        ratio = quotient((server, ones), (direct, ones), self.settings.seed)
        return row | {
            "server_ms": 1000 * mean(server),
            "generate_ms": 1000 * mean(direct),
            "cost": {
                "value": ratio["value"] - 1,
                "interval": [edge - 1 for edge in ratio["interval"]],
            },
        }

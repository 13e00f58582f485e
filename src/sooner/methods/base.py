"""What every method shares: it is a frozen dataclass, callable as `generate`'s decoding loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from ..checks import check_choice, check_fields, check_model, check_prompts, field_names
from ..engine.acceptance import follow_choices, follow_shared_noise
from ..engine.block_check import BlockCheck
from ..engine.grid import GridConstraint
from ..engine.hf_border import CallSignature, foreign_names, on_tokens_of, receive, streamer_of
from ..engine.interface import Drafter, Prompt
from ..engine.loop import OnTokens, Rule, Session, run
from ..engine.noise import RowNoise, draw_seed
from ..engine.offload import offload
from ..engine.row_sampling import SamplingParams
from ..engine.rows import Rows, Stopping
from ..engine.runner import ModelRunner
from ..engine.sampling import Processing
from ..engine.stats.run import EXACT, Stats
from ..errors import SoonerError, UnsupportedError, unknown
from ..models import Adapter, adapt
from ..models.base import is_sharded, keeps_states
from ..models.hooks import ForwardHooks
from ..registry import DraftModel, choices, methods
from .context import Context, drop_output_pixels, embed, prompt_for, same_vocabulary, to_device
from .draft_length import Acceptance

if TYPE_CHECKING:
    from ..engine.graphs.recorder import GraphRecorder
    from ..engine.graphs.steps import StepGraphs


def _check_states(method: Any, target: Adapter) -> None:
    """Require a method to draft chains alone if its target or its draft keeps states, and such a
    target not to be split by tensor parallelism.

    Raises:
        UnsupportedError: says what to use.
    """
    for model in filter(keeps_states, (target.model, getattr(method, "draft", None))):
        name = type(getattr(model, "model", None) or model).__name__
        if not method.drafts_chains:
            raise UnsupportedError(
                f"{type(method).__name__} may draft trees or rearrange a cache, and layers of "
                f"{name} keep a state, which takes chains alone; use Autoregressive, "
                "PromptLookup or Speculative"
            )
        if is_sharded(target.model):
            raise UnsupportedError(
                f"layers of {name} keep a state, which tensor parallelism is not known to split; "
                "load it on one device"
            )


@dataclass(frozen=True)
class MethodSettings:
    """Models, inputs and options at hand; `Method.from_settings` takes those that it knows.

    Attributes:
        draft: the draft model; `None` without one.
        draft_inputs: the prompt as the draft's own processor gives it; `None` for drafts that read
            text only.
        head: folder of a draft head.
        num_draft_tokens: draft tokens a round, nodes of a tree, or `"auto"`.
        prune: share of the visual tokens that a pruned draft does without; `None` is the method's.
        placement: where a draft beside the target runs.
        draft_device: that the draft has for itself; `None`: it has none.
        standing: a `StandingDraft`, the draft's process for all runs.
        experience: acceptance of earlier runs, by the share of the visual tokens that the draft did
            without, `None` for a draft that saw none.
    """

    draft: Any = None
    draft_inputs: Mapping[str, Any] | None = field(default=None, repr=False)
    head: str | None = None
    num_draft_tokens: int | Literal["auto"] = "auto"
    prune: float | None = None
    placement: str = "auto"
    draft_device: str | None = None
    standing: Any = None
    experience: Callable[[float | None], Acceptance | None] = lambda prune: None

    def explicit(self, *names: str) -> dict[str, Any]:
        """Returns those of the options `names` that were asked for, without defaults."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, "auto")}


@dataclass
class SoonerOutput(GenerateDecoderOnlyOutput):
    """What a method returns under `return_dict_in_generate=True`.

    Attributes:
        sequences: prompt and new tokens, `[rows, width]`, padded at the end.
        stats: counts and times of the run.
    """

    stats: Stats | None = None


@dataclass(frozen=True)
class Method:
    """Holds a way to decode. Subclasses are frozen dataclasses that say how a draft is made.

    `sooner.registry` lists those of this package; of one of another distribution, `draft_model`
    says what it drafts with.

    `model.generate(**inputs, custom_generate=method)` runs it with the logits processors,
    stopping criteria, streamer and generation config that `generate` prepared.
    """

    name: ClassVar[str] = ""
    draft_model: ClassVar[DraftModel] = "none"

    __signature__ = CallSignature()

    def __post_init__(self) -> None:
        check_fields(self, f"{type(self).__name__}: ")

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        """Makes it of what a command's settings have under the names of its options."""
        names, make = set(field_names(cls)), cast(Callable[..., Self], cls)
        options = settings.explicit(*names & {"draft_inputs", "num_draft_tokens", "prune"})
        return make(**options, **({"draft": settings.draft} if "draft" in names else {}))

    @property
    def mode(self) -> str:
        """How far the output is the target's own: *exact*, *relaxed* or *approximate*."""
        return EXACT

    @property
    def needs_whole_target(self) -> bool:
        """Whether drafting runs the target, or looks into its heads, which a shard can't answer
        for."""
        return False

    @property
    def needs_whole_prompt(self) -> bool:
        """Whether drafting listens to the target's prefill, which an engine then does not split."""
        return False

    @property
    def drafts_chains(self) -> bool:
        """Whether every draft is a chain and a cache is asked for nothing else, which is all that
        layers that keep a state can take."""
        return False

    def joins(self, other: Method) -> bool:
        """Returns whether rows decoded by `other` may join a batch that is decoded by this method:
        drafts and inputs may differ, what verifies them may not.
        """
        return self is other or self == other

    def slot_bytes(self) -> int:
        """Returns bytes of a token of a row in the drafter's own cache; 0 without one."""
        draft = getattr(self, "draft", None)
        return 0 if draft is None else adapt(draft).slot_bytes

    def largest_block(self) -> int:
        """Most tokens that one target forward will be asked to verify, the root included."""
        length: Any = getattr(self, "num_draft_tokens", 0)
        return 1 + int(getattr(self, "max_draft_tokens", 0) if length == "auto" else length)

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        """An engine is about to step: requests of so many rows decode or are prefilled, and so many
        wait, of which `max_rows` may decode together. Drafts that pay for few may not for many."""

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        """Returns the drafter of one run, and how the target verifies its drafts; called before the
        target embeds its prompt.

        If it raises, nothing is closed, so it makes last what holds a process or a hook.
        """
        raise NotImplementedError

    def __call__(
        self, model: Any, input_ids: Tensor, logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        generation_config: GenerationConfig | None = None, streamer: Any = None,
        synced_gpus: bool = False, *, generator: torch.Generator | None = None,
        on_tokens: OnTokens | None = None, graphs: str | GraphRecorder = "auto",
        compile: bool | Mapping[str, Any] = False, tokenizer: Any = None, **model_kwargs: Any,
    ) -> Tensor | SoonerOutput:  # fmt: skip
        """Decode in place of HF's loop. Called by `generate`; see `sooner.generate` for a session.

        Args:
            generator, on_tokens, graphs, compile: see `session`; `functools.partial` sets them. The
                other arguments are what `generate` has prepared.

        Returns:
            Sequences `[rows, width]`, or a `SoonerOutput` under `return_dict_in_generate`.

        Raises:
            UnsupportedError: the config asks for something that can't be honoured.
            SoonerError: the prompt is longer than the model's positions, or similar.
        """
        config = generation_config if generation_config is not None else GenerationConfig()
        streamer = streamer_of(model) if streamer is None else streamer
        call = receive(
            model, input_ids, logits_processor, stopping_criteria, config, synced_gpus,
            model_kwargs,
        )  # fmt: skip
        session = self.session(
            model, call.inputs, call.params, generator=generator,
            on_tokens=on_tokens_of(streamer, input_ids.shape[0], on_tokens), graphs=graphs,
            prefill_chunk=call.prefill_chunk, kv_offload=call.kv_offload, compile=compile,
        )  # fmt: skip
        sequences: Any = call.sequences(run(session))
        if streamer is not None:
            streamer.end()
        if config.return_dict_in_generate:
            return SoonerOutput(sequences=sequences, stats=session.stats)
        return sequences

    def session(
        self, model: Any, inputs: Mapping[str, Any], params: SamplingParams, *,
        generator: torch.Generator | None = None, on_tokens: OnTokens | None = None,
        guidance: float = 1.0, prefill_chunk: int | None = None,
        requests: Sequence[int] | None = None, generated: int = 0,
        graphs: str | GraphRecorder = "auto", compile: bool | Mapping[str, Any] = False,
        verify_every: int | None = None, kv_offload: bool = False,
    ) -> Session:  # fmt: skip
        """Embed the prompts, repeat each `params.n` times, and set up one run of the loop.

        Args:
            model: an HF model, or the adapter to run it by, such as a canvas.
            params: how tokens are chosen, and when rows end.
            generator: gives the run its seed, by one draw if it samples; `None` is torch's global
                one.
            guidance: scale of classifier-free guidance, for adapters with `guided_inputs`.
            prefill_chunk: prompt tokens of a row that target and draft prefill at once, so that
                long prompts need less memory; `None` is all of them.
            requests: number of each row, 0, 1, ... by default. Under one seed a row of the same
                prompt and number draws the same, whatever else is in the batch.
            generated: the last ids of each prompt that the row said itself, before it was
                interrupted: penalties and draws go on behind them.
            graphs, compile, verify_every: see `sooner.generate`.
            kv_offload: the target's keys and values lie in host memory.
        """
        for name, loaded in (("model", model), ("draft", getattr(self, "draft", None))):
            check_model(name, loaded)
        target = adapt(model)
        _check_states(self, target)
        inputs = to_device(inputs, target.device)
        check_prompts(inputs)
        ids = inputs["input_ids"].repeat_interleave(params.n, 0)
        stats = Stats(mode=self.mode, method=self.name, device=target.device, rows=ids.shape[0])
        stopping = Stopping(params.max_new_tokens, params.stop_token_ids, params.criteria)
        rows = Rows(ids if target.speaks_prompt else ids[:, :0])
        processing = Processing(params.rows(rows.batch), prompt=rows.prompt, generated=generated)
        if (costs := processing.costs) is not None:
            stats.note(costs)
        if names := foreign_names(params.processors):
            stats.note(
                f"{', '.join(names)}: asked once for each drafted token; with a state of its own, "
                "such as a count of its calls, ids may be others than generate's"
            )
        output_ids = None
        if generated:
            inputs, output_ids = drop_output_pixels(target, inputs, generated)
        seed = draw_seed(generator) if params.do_sample else 0
        numbers = torch.tensor(requests or range(rows.batch), device=target.device)
        noise = RowNoise.start(seed, numbers, generated)
        runner, grid, constraint = _runner(target, guidance), target.grid, None
        if kv_offload:
            offload(runner)
        if grid is not None:
            constraint = GridConstraint(grid, target.vocab_size, target.device)
        launch = _graphs(runner, graphs, self.largest_block(), compile, stats)
        check = None if verify_every is None else BlockCheck(verify_every, target, rows.prompts)
        context = Context(
            target, runner, inputs, rows, processing, stopping, stats, noise, copies=params.n,
            guidance=guidance, constraint=constraint, prefill_chunk=prefill_chunk, graphs=launch,
            output_ids=output_ids,
        )  # fmt: skip
        if stopping.limit is None:
            raise SoonerError("no limit on new tokens; pass max_new_tokens")
        way = _sharded(self, target.model) if is_sharded(target.model) else self
        drafter, rule = way.build(context)
        try:
            prompt = _embed(context, generated)
            if runner.rope is not None:
                runner.rope.check(prompt, stopping.limit)
        except BaseException:
            drafter.close()  # it may have set a worker going
            raise
        runner.cache.capacity = prompt.width + stopping.limit + way.largest_block()
        if any(hooks.cuts_layers for hooks in ForwardHooks.installed(target.decoder)):
            runner.layer_chunk, prefill_chunk = prefill_chunk, None
        return Session(
            target=runner, prompt=prompt, rows=rows, drafter=drafter, rule=rule,
            processing=processing, stopping=stopping, stats=stats, noise=noise, on_tokens=on_tokens,
            constraint=constraint, prefill_chunk=prefill_chunk, graphs=launch, check=check,
        )  # fmt: skip


@dataclass(frozen=True)
class DraftMethod(Method):
    """Drafts with a model of its own.

    Args:
        draft: a loaded HF model of one of the supported families. A text-only model drafts from
            the words of the prompt alone.
        draft_inputs: the prompt as the draft's own processor gives it. Without it the draft gets
            the target's, which is right only if both process pixels alike.
    """

    draft: Any
    draft_inputs: Mapping[str, Any] | None = field(
        default=None, repr=False, compare=False, kw_only=True
    )

    def draft_of(self, context: Context) -> tuple[Adapter, Mapping[str, Any]]:
        """Returns the draft's adapter and its prompts: `draft_inputs`, or the target's.

        Raises:
            SoonerError: draft and target don't look like users of one tokenizer.
        """
        adapter, inputs = adapt(self.draft), self.draft_inputs
        same_vocabulary(context.target, adapter)
        return adapter, prompt_for(adapter, context) if inputs is None else inputs


def _graphs(
    target: ModelRunner, graphs: str | GraphRecorder, entries: int,
    compile: bool | Mapping[str, Any], stats: Stats,
) -> StepGraphs | None:  # fmt: skip
    if isinstance(graphs, str):
        check_choice("graphs", graphs, ("auto", "off"))
        if compile is False and (graphs == "off" or target.adapter.device.type != "cuda"):
            return None
    from ..engine.graphs.steps import open_graphs  # where there are any

    return open_graphs(target, graphs, entries, compile, stats)


def _embed(context: Context, generated: int) -> Prompt:
    target, longest = context.target, context.target.max_positions
    with torch.inference_mode(), context.stats.phase("vision"):
        inputs, prompts = context.inputs, context.prompts
        if context.guidance != 1.0:  # every prompt once more, without what it asks for
            inputs, prompts = target.guided_inputs(inputs), 2 * prompts
        prompt = embed(target, inputs, prompts, context.copies, context.output_ids)
        prompt.generated = generated
    if longest is not None and (length := max(prompt.lengths)) >= longest:
        raise SoonerError(
            f"prompt of {length} tokens, but {type(target.model).__name__} has {longest} "
            "positions; use fewer or smaller frames, or a shorter prompt"
        )
    return prompt


def _runner(target: Adapter, guidance: float) -> ModelRunner:
    if guidance == 1.0:
        return ModelRunner(target, 0)
    from .guidance import GuidedRunner  # pictures alone are guided

    return GuidedRunner(target, 0, guidance)


def _sharded(method: Method, model: Any) -> Any:
    from ..models.ranks import Ranks  # under tensor parallelism alone
    from .sharded import Sharded

    ranks = Ranks.of(model)
    assert ranks is not None
    return Sharded(method, ranks)


def as_method(value: Any) -> Method:
    """Returns a method from an instance, its class or its name; plain decoding for `None`.

    Raises:
        SoonerError: an unknown name, no method, or one that needs a draft, a head or the like.
    """
    if value is None:
        return Autoregressive()
    if isinstance(value, Method):
        return value
    if isinstance(value, str):
        if value not in methods():
            raise unknown("method", value, choices())
        return _without_arguments(methods()[value].load(), f"method '{value}'")
    if isinstance(value, type) and issubclass(value, Method):
        return _without_arguments(value, f"the class {value.__name__}")
    raise SoonerError(
        f"method is a {type(value).__name__}; pass a method such as sooner.PromptLookup(), or its "
        f"name: {', '.join(choices())}"
    )


def _without_arguments(kind: type[Method], name: str) -> Method:
    needed = [
        item.name
        for item in fields(kind)
        if item.init and item.default is item.default_factory is MISSING
    ]
    if needed:
        arguments = ", ".join(f"{item}=..." for item in needed)
        raise SoonerError(
            f"{name} needs {', '.join(needed)}; pass sooner.{kind.__name__}({arguments})"
        )
    return kind()


@dataclass(frozen=True)
class Autoregressive(Method):
    """Decodes one token a target forward, by the loop, cache and sampling of every method.

    Args:
        shared_noise: draw with the noise of each place, as `CoupledJacobi(verify="noise")` does:
            the same seed then gives the same tokens under both.
    """

    shared_noise: bool = False
    name: ClassVar[str] = "plain"
    drafts_chains: ClassVar[bool] = True

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return Drafter(), follow_shared_noise if self.shared_noise else follow_choices

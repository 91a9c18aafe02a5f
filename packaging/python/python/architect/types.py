"""The shapes of the objects that this package takes and returns. Their names in JSON are those of a journal."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

FaultKind = Literal[
    "connect",
    "timeout",
    "rate_limited",
    "server",
    "truncated",
    "protocol",
    "overflow",
    "auth",
    "quota",
    "refused",
    "request",
    "missing_model",
    "not_an_api",
    "tls",
    "blocked",
    "budget",
]
"""What can happen to a model call."""

Message = dict[str, Any]
"""A message of OpenAI's chat API: `role`, `content`, and `tool_calls` or `tool_call_id`."""

ToolDefinition = dict[str, Any]
"""A tool as that API takes it: `{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`."""


class ToolUsed(TypedDict, total=False):
    """A tool call of a result."""

    name: str
    success: bool
    path: str
    error: str
    duration_ms: float


class FileModified(TypedDict):
    """A file that a run has changed."""

    path: str
    action: Literal["created", "modified", "deleted"]


# The input of a machine.


class Limits(TypedDict, total=False):
    """The limits of a run. `None` is no limit; zero is one."""

    max_steps: int
    budget: int | None
    """In millionths of a US dollar."""
    max_tokens: int | None
    timeout: int | None
    """In microseconds."""
    step_timeout: int | None
    """The time for one model call with its retries, in microseconds."""
    warn_at: int | None


class Price(TypedDict):
    """Millionths of a US dollar for a million tokens of each kind."""

    input: int
    output: int
    cached_input: int
    cache_write: int


class Rules(TypedDict, total=False):
    """The rules of a run. Those that are missing have their defaults."""

    seed: int
    """For the jitter of retries."""
    limits: Limits
    price: Price | None
    output: dict[str, Any]
    """The limits of a reply: `max`, `ceiling`, `least`, `closing`, in tokens."""
    context: dict[str, int]
    """The context window, and when it is compacted: `window`, `threshold`, `full`, `summarize_after`, `keep_recent`,
    `max_compactions`."""
    backoff: dict[str, Any]
    """How failed calls are retried: `retries`, `for`, `base`, `cap`, `longest`."""
    bounds: dict[str, int]
    """How often the same thing may happen: `parallel`, `calls`, `continuations`, `empty`, `pauses`, `invalid`, `sent_back`,
    `repairs`, `follow_ups`."""
    loops: dict[str, int]
    """When repeated turns count as a loop: `warn`, `end`."""
    watch: dict[str, int]
    """How long an effect may take: `attempt`, `prepare`, `vet`, `check`, in microseconds."""
    checked: bool
    """Whether a final answer is checked."""
    unknown_finish: Literal["keep", "retry"]
    fail_on_denied: bool
    summary_price: Price | None
    summary_model: str | None
    models: list[dict[str, Any]]


class UserMessage(TypedDict):
    """A message to the model."""

    origin: Literal["task", "steering", "follow_up", "system", "check", "summary"]
    text: str


class RequestSize(TypedDict):
    """The size of a model call, in tokens."""

    context: int
    bound: int
    exchanges: int


Event = dict[str, Any]
"""An event: an object whose only key is its kind. `architect.events` makes them."""


# The output of a step.


class Call(TypedDict):
    """A tool call of a reply."""

    id: str
    name: str
    arguments: dict[str, Any]
    """`{"complete": {"text": …}}` with the text of a JSON object, or `malformed` or `cut`."""
    digest: int


class Prepare(TypedDict):
    """Collect what the next model call depends on; completed by `prepared`."""

    type: Literal["prepare"]
    id: int
    purpose: Literal["agent", "compaction", "closing"]


class CallModel(TypedDict):
    """Call the model; completed by `replied` or `call_failed`."""

    type: Literal["call_model"]
    id: int
    purpose: Literal["agent", "compaction", "closing"]
    attempt: int
    max_output: int | None


class Authorize(TypedDict):
    """Decide whether a tool call may run; completed by `approved`, `rejected` or `aborted`."""

    type: Literal["authorize"]
    id: int
    call: Call


class RunTool(TypedDict):
    """Run an approved tool call; completed by `tool_completed`."""

    type: Literal["run_tool"]
    id: int
    call: Call


class CheckAnswer(TypedDict):
    """Check a final answer; completed by `checked`."""

    type: Literal["check_answer"]
    id: int
    answer: str


class Cancel(TypedDict):
    """Cancel an effect; nothing completes it."""

    type: Literal["cancel"]
    id: int


class End(TypedDict):
    """The run is over."""

    type: Literal["end"]


Effect = Union[Prepare, CallModel, Authorize, RunTool, CheckAnswer, Cancel, End]
"""Something to be performed."""

Note = dict[str, Any]
"""A notice: `type`, and more."""


Transition = TypedDict("Transition", {"from": str, "event": str, "to": str})
"""A change of state."""


class Deadline(TypedDict):
    """When a machine needs a tick, and what for."""

    at: int
    kind: str


class Outcome(TypedDict):
    """How a run has ended."""

    stop_reason: str
    status: Literal["success", "partial", "failed"]
    exit_code: int
    output: str | None
    error: str | None

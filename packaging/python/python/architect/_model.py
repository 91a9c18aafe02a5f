"""Models that are functions of this program."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Union

from . import _threads
from .types import FaultKind, Message, ToolDefinition


@dataclass(frozen=True)
class ModelRequest:
    """A request to a model."""

    messages: list[Message]
    """The system prompt, and the conversation after it: the messages of OpenAI's chat API, which most libraries take."""
    tools: list[ToolDefinition]
    """The tools that the model may call, in the same format. Empty for summaries."""
    purpose: Literal["agent", "compaction", "closing"]
    """The task itself, a summary of older messages, or the final summary."""
    attempt: int
    """The attempt at this call, counted from one."""
    max_output_tokens: int | None
    """The limit of the reply, if there is one."""
    output_schema: dict[str, Any] | None
    """The JSON Schema of the final answer, if it has to satisfy one."""


@dataclass(frozen=True)
class Usage:
    """What a call has used, in tokens. The input includes cached tokens, the output those of reasoning."""

    input: int
    output: int
    cached_input: int = 0
    cache_write: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class ToolCall:
    """A tool call of a reply."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    """The arguments: an object, or its text as a model has written it."""
    id: str | None = None
    """The id; unique in a conversation. Without one the call gets one."""


@dataclass(frozen=True)
class Reply:
    """The reply of a model."""

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    usage: Usage | None = None
    """What the call has used; estimated if it is missing."""
    finish: str | None = None
    """Why the model stopped: `stop`, `tool_calls`, `length`, `pause`, `refused` or `context_full`. The names of common APIs
    mean the same. By default it depends on whether there are tool calls."""
    model: str | None = None
    """The model that has replied."""


class ModelError(Exception):
    """A model call that brought no reply. Its kind decides what follows: `rate_limited`, `server`, `connect`, `timeout`,
    `truncated` and `protocol` are retried, `overflow` compacts the conversation, all others end the run."""

    def __init__(self, kind: FaultKind, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message or kind)
        self.kind = kind
        self.retry_after = retry_after
        """The time to wait before a retry, in seconds."""


ModelFunction = Callable[[ModelRequest], Union[str, Reply, Coroutine[Any, Any, Union[str, Reply]]]]
"""A model: returns its text, or a `Reply`. A coroutine runs in an event loop of its own."""


def model_starter(function: ModelFunction) -> Callable[[str, Callable[[str], None]], None]:
    """Returns the function that native code calls."""

    def reply(request: str) -> str:
        try:
            returned = _threads.call(function, ModelRequest(**json.loads(request)))
            return _reply_json(returned)
        except ModelError as error:
            return _fault_json(error.kind, str(error), error.retry_after)
        except TimeoutError as error:
            return _fault_json("timeout", _threads.describe(error))
        except ConnectionError as error:
            return _fault_json("connect", _threads.describe(error))
        except BaseException as error:  # on a thread that has no other caller
            return _fault_json("request", _threads.describe(error))

    return _threads.starter("architect-model", reply)


def _reply_json(returned: object) -> str:
    reply = Reply(returned) if isinstance(returned, str) else returned
    if not isinstance(reply, Reply):
        raise TypeError(f"a model returns a str or a Reply, not {type(reply).__name__}")
    calls = [asdict(call) for call in reply.tool_calls]
    for call in calls:
        if not isinstance(call["arguments"], str):
            call["arguments"] = json.dumps(call["arguments"])
    usage = asdict(reply.usage) if reply.usage else None
    rest = {"finish": reply.finish, "model": reply.model, "fault": None}
    return json.dumps({"text": reply.text, "tool_calls": calls, "usage": usage, **rest})


def _fault_json(kind: str, message: str, retry_after: float | None = None) -> str:
    fault = {"kind": kind, "message": message, "retry_after": retry_after}
    rest: dict[str, Any] = {"text": "", "tool_calls": [], "usage": None, "finish": None, "model": None}
    return json.dumps({"fault": fault, **rest})

"""Makes the events of a machine. `id` is that of the effect which an event completes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import _native
from ._model import ToolCall, Usage
from .types import Call, Event, FaultKind, RequestSize, UserMessage

__all__ = [
    "aborted",
    "approved",
    "arguments_of",
    "call_failed",
    "checked",
    "interrupt",
    "prepared",
    "rejected",
    "replied",
    "tick",
    "tool_completed",
]


def tick(now: int) -> Event:
    """Time has passed; it is needed at a deadline."""
    return {"tick": {"now": now}}


def interrupt(signal: Literal["interrupt", "terminate", "hangup", "pipe"] = "interrupt") -> Event:
    """The run is asked to stop."""
    return {"interrupt": {"signal": signal}}


def prepared(id: int, size: RequestSize, messages: Sequence[UserMessage] = ()) -> Event:
    """The next model call is prepared: its size, as `Machine.request_size` returns it, and messages of the user before it."""
    return {"prepared": {"id": id, "facts": size, "messages": list(messages)}}


def replied(
    id: int,
    text: str = "",
    calls: Sequence[ToolCall] = (),
    *,
    usage: Usage | None = None,
    finish: str | None = None,
    access: Sequence[str | Mapping[str, Any]] | None = None,
) -> Event:
    """The model has replied.

    `finish` is `stop`, `tool_calls`, `length`, `pause`, `refused` or `context_full`; by default it depends on whether there
    are calls. `access` has for each call what it touches: `{"read": [PATHS]}`, `{"write": [PATHS]}` or `"exclusive"`, which
    is the default.
    """
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for index, call in enumerate(calls):
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        made = _native.tool_call(call.id or f"call_{id}_{index}", call.name, arguments)
        parts.append({"call": json.loads(made)})
    used = usage or Usage(0, 0)
    numbers = {name: getattr(used, name) for name in Usage.__dataclass_fields__}
    reply = {"parts": parts, "finish": finish or ("tool_calls" if calls else "stop"), "usage": numbers}
    touched = ["exclusive"] * len(calls) if access is None else list(access)
    return {"replied": {"id": id, "reply": reply, "access": touched}}


def call_failed(id: int, kind: FaultKind, message: str = "", *, retry_after: float | None = None) -> Event:
    """The model call failed; a wait that the provider asks for is in seconds."""
    fault: dict[str, Any] = {"kind": kind, "message": message or kind}
    if retry_after is not None:
        fault["wait"] = round(retry_after * 1_000_000)
    return {"failed": {"id": id, "fault": fault}}


def approved(id: int, *, timeout: float = 120, reason: str = "", read_only: bool = False) -> Event:
    """The tool call may run, for this time in seconds. One that only reads may run again after a crash."""
    intent = "pure" if read_only else "opaque"
    clearance = {"limit": round(timeout * 1_000_000), "intent": intent, "grounds": reason}
    return {"vetted": {"id": id, "verdict": {"cleared": clearance}}}


def rejected(id: int, call: Call, reason: str) -> Event:
    """The tool call may not run."""
    result = json.loads(_native.tool_result(call["id"], "denied", reason))
    return {"vetted": {"id": id, "verdict": {"refused": {"result": result}}}}


def aborted(id: int) -> Event:
    """The user aborts the run, asked about the tool call."""
    return {"vetted": {"id": id, "verdict": "abort"}}


def tool_completed(
    id: int,
    call: Call,
    text: str,
    status: Literal["ok", "failed", "timed_out", "unknown", "malformed"] = "ok",
) -> Event:
    """The tool call has ended."""
    return {"settled": {"id": id, "result": json.loads(_native.tool_result(call["id"], status, text))}}


def checked(id: int, send_back: str | None = None) -> Event:
    """The answer is checked: accepted, or sent back with a message for the model."""
    return {"checked": {"id": id, "check": "passed" if send_back is None else {"sent_back": {"message": send_back}}}}


def arguments_of(call: Call) -> dict[str, Any]:
    """Returns the arguments of a tool call; a `ValueError` if they are no JSON object."""
    complete = call["arguments"].get("complete")
    if complete is None:
        raise ValueError(f"the arguments of {call['name']} are invalid: {call['arguments']}")
    arguments: dict[str, Any] = json.loads(complete["text"])
    return arguments

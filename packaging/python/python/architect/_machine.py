"""The state machine without a driver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from .types import Deadline, Effect, Event, Message, Note, Outcome, RequestSize, Rules, Transition, UserMessage


@dataclass(frozen=True)
class Step:
    """What follows from an event."""

    effects: list[Effect]
    """The effects to perform, in this order. The completion of each is an event with its `id`."""
    notes: list[Note]
    """Notices for the user."""
    transitions: list[Transition]
    """The changes of state."""
    state: str
    """The state after the event, as the statechart names it."""
    deadline: Deadline | None
    """When the machine needs a tick if nothing else happens."""
    fingerprint: str
    """A digest of the state and the effects, which a journal has for each event."""


class Machine:
    """The state and the conversation of a run.

    It is pure: no thread, no clock, no file. Each effect is performed by the caller, who passes its completion to `step`.
    Times are microseconds since the run began.
    """

    def __init__(self, native: _native.Machine) -> None:
        self._native = native

    @classmethod
    def start(
        cls,
        task: str | Mapping[str, Any],
        *,
        rules: Rules | None = None,
        history: Sequence[Mapping[str, Any]] = (),
        request_bytes: int = 0,
    ) -> tuple[Machine, Step]:
        """Begins a run; returns the machine and its first step.

        `rules` has those that differ from the defaults. `history` has the items of an earlier conversation, and
        `request_bytes` is the size of the system prompt and the tools, for estimates of the context.
        """
        first, own, before = (json.dumps(value) for value in (task, rules or {}, list(history)))
        native, step = _native.Machine.start(first, own, before, request_bytes)
        return cls(native), _step(step)

    def step(self, event: Event, at: int) -> Step:
        """Handles an event at this time: deadlines that have passed by then, and then the event. `architect.events` makes
        events; those of a stored journal are the same."""
        return _step(self._native.step(json.dumps(event), at))

    def resume(
        self,
        at: int,
        *,
        rules: Rules | None = None,
        prompt: Literal["message", "go_on"] = "go_on",
        found: Sequence[Mapping[str, Any]] = (),
    ) -> Step:
        """Resumes a run, for example after a crash. `found` has the results of calls that were running; a run that was over
        continues with a `message` of the user, which comes with the next preparation, or with an instruction to go on."""
        resumption = {"rules": rules or {}, "opening": prompt, "found": list(found)}
        return _step(self._native.resume(json.dumps(resumption), at))

    def copy(self) -> Machine:
        """Returns a machine in the same state, which then goes its own way."""
        return Machine(self._native.copy())

    __copy__ = copy

    @property
    def state(self) -> dict[str, Any]:
        """The state with everything in it, by its name."""
        return _object(self._native.state())

    @property
    def outcome(self) -> Outcome | None:
        """How the run has ended, if it has."""
        outcome: Outcome | None = json.loads(self._native.outcome())
        return outcome

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The items of the conversation, oldest first, as a journal has them."""
        items: list[dict[str, Any]] = json.loads(self._native.conversation())
        return items

    def messages(
        self, purpose: Literal["agent", "compaction", "closing"] = "agent", system: str = ""
    ) -> list[Message]:
        """Returns the messages of a call for this purpose, which an effect names."""
        messages: list[Message] = json.loads(self._native.messages(purpose, system))
        return messages

    def request_size(self, messages: Sequence[UserMessage] = (), system_bytes: int = 0) -> RequestSize:
        """Returns the size of the next call, with these messages before it and a system prompt of this size."""
        size: RequestSize = json.loads(self._native.request_size(json.dumps(list(messages)), system_bytes))
        return size


def _object(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document


def _step(text: str) -> Step:
    return Step(**json.loads(text))

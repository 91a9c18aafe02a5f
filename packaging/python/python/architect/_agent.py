"""Runs of the agent in this program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from . import _native
from ._model import ModelFunction, model_starter
from ._tools import Tool
from .types import FileModified, ToolUsed


class SetupError(Exception):
    """A run could not begin: the model, the workspace, a setting, a tool or the session is wrong. Nothing was sent."""


@dataclass(frozen=True)
class Result:
    """The result of a run: the document that `architect run --json` prints."""

    session_id: str | None
    status: Literal["success", "partial", "failed"]
    stop_reason: str | None
    exit_code: int
    output: str
    """The final answer, or a sentence that says why there is none."""
    structured_output: Any
    """The answer as JSON, if the agent has an output schema and the answer satisfies it."""
    steps: int
    """Replies whose tool calls ran."""
    llm_calls: int
    duration_seconds: float
    model: str | None
    tools_used: list[ToolUsed]
    files_modified: list[FileModified]
    usage: dict[str, int]
    cost: float | None
    """In US dollars, if the model has a price."""
    denied: list[dict[str, Any]]
    error: str | None
    journal_hash: str | None
    """The SHA-256 of the journal of the session, if it is stored."""
    document: dict[str, Any]
    """All fields of the document, as `architect schema result` describes them."""


class Agent:
    """An agent: a model, a workspace, tools and limits. It can run any number of tasks.

    It reads no configuration of the user, shows nothing and asks no one: what would need a confirmation is denied.
    """

    def __init__(
        self,
        model: str | ModelFunction,
        *,
        tools: Sequence[Callable[..., Any] | Tool] = (),
        workspace: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        system_prompt: str | None = None,
        budget: float | None = None,
        price: Mapping[str, float] | None = None,
        max_steps: int | None = None,
        sessions: str | os.PathLike[str] | None = None,
        commands: bool = False,
        output_schema: Mapping[str, Any] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Sets up an agent.

        * `model`: `provider/name`, whose key comes from the environment, or a function.
        * `tools`: functions that the model may call, beside the built-in tools.
        * `workspace`: the folder that the agent works on; the current one by default, unless your home is in it.
        * `agent`: a built-in one, `build` (default), `plan` or `review`.
        * `system_prompt`: replaces that of the agent.
        * `budget`: what a session may cost, in US dollars. The model needs a known price.
        * `price`: that of a model of your own, in US dollars for a million tokens: `input`, `output`, and if they differ
          `cached_input` and `cache_write`.
        * `max_steps`: how many replies with tool calls a run may have.
        * `sessions`: the folder that stores sessions, so that they can be resumed. None are stored without it.
        * `commands`: lets the model run commands, confined; needs the command `architect` (`pip install architect-agent`).
        * `output_schema`: the JSON Schema of the final answer, which is then JSON.
        * `on_event`: called with each event of a run, as `architect run --output-format stream-json` prints it.
        * `settings`: any keys of the configuration, for example `{"llm.effort": "high"}`.

        Raises `TypeError` if the model is neither a name nor a function, and `SetupError` if an option is wrong.
        """
        if not isinstance(model, str) and not callable(model):
            raise TypeError(f"the model is 'provider/name' or a function, not {type(model).__name__}")
        name = model if isinstance(model, str) else f"python/{getattr(model, '__name__', type(model).__name__)}"
        options = {
            "model": name,
            "price": dict(price) if price else None,
            "workspace": _path(workspace),
            "agent": agent,
            "system_prompt": system_prompt,
            "budget": budget,
            "max_steps": max_steps,
            "sessions": _path(sessions),
            "output_schema": dict(output_schema) if output_schema is not None else None,
            "supervisor": _find_supervisor() if commands else None,
            "settings": [(key, _setting(value)) for key, value in (settings or {}).items()],
        }
        parts = [(tool if isinstance(tool, Tool) else Tool(tool)).parts() for tool in tools]
        start = None if isinstance(model, str) else model_starter(model)
        report = None if on_event is None else _reporter(on_event)
        self._native = _setup(lambda: _native.Agent(json.dumps(options), start, parts, report))

    def run(self, task: str, *, catch_interrupt: bool = False) -> Result:
        """Runs a task to its end. A run that ends early has a result too: see its `status`. Raises `ValueError` if the task is
        empty, and `SetupError` if the run could not begin.

        Ctrl-C interrupts the run, whose session can be resumed, and then raises `KeyboardInterrupt`; with `catch_interrupt` it
        returns the result of the interrupted run. A second Ctrl-C doesn't wait for the end of the run.
        """
        _require_text("task", task)
        return self._result(lambda: self._native.run(task), catch_interrupt)

    def resume(self, session: str, message: str | None = None, *, catch_interrupt: bool = False) -> Result:
        """Resumes a stored session, with another message if there is one. The limits of steps and time begin again; those of
        money and tokens count the whole session. Raises as `run` does, also if the message is empty."""
        if message is not None:
            _require_text("message", message)
        return self._result(lambda: self._native.resume(session, message), catch_interrupt)

    def _result(self, run: Callable[[], tuple[str, BaseException | None]], catch_interrupt: bool) -> Result:
        text, interruption = _setup(run)
        document = json.loads(text)
        known = {field.name: document.get(field.name) for field in fields(Result)}
        result = Result(**{**known, "document": document})
        if interruption is not None and not (catch_interrupt and isinstance(interruption, KeyboardInterrupt)):
            raise interruption
        return result


def _require_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"the {what} is a text, not {type(text).__name__}")
    if not text.strip():
        raise ValueError(f"the {what} is empty")


def _setup(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except (RuntimeError, ValueError) as error:
        raise SetupError(str(error)) from None


def _reporter(on_event: Callable[[dict[str, Any]], None]) -> Callable[[str], None]:
    return lambda event: on_event(json.loads(event))


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _setting(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _find_supervisor() -> str:
    """Returns the command of this release: beside the interpreter, as in a virtual environment, or else on the path."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which("architect", path=beside) or shutil.which("architect")
    if found is None:
        raise SetupError("commands need the command 'architect': pip install architect-agent")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    if version != f"architect {_native.__version__}":
        raise SetupError(f"commands need architect {_native.__version__}, and {found} is {version or 'something else'}")
    return found

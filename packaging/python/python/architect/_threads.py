"""Functions of the user on threads of their own.

Native code waits for them. A thread of Python can stay behind when no one waits any more, also while the program ends.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any


def starter(name: str, function: Callable[[str], str]) -> Callable[[str, Callable[[str], None]], None]:
    """Returns a function that starts `function` on a thread, which passes its result on."""

    def start(argument: str, done: Callable[[str], None]) -> None:
        threading.Thread(target=lambda: done(function(argument)), name=name, daemon=True).start()

    return start


def call(function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """Calls a function, and waits for its result if it is a coroutine."""
    result = function(*positional, **named)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def describe(error: BaseException) -> str:
    """Returns an exception with its type, as the last line of a traceback has it."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

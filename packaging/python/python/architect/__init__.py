"""A headless coding agent whose loop is an explicit, exhaustively checked state machine.

`Agent` runs tasks with a model, tools and limits; the model and the tools can be functions of this program. `Machine` is the
state machine alone, driven by hand.
"""

from . import events, types
from ._agent import Agent, Result, SetupError
from ._machine import Machine, Step
from ._model import ModelError, ModelRequest, Reply, ToolCall, Usage
from ._native import __version__
from ._tools import Tool

__all__ = [
    "Agent",
    "Machine",
    "ModelError",
    "ModelRequest",
    "Reply",
    "Result",
    "SetupError",
    "Step",
    "Tool",
    "ToolCall",
    "Usage",
    "__version__",
    "events",
    "types",
]

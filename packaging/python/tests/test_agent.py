"""Runs with models and tools of this program."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import unittest
from typing import Annotated, Any, Literal, TypedDict

import architect
from architect import ModelError, ModelRequest, Reply, ToolCall, Usage

from support import FolderTest


class Script:
    """A model that plays replies, and keeps what it was asked."""

    def __init__(self, *replies: str | Reply | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> str | Reply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def calls(*calls: ToolCall) -> Reply:
    return Reply(tool_calls=calls)


def tool_text(request: ModelRequest) -> str:
    last = request.messages[-1]
    assert last["role"] == "tool", last
    return str(last["content"])


class AgentTest(FolderTest):
    def agent(self, model: Any, **options: Any) -> architect.Agent:
        return architect.Agent(model, workspace=self.folder, **options)

    def test_a_tool_is_called_and_its_result_goes_to_the_model(self) -> None:
        def add(a: Annotated[int, "The first number."], b: int = 1) -> dict[str, int]:
            """Adds."""
            return {"sum": a + b}

        model = Script(calls(ToolCall("add", {"a": 2})), "Three.")
        result = self.agent(model, tools=[add]).run("Add.")
        self.assertEqual((result.status, result.output, result.steps), ("success", "Three.", 1))
        self.assertEqual(result.tools_used[0]["name"], "add")
        self.assertEqual(tool_text(model.requests[1]), '{"sum": 3}')
        [tool] = [tool for tool in model.requests[0].tools if tool["function"]["name"] == "add"]
        self.assertEqual(tool["function"]["description"], "Adds.")
        a = {"type": "integer", "description": "The first number."}
        self.assertEqual(tool["function"]["parameters"]["properties"], {"a": a, "b": {"type": "integer"}})
        self.assertEqual([message["role"] for message in model.requests[0].messages], ["system", "user"])

    def test_what_is_no_model_or_task_is_refused_at_once(self) -> None:
        for no_model in (None, 5, ["openai/gpt-5"]):
            with self.assertRaisesRegex(TypeError, "'provider/name' or a function"):
                self.agent(no_model)
        model = Script("Never.")
        agent = self.agent(model, sessions=self.folder / "sessions")
        for empty in ("", " \n"):
            with self.assertRaisesRegex(ValueError, "the task is empty"):
                agent.run(empty)
            with self.assertRaisesRegex(ValueError, "the message is empty"):
                agent.resume("last", empty)
        none: Any = None
        with self.assertRaises(TypeError):
            agent.run(none)
        self.assertEqual(model.requests, [])

    def test_the_hash_of_a_stored_journal_is_in_the_result(self) -> None:
        sessions = self.folder / "sessions"
        stored = self.agent(Script("One."), sessions=sessions).run("Answer.")
        [path] = sessions.rglob("*.jsonl")
        self.assertEqual(stored.journal_hash, hashlib.sha256(path.read_bytes()).hexdigest())
        self.assertIsNone(self.agent(Script("Two.")).run("Answer.").journal_hash)

    def test_built_in_tools_work_on_the_workspace(self) -> None:
        (self.folder / "note.txt").write_text("Buy milk.\n")
        model = Script(calls(ToolCall("read_file", '{"path": "note.txt"}')), "Milk.")
        self.assertEqual(self.agent(model).run("Read.").output, "Milk.")
        self.assertIn("Buy milk.", tool_text(model.requests[1]))

    def test_an_exception_of_a_tool_is_its_result(self) -> None:
        def fails(kind: Literal["a", "b"]) -> None:
            raise LookupError(f"there is no {kind}")

        def exits() -> None:
            sys.exit(3)

        model = Script(calls(ToolCall("fails", {"kind": "a"})), calls(ToolCall("exits")), "It failed.")
        result = self.agent(model, tools=[fails, exits]).run("Try.")
        self.assertEqual((result.status, result.output), ("success", "It failed."))
        self.assertEqual([tool["success"] for tool in result.tools_used], [False, False])
        self.assertEqual(tool_text(model.requests[1]), "LookupError: there is no a")
        self.assertEqual(tool_text(model.requests[2]), "SystemExit: 3")

    def test_arguments_that_do_not_fit_never_reach_the_tool(self) -> None:
        seen: list[int] = []
        model = Script(calls(ToolCall("append", {"object": "x"})), "No.")
        append = architect.Tool(seen.append, name="append", description="", schema={
            "type": "object", "properties": {"object": {"type": "integer"}}, "required": ["object"],
        })
        self.agent(model, tools=[append]).run("Try.")
        self.assertEqual(seen, [])
        self.assertIn("Invalid arguments for append: /object: ", tool_text(model.requests[1]))

    def test_tools_that_only_read_run_at_the_same_time(self) -> None:
        both = threading.Barrier(2)

        def wait() -> str:
            """Waits for another call."""
            both.wait(timeout=60)
            return "met"

        model = Script(calls(ToolCall("wait"), ToolCall("wait")), "Done.")
        result = self.agent(model, tools=[architect.Tool(wait, read_only=True)]).run("Wait.")
        self.assertEqual([tool["success"] for tool in result.tools_used], [True, True])

    def test_coroutines_are_models_and_tools(self) -> None:
        async def double(n: int) -> int:
            await asyncio.sleep(0)
            return 2 * n

        script = Script(calls(ToolCall("double", {"n": 4})), "Eight.")

        async def model(request: ModelRequest) -> str | Reply:
            await asyncio.sleep(0)
            return script(request)

        self.assertEqual(self.agent(model, tools=[double]).run("Double.").output, "Eight.")
        self.assertEqual(tool_text(script.requests[1]), "8")

    def test_a_fault_that_passes_is_retried(self) -> None:
        model = Script(ModelError("rate_limited", retry_after=0.01), ConnectionError("reset"), "Here.")
        result = self.agent(model, settings={"llm.retries": 2}).run("Go.")
        self.assertEqual((result.output, [request.attempt for request in model.requests]), ("Here.", [1, 2, 3]))

    def test_an_exception_of_a_model_ends_the_run(self) -> None:
        for error, code in [(KeyError("x"), 1), (ModelError("auth", "no key"), 4)]:
            result = self.agent(Script(error)).run("Go.")
            self.assertEqual((result.status, result.stop_reason, result.exit_code), ("failed", "llm_error", code))
            self.assertIn(str(error), result.error or "")

    def test_a_reply_of_another_type_is_an_error(self) -> None:
        result = self.agent(lambda request: 5).run("Go.")
        self.assertIn("a model returns a str or a Reply, not int", result.error or "")

    def test_money_is_counted_and_limited(self) -> None:
        usage = Usage(input=1000, output=100)
        price = {"input": 1.0, "output": 10.0}
        result = self.agent(Script(Reply("Hi.", usage=usage)), price=price, budget=1.0).run("Go.")
        self.assertEqual((result.cost, result.usage["input_tokens"]), (0.002, 1000))
        with self.assertRaisesRegex(architect.SetupError, "has a budget, and the price of python/Script is unknown"):
            self.agent(Script(), budget=1.0)

    def test_an_answer_has_the_schema_that_was_asked_for(self) -> None:
        schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
        model = Script("Three.", '{"n": 3}')
        result = self.agent(model, output_schema=schema).run("Count.")
        self.assertEqual((result.structured_output, model.requests[0].output_schema), ({"n": 3}, schema))

    def test_a_stored_session_is_resumed(self) -> None:
        model = Script("What name?", "Then it is x.")
        first = self.agent(model, sessions="sessions").run("Name it.")
        second = self.agent(model, sessions="sessions").resume(first.session_id or "", "Choose one.")
        self.assertEqual(second.output, "Then it is x.")
        self.assertEqual([message["content"] for message in model.requests[1].messages][1:],
                         ["Name it.", "What name?", "Choose one."])

    def test_events_are_those_of_the_stream(self) -> None:
        seen: list[dict[str, Any]] = []
        self.agent(Script("Hi."), on_event=seen.append).run("Go.")
        self.assertEqual((seen[0]["type"], seen[-1]["type"]), ("agent_start", "agent_end"))
        self.assertIn("Hi.", [event.get("text") for event in seen if event["type"] == "text_delta"])

    def test_an_exception_in_a_callback_does_not_change_the_run(self) -> None:
        seen: list[object] = []
        before, sys.unraisablehook = sys.unraisablehook, lambda raised: seen.append(raised.exc_value)
        self.addCleanup(setattr, sys, "unraisablehook", before)
        agent = self.agent(Script("Hi."), on_event=lambda event: event["nonsense"])
        self.assertEqual(agent.run("Go.").output, "Hi.")
        self.assertIsInstance(seen[0], KeyError)

    def test_a_tool_with_a_time_limit_is_left_behind(self) -> None:
        release = threading.Event()
        self.addCleanup(release.set)
        model = Script(calls(ToolCall("wait", {})), "It took too long.")
        tool = architect.Tool(lambda: release.wait(), name="wait", description="", timeout=0.1)
        result = self.agent(model, tools=[tool]).run("Wait.")
        self.assertEqual((result.output, result.tools_used[0]["success"]), ("It took too long.", False))

    def test_a_program_runs_several_agents_at_once(self) -> None:
        both = threading.Barrier(2)

        def model(request: ModelRequest) -> str:
            both.wait(timeout=60)
            return "Met."

        agent, outputs = self.agent(model), list[str]()
        threads = [threading.Thread(target=lambda: outputs.append(agent.run("Go.").output)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(outputs, ["Met.", "Met."])

    def test_what_is_wrong_with_the_set_up_is_an_exception(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"workspace": self.folder / "none"}, "could not open the workspace"),
            ({"settings": {"limits.nonsense": 1}}, "limits.nonsense"),
            ({"agent": "nobody"}, "nobody"),
            ({"tools": [architect.Tool(print, name="a b", schema={})]}, "a b"),
        ]
        for options, message in wrong:
            with self.assertRaisesRegex(architect.SetupError, message):
                architect.Agent(Script(), **{"workspace": self.folder, **options})
        with self.assertRaisesRegex(architect.SetupError, "stores no sessions"):
            self.agent(Script()).resume("01a20158-f98f-7306-96c4-7c68bf9794f1")


class SchemaTest(unittest.TestCase):
    def test_hints_are_a_schema(self) -> None:
        class Point(TypedDict):
            x: float
            label: str | None

        def tool(names: list[str], table: dict[str, int], point: Point, any: Any, *, how: int | str = 1) -> None: ...

        tool.__annotations__["point"] = Point
        schema = architect.Tool(tool).schema
        self.assertEqual(schema["required"], ["names", "table", "point", "any"])
        self.assertEqual(schema["properties"], {
            "names": {"type": "array", "items": {"type": "string"}},
            "table": {"type": "object", "additionalProperties": {"type": "integer"}},
            "point": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "label": {"type": "string"}},
                "required": ["label", "x"],
                "additionalProperties": False,
            },
            "any": {},
            "how": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        })

    def test_a_function_without_a_schema_is_refused(self) -> None:
        def untyped(x):  # type: ignore[no-untyped-def]
            pass

        def positional(x: int, /) -> None: ...

        def odd(x: set[int]) -> None: ...

        for function, message in [(untyped, "has no type hint"), (positional, "by its name"), (odd, "JSON can't express")]:
            with self.assertRaisesRegex(TypeError, message):
                architect.Tool(function)


if __name__ == "__main__":
    unittest.main()

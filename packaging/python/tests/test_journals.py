"""The same scenario leads to the same journal, whether the command runs it or this program, and with every way to play the model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
import unittest
from itertools import zip_longest
from pathlib import Path
from typing import Any

import architect
from architect import ModelError, ModelRequest, Reply, ToolCall, Usage

from support import COMMAND, ROOT, FolderTest, journal
from test_machine import replay

SCENARIOS = ROOT / "tests" / "scenarios"

KEYS = {"about", "prompt", "workspace", "turn", "expect", "mode", "sets", "price", "schema", "repeat"}
"""What scenarios may have here. All others are about a terminal, or about times on a simulated clock."""

SLOW = {"retry.toml", "timeout.toml", "zero_step_timeout.toml"}
"""Those that wait on the real clock, or measure with it."""

DISPATCH = {"subagent.toml"}
"""Those with more than one journal."""

VOLATILE = {
    "seq", "at", "ts", "crc", "chain", "mark", "session", "created", "seed", "took", "model", "options",
    "inode", "device", "encode", "first_byte", "sync", "now", "digest",
}
"""Ids, times, digests of them, the name of the model, and the options of the command."""


ONE_BY_ONE = "context.parallel_tools=false"
"""The calls of a reply complete in any order otherwise."""


def stable(value: Any) -> Any:
    """Returns a value without what differs between any two runs."""
    if isinstance(value, dict):
        return {key: stable(item) for key, item in value.items() if key not in VOLATILE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def stable_records(records: list[dict[str, Any]]) -> list[Any]:
    """Returns the records of a journal likewise, but for checkpoints of the workspace, which are taken beside model calls."""
    return [stable(record) for record in records if "checkpoint" not in record]


class Player:
    """A model of this program that plays the turns of a scenario, as the scripted one does."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.turns, self.repeat, self.calls = scenario["turn"], scenario.get("repeat", False), 0

    def __call__(self, request: ModelRequest) -> Reply:
        number, length = self.calls, len(self.turns)
        self.calls += 1
        turn = self.turns[number % length]
        if error := turn.get("error"):
            wait = error.get("wait_ms")
            raise ModelError(error["kind"], error.get("message", "scripted error"), retry_after=wait and wait / 1000)
        calls = [
            ToolCall(call["name"], call["raw"] if "raw" in call else json.dumps(call.get("arguments", {}), separators=(",", ":")),
                     call.get("id", f"call_{number}_{index}"))
            for index, call in enumerate(turn.get("calls", []))
        ]
        return Reply(turn.get("text", ""), calls, Usage(**turn["usage"]), turn.get("finish"), "scripted")


def scenarios() -> dict[str, dict[str, Any]]:
    """Returns the scenarios that can be run here, each turn with its usage."""
    found = {}
    for path in sorted(SCENARIOS.glob("*.toml")):
        scenario = tomllib.loads(path.read_text())
        if scenario.keys() <= KEYS and path.name not in SLOW | DISPATCH:
            for turn in scenario["turn"]:
                turn.setdefault("usage", {"input": 100, "output": 20})
            found[path.name] = scenario
    return found


@unittest.skipUnless(COMMAND, "the command architect is not on the path")
class JournalTest(FolderTest):
    def script(self, scenario: dict[str, Any]) -> Path:
        """Writes the turns as a script, which has no other keys of a scenario."""
        head = {key: scenario[key] for key in ("repeat", "price") if key in scenario}
        lines = ([head] if head else []) + scenario["turn"]
        path = self.folder / "script.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def prepare(self, scenario: dict[str, Any]) -> tuple[Path, Path]:
        """Returns a new workspace, and a new folder for sessions."""
        workspace, sessions = self.workspace(), self.folder / "sessions"
        shutil.rmtree(sessions, ignore_errors=True)
        for name, content in scenario.get("workspace", {}).items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
        return workspace, sessions

    def run_command(self, scenario: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        workspace, sessions = self.prepare(scenario)
        words = ["run", scenario["prompt"], "--json", "--model", f"scripted/{self.script(scenario)}"]
        words += ["--workspace", str(workspace), "--set", f"sessions.dir={sessions}", "--set", ONE_BY_ONE]
        words += ["--mode", scenario["mode"]] if "mode" in scenario else []
        for setting in scenario.get("sets", []):
            words += ["--set", setting]
        if "schema" in scenario:
            schema = self.folder / "schema.json"
            schema.write_text(json.dumps(scenario["schema"]))
            words += ["--output-schema", str(schema)]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home")}
        done = subprocess.run([COMMAND or "", *words], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertTrue(done.stdout, done.stderr)
        return journal(sessions), json.loads(done.stdout)

    def run_here(self, scenario: dict[str, Any], model: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        workspace, sessions = self.prepare(scenario)
        settings = dict(setting.split("=", 1) for setting in [ONE_BY_ONE, *scenario.get("sets", [])])
        if "mode" in scenario:
            settings["agents.build.confirm_mode"] = scenario["mode"]
        is_named = isinstance(model, str)
        agent = architect.Agent(
            model,
            workspace=workspace,
            sessions=sessions,
            settings=settings,
            commands=True,
            price=None if is_named else scenario.get("price"),
            output_schema=scenario.get("schema"),
        )
        result = agent.run(scenario["prompt"])
        return journal(sessions), result.document

    def test_the_journals_are_the_same(self) -> None:
        found = scenarios()
        self.assertGreater(len(found), 12)
        for name, scenario in found.items():
            with self.subTest(name):
                expected, document = self.run_command(scenario)
                for model in (f"scripted/{self.script(scenario)}", Player(scenario)):
                    records, result = self.run_here(scenario, model)
                    for got, record in zip_longest(stable_records(records), stable_records(expected)):
                        self.assertEqual(got, record)
                    for key in ("status", "stop_reason", "exit_code", "output", "steps", "llm_calls", "usage", "cost"):
                        self.assertEqual(result[key], document[key], key)
                stored = [(record["state"], record["mark"]) for record in expected[1:] if "mark" in record]
                self.assertEqual(replay([record for record in expected if "mark" in record or "header" in record]), stored)


if __name__ == "__main__":
    unittest.main()

"""The machine, driven by hand."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import architect
from architect import events

from support import ROOT


def replay(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Plays the records of a journal; returns the state and the fingerprint before each."""
    header = records[0]["header"]
    machine, step = architect.Machine.start(
        header["task"], rules=header["rules"], history=header.get("history", []), request_bytes=header["fixed"]
    )
    before = []
    for record in records[1:]:
        before.append((step.state, step.fingerprint))
        if "event" in record:
            step = machine.step(record["event"], record["at"])
        elif "resumed" in record:
            resumed = record["resumed"]["resumption"] if "resumption" in record["resumed"] else record["resumed"]
            step = machine.resume(record["at"], rules=resumed["rules"], prompt=resumed["opening"], found=resumed["found"])
    return before


class MachineTest(unittest.TestCase):
    def test_the_example_runs(self) -> None:
        example = Path(__file__).parents[1] / "examples" / "manual_machine.py"
        printed = subprocess.run([sys.executable, example], check=True, capture_output=True, text=True).stdout
        self.assertIn("Calling.Sending -> Executing\n", printed)
        self.assertTrue(printed.endswith("2 and 3 are 5.\n"), printed)

    def test_stored_journals_lead_to_the_same_states(self) -> None:
        paths = sorted((ROOT / "tests/journals/format-1").glob("*.jsonl"))
        self.assertGreater(len(paths), 3)
        for path in paths:
            records = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
            with self.subTest(path.name):
                stored = [(record["state"], record["mark"]) for record in records[1:] if "mark" in record]
                self.assertEqual(replay([record for record in records if "mark" in record or "header" in record]), stored)

    def test_a_deadline_ends_a_run(self) -> None:
        machine, step = architect.Machine.start("Go.", rules={"limits": {"timeout": 10_000_000}})
        self.assertEqual(step.effects, [{"type": "prepare", "id": 1, "purpose": "agent"}])
        step = machine.step(events.prepared(1, machine.request_size()), at=5)
        assert step.deadline is not None
        self.assertEqual((step.state, step.deadline["kind"]), ("Calling.Sending", "run_timeout"))
        step = machine.step(events.tick(step.deadline["at"]), at=step.deadline["at"])
        self.assertEqual(step.state, "Closing.Preparing")
        self.assertEqual([note["type"] for note in step.notes], ["limit_reached"])

    def test_every_kind_of_event_is_accepted(self) -> None:
        machine, _ = architect.Machine.start("Go.", rules={"checked": True})
        call = architect.ToolCall("t", {"a": 1}, id="c")
        machine.step(events.prepared(1, machine.request_size(), [{"origin": "steering", "text": "Soon."}]), at=1)
        step = machine.step(events.call_failed(2, "rate_limited", retry_after=1.5), at=2)
        assert step.deadline is not None
        now = step.deadline["at"]
        step = machine.step(events.tick(now), at=now)
        self.assertEqual([effect["type"] for effect in step.effects], ["call_model"])
        usage = architect.Usage(10, 5, cached_input=3)
        step = machine.step(events.replied(3, "Hm.", [call], usage=usage, access=[{"read": ["a"]}]), at=now)
        [effect] = step.effects
        assert effect["type"] == "authorize"
        self.assertEqual(events.arguments_of(effect["call"]), {"a": 1})
        other = machine.copy()
        self.assertEqual(other.step(events.aborted(4), at=now).state, "Done")
        self.assertEqual(copy.copy(machine).step(events.interrupt(), at=now).state, "Done")
        step = machine.step(events.rejected(4, effect["call"], "Not now."), at=now)
        self.assertEqual(machine.messages()[-1], {"role": "tool", "tool_call_id": "c", "content": "Not now."})
        machine.step(events.prepared(5, machine.request_size()), at=now)
        machine.step(events.replied(6, "Done."), at=now)
        machine.step(events.checked(7, send_back="Test it."), at=now)
        machine.step(events.prepared(8, machine.request_size()), at=now)
        machine.step(events.replied(9, "Tested."), at=now)
        machine.step(events.checked(10), at=now)
        self.assertEqual(machine.outcome, {
            "stop_reason": "llm_done", "status": "success", "exit_code": 0, "output": "Tested.", "error": None,
        })

    def test_a_run_that_is_over_is_resumed(self) -> None:
        machine, _ = architect.Machine.start("Go.")
        machine.step(events.interrupt("terminate"), at=1)
        self.assertEqual(machine.outcome and machine.outcome["exit_code"], 143)
        self.assertEqual(machine.resume(5, prompt="message").state, "Preparing")
        self.assertIsNone(machine.outcome)

    def test_what_is_wrong_is_named(self) -> None:
        for rules, message in [
            ({"limits": {"max_step": 0}}, "there is no 'limits.max_step'"),
            ({"limits": {"max_steps": -1}}, "invalid rules: invalid value"),
            ({"backoff": {"for": 5, "is": 1}}, "there is no 'backoff.is'"),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                architect.Machine.start("Go.", rules=rules)  # type: ignore[arg-type]
        machine, _ = architect.Machine.start("Go.")
        with self.assertRaisesRegex(ValueError, "invalid event: unknown variant `prepard`"):
            machine.step({"prepard": {}}, at=1)
        with self.assertRaises(ValueError):
            events.arguments_of({"id": "", "name": "t", "arguments": {"malformed": {}}, "digest": 0})


if __name__ == "__main__":
    unittest.main()

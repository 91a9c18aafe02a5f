"""Ctrl-C in a program that runs an agent."""

from __future__ import annotations

import signal
import subprocess
import sys
import unittest

from support import FolderTest

PROGRAM = """
import sys, time, signal, architect
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell ignores it

def slow():
    '''Takes long.'''
    print("tool", flush=True)
    time.sleep(600)

def model(request):
    if sys.argv[1] == "tool":
        return architect.Reply(tool_calls=[architect.ToolCall("slow")])
    print("model", flush=True)
    time.sleep(600)

agent = architect.Agent(model, tools=[slow], sessions="sessions", workspace=".")
result = agent.run("Take your time.", catch_interrupt=sys.argv[2] == "return")
print(result.exit_code, result.stop_reason, result.output, flush=True)
"""


class InterruptTest(FolderTest):
    def interrupt(self, where: str, then: str) -> tuple[int, str, str]:
        command = [sys.executable, "-c", PROGRAM, where, then]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout and process.stderr
            self.assertEqual(process.stdout.readline(), where + "\n")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
            return process.returncode, out, err

    def test_a_run_ends_with_what_there_is(self) -> None:
        for where in ("model", "tool"):
            with self.subTest(where):
                code, out, err = self.interrupt(where, "return")
                self.assertEqual((code, out, err), (0, "130 user_interrupt Interrupted by the user.\n", ""))

    def test_it_is_a_keyboard_interrupt_for_those_who_do_not_look(self) -> None:
        code, out, err = self.interrupt("model", "raise")
        self.assertEqual(code, -signal.SIGINT, err)
        self.assertEqual((out, err.splitlines()[-1]), ("", "KeyboardInterrupt"))


if __name__ == "__main__":
    unittest.main()

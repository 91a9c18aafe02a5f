"""The machine without a driver: each effect is answered with an event. There is no thread, no clock and no network."""

from collections import deque

import architect
from architect import events


def main() -> None:
    machine, step = architect.Machine.start("Add 2 and 3.", rules={"checked": True})
    effects, now = deque(step.effects), 0
    while effects:
        effect = effects.popleft()
        if effect["type"] == "prepare":
            event = events.prepared(effect["id"], machine.request_size())
        elif effect["type"] == "call_model":
            last = machine.messages(effect["purpose"])[-1]
            if last["role"] == "tool":
                event = events.replied(effect["id"], f"2 and 3 are {last['content']}.")
            else:
                event = events.replied(effect["id"], calls=[architect.ToolCall("add", {"numbers": [2, 3]})])
        elif effect["type"] == "authorize":
            event = events.approved(effect["id"], timeout=10, reason="it only adds", read_only=True)
        elif effect["type"] == "run_tool":
            total = sum(events.arguments_of(effect["call"])["numbers"])
            event = events.tool_completed(effect["id"], effect["call"], str(total))
        elif effect["type"] == "check_answer":
            event = events.checked(effect["id"])
        else:
            continue
        now += 1_000_000
        step = machine.step(event, at=now)
        for change in step.transitions:
            print(f"{change['from']} -> {change['to']}")
        effects.extend(step.effects)
    print(machine.outcome and machine.outcome["output"])


if __name__ == "__main__":
    main()

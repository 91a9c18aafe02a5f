"""Kills a trial in the middle of a command, and starts it again. Needs the package harbor, and architect in PATH:

    python test_architect_harbor.py
"""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path, PurePosixPath

from architect_harbor import ArchitectAgent
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Trajectory

SCRIPT = """
price = { input = 1.0, output = 10.0 }
max_output = 100
[[turn]]
calls = [{ name = "run_command", arguments = { command = "echo ran >> ran" } }]
usage = { input = 2000, output = 100 }
[[turn]]
calls = [{ name = "run_command", arguments = { command = "echo $PPID >> slow; sleep 60" } }]
usage = { input = 2000, output = 100 }
[[turn]]
text = "Done."
usage = { input = 2000, output = 100 }
[[turn]]
text = "Done again."
usage = { input = 2000, output = 100 }
"""


class LocalEnvironment(BaseEnvironment):
    """A folder of this machine."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.processes = []

    @staticmethod
    def type() -> str:
        return "local"

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, cwd=cwd or self.folder, env={**os.environ, **(env or {})}, start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        self.processes.append(process)
        out, err = await process.communicate()
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)

    def _validate_definition(self): ...
    async def start(self, force_build): ...
    async def stop(self, delete): ...
    async def prepare_logs_for_host(self): ...
    async def upload_file(self, source_path, target_path): ...
    async def upload_dir(self, source_dir, target_dir): ...
    async def download_file(self, source_path, target_path): ...
    async def download_dir(self, source_dir, target_dir): ...


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        work, logs = root / "it's work", root / "the logs"
        work.mkdir()
        (root / "home").mkdir()
        os.environ["HOME"] = str(root / "home")
        (root / "script.toml").write_text(SCRIPT)
        environment = LocalEnvironment(work)

        def agent():
            return ArchitectAgent(logs, f"scripted/{root}/script.toml", environment_logs_dir=PurePosixPath(logs))

        await agent().setup(environment)
        killed = asyncio.create_task(agent().run("Do it, isn't it?", environment, AgentContext()))
        deadline = time.monotonic() + 30
        while not (work / "slow").exists():
            assert time.monotonic() < deadline and not killed.done(), "the command has not begun"
            await asyncio.sleep(0.05)
        # The container is lost with all that runs in it.
        os.killpg(environment.processes[-1].pid, signal.SIGKILL)
        assert isinstance((await asyncio.gather(killed, return_exceptions=True))[0], RuntimeError)

        context = AgentContext()
        await agent().run("Do it, isn't it?", environment, context)
        assert (work / "ran").read_text() == "ran\n", "a completed tool has run again"
        assert len((work / "slow").read_text().splitlines()) == 1, "an interrupted tool has run again"
        assert context.metadata["status"] == "success", context
        assert context.n_input_tokens == 6000 and abs(context.cost_usd - 0.009) < 1e-9, context
        trajectory = Trajectory.model_validate_json((logs / "trajectory.json").read_text())
        assert trajectory.steps[-1].message == "Done."

        await agent().resume("And again.", environment, context)
        trajectory = Trajectory.model_validate_json((logs / "trajectory.json").read_text())
        assert [step.message for step in trajectory.steps[-2:]] == ["And again.", "Done again."]
        print("a killed trial was resumed, no tool ran twice, the trajectory is valid")


asyncio.run(main())

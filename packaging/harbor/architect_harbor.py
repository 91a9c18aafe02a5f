"""Runs architect as an agent of Harbor (https://pypi.org/project/harbor):

    harbor run … --agent-import-path architect_harbor:ArchitectAgent --model anthropic/NAME --ak binary=PATH

The session is in the folder of the agent's logs. If a trial is started again, its session is resumed: completed tool
calls don't run again.
"""

import json
import shlex
import uuid

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

# `resume` continues a session that was interrupted; one that was never stored begins.
SCRIPT = """
export XDG_STATE_HOME={logs}/state
mkdir -p {logs} && cd {logs} || exit
[ -s session ] || echo {new} > session
id=$(cat session)
cd "$OLDPWD" || exit
if architect sessions show "$id" >/dev/null 2>&1; then
    architect resume "$id" {prompt} {options} --json > {logs}/result.json 2>> {logs}/architect.log
else
    architect run {first} --session "$id" {options} --json > {logs}/result.json 2>> {logs}/architect.log
fi
code=$?
architect export "$id" --format atif > {logs}/trajectory.json 2>> {logs}/architect.log
exit $code
"""

# Exit codes with a result: success, and a partial one after a limit.
RESULTS = (0, 2)


class ArchitectAgent(BaseAgent):
    """architect in the container of a task."""

    SUPPORTS_ATIF = True
    SUPPORTS_RESUME = True

    def __init__(self, *args, binary: str | None = None, options: str = "", **kwargs):
        """`binary` is uploaded if the container has no architect; `options` are further ones of `architect run`."""
        super().__init__(*args, **kwargs)
        self.binary = binary
        self.options = shlex.split(options)

    @staticmethod
    def name() -> str:
        return "architect"

    def version(self) -> str | None:
        return None

    async def setup(self, environment: BaseEnvironment) -> None:
        found = await environment.exec("architect --version")
        if found.return_code != 0:
            if not self.binary:
                raise RuntimeError("the container has no architect; --ak binary=PATH uploads one")
            await environment.upload_file(self.binary, "/usr/local/bin/architect")
            await environment.exec("chmod 755 /usr/local/bin/architect", user="root")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await self._run(instruction, None, environment, context)

    async def resume(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await self._run(instruction, instruction, environment, context)

    async def _run(self, first: str, prompt: str | None, environment: BaseEnvironment, context: AgentContext) -> None:
        options = ["--mode", "yolo", *(["--model", self.model_name] if self.model_name else []), *self.options]
        # A prompt that begins with @ would be a file.
        words = lambda text: shlex.quote(" " + text if text.startswith(("@", "-")) else text)
        command = SCRIPT.format(
            logs=shlex.quote(str(self.environment_logs_dir)),
            new=uuid.uuid4(),
            prompt=words(prompt) if prompt else "",
            first=words(first),
            options=shlex.join(options),
        )
        done = await environment.exec(command, env=self._keys())
        self._read_result(await self._read(environment, "result.json"), context)
        if done.return_code not in RESULTS:
            raise RuntimeError(f"architect ended with exit code {done.return_code}: {(done.stderr or '')[-2000:]}")

    def _keys(self) -> dict[str, str]:
        """The key of the model's provider, and what the trial adds to the environment."""
        provider = (self.model_name or "").split("/")[0].removesuffix("-chat")
        name = f"{provider.upper().replace('-', '_')}_API_KEY"
        key = self._get_env(name)
        return {**self.extra_env, **({name: key} if key else {})}

    async def _read(self, environment: BaseEnvironment, name: str) -> str:
        path = shlex.quote(str(self.environment_logs_dir / name))
        return (await environment.exec(f"cat {path}")).stdout or ""

    def _read_result(self, text: str, context: AgentContext) -> None:
        try:
            result = json.loads(text)
        except ValueError:
            return
        usage = result.get("usage") or {}
        context.n_input_tokens = usage.get("input_tokens")
        context.n_cache_tokens = usage.get("cached_input_tokens")
        context.n_output_tokens = usage.get("output_tokens")
        context.cost_usd = result.get("cost")
        context.metadata = {key: result.get(key) for key in ("session_id", "status", "stop_reason", "steps")}

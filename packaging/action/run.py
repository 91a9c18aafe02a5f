"""The GitHub Action: runs architect on the checkout, and reports to the runner.

Inputs are variables, and commands are started without a shell, so that nothing in them is interpreted. What the runner
reads from this program's output and files is escaped.
"""

import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import urllib.request

MODES = {
    "review": ["--agent", "review"],
    "plan": ["--agent", "plan"],
    "build": ["--agent", "build", "--mode", "yolo"],
}

# Variables with keys: their values are masked in the log.
KEY_NAME = re.compile(
    r"(_API_KEY|_AUTH_TOKEN|^AWS_SECRET_ACCESS_KEY|^AWS_SESSION_TOKEN|^AWS_BEARER_TOKEN_BEDROCK"
    r"|^VERTEX_ACCESS_TOKEN|^GOOGLE_OAUTH_ACCESS_TOKEN)$"
)

# Models that need no key.
WITHOUT_KEY = ("scripted/", "replay/", "ollama/", "llama-cpp/", "vllm/")

# A finding at the beginning of a line of an answer, as `src/main.rs:12: …` or `- **src/main.rs:12** …`.
FINDING = re.compile(r"^[\s\-*•\d.)]{0,8}[`*(\[]{0,4}([^\s:`*()\[\]]+):(\d+)(?:[-:]\d+)?[`*)\]]{0,4}:?\s+(.+)$")
MAX_FINDINGS = 10

# The longest answer as an output; all outputs of a job may have 1 MB.
MAX_ANSWER = 200_000


class Refused(Exception):
    """The inputs, or the event, don't allow the run."""


def command(name: str, message: str, **properties: str) -> None:
    """Prints a command for the runner."""

    def escape(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    values = (f"{key}={escape(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items())
    listed = ",".join(values)
    print(f"::{name}{' ' + listed if listed else ''}::{escape(message)}", flush=True)


def set_output(name: str, value: str) -> None:
    # No text can contain a delimiter that it can't know.
    delimiter = f"end-{secrets.token_hex(16)}"
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
        file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")


def is_from_fork(event: dict) -> bool:
    """Returns whether somebody without write access may have written what is checked out, or what the event says."""
    # Anyone can open an issue, comment, review, fork, and change the pages of an open wiki, whatever is checked out.
    if any(key in event for key in ("issue", "comment", "review", "discussion", "pages", "forkee")):
        return True
    own = (event.get("repository") or {}).get("full_name")
    request = event.get("pull_request") or {}
    if request:
        head = (request.get("head") or {}).get("repo") or {}
        return head.get("full_name") != own
    run = event.get("workflow_run") or {}
    if run:
        is_open = re.search("issue|comment|review|discussion|gollum|fork", run.get("event") or "")
        return bool(is_open) or (run.get("head_repository") or {}).get("full_name") != own
    return False


def find_program(name: str) -> str | None:
    """Returns a program on the path. A relative folder of the path could be in the checkout."""
    path = os.pathsep.join(filter(os.path.isabs, os.environ["PATH"].split(os.pathsep)))
    return shutil.which(name, path=path)


def binary(folder: pathlib.Path) -> str:
    """Returns the program: the one on the path, or that of a release, checked by its checksum."""
    found = find_program("architect")
    version = os.environ.get("INPUT_VERSION") or os.environ.get("ACTION_REF", "")
    version = version.removeprefix("v")
    if found and not os.environ.get("INPUT_VERSION"):
        return found
    if not re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)?", version):
        raise Refused(f"'{version}' is not a release; set `version`")
    system = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin"}.get(sys.platform)
    machine = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(os.uname().machine)
    if not system or not machine:
        raise Refused("there is no binary for this system")
    name = f"architect-{version}-{machine}-{system}"
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    base = os.environ.get("ACTION_RELEASES")
    base = base or f"{server}/{os.environ.get('ACTION_REPOSITORY', '')}/releases/download"

    def get(file: str) -> bytes:
        with urllib.request.urlopen(f"{base}/v{version}/{file}", timeout=120) as answer:
            return answer.read()

    archive = get(f"{name}.tar.gz")
    sums = dict(reversed(line.split()) for line in get("SHA256SUMS").decode().splitlines())
    if hashlib.sha256(archive).hexdigest() != sums.get(f"{name}.tar.gz"):
        raise Refused(f"the checksum of {name}.tar.gz is wrong")
    path = folder / f"{name}.tar.gz"
    path.write_bytes(archive)
    with tarfile.open(path) as opened:
        (folder / "architect").write_bytes(opened.extractfile(f"{name}/architect").read())
    (folder / "architect").chmod(0o755)
    path.unlink()
    return str(folder / "architect")


def working_directory() -> str:
    """Returns the folder to work in. If its path leads through the checkout, it must end there: a fork can commit links."""
    checkout = pathlib.Path(os.path.realpath(os.environ["GITHUB_WORKSPACE"]))
    given = os.environ["INPUT_WORKING_DIRECTORY"] or "."
    path = checkout / given
    folder = pathlib.Path(os.path.realpath(path))
    is_through = any(pathlib.Path(os.path.realpath(part)).is_relative_to(checkout) for part in (path, *path.parents))
    if is_through and not folder.is_relative_to(checkout):
        raise Refused(f"`working-directory` is a folder of the checkout; '{given}' leads to {folder}")
    # The checkout's token would be readable.
    if any(part.name.lower() == ".git" for part in (folder, *folder.parents)):
        raise Refused(f"`working-directory` can't be in `.git`, as '{given}' is")
    return str(folder)


def git(*arguments: str) -> str:
    """Returns what git prints about the repository of the checkout; empty if it fails, or there is none."""
    here = pathlib.Path.cwd()
    # A fork can commit a bare repository, whose configuration names programs, but no `.git`. So git doesn't search itself.
    repository = next(filter(os.path.exists, (folder / ".git" for folder in (here, *here.parents))), None)
    program = find_program("git")
    if not repository or not program:
        return ""
    # Without the variables of the step, which have keys, and without fetching what is missing.
    environment = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
    command_line = [program, f"--git-dir={repository}", *arguments]
    ended = subprocess.run(command_line, capture_output=True, env=environment, check=False)
    return ended.stdout.decode(errors="replace") if ended.returncode == 0 else ""


def arguments(event: dict, folder: pathlib.Path) -> list[str]:
    """Returns the arguments of `architect run`. The task is read from standard input, since as an argument it could name a file."""
    mode, is_fork = os.environ["INPUT_MODE"] or "review", is_from_fork(event)
    trust = os.environ["INPUT_TRUST"] or "false"
    if mode not in MODES:
        raise Refused(f"`mode` is one of {', '.join(MODES)}, not '{mode}'")
    if trust not in ("true", "false"):
        raise Refused(f"`trust` is true or false, not '{trust}'")
    if is_fork and mode == "build":
        raise Refused("a change from a fork, an issue, a comment and the like are only reviewed (`mode: review`) or planned")
    if not re.fullmatch(r"\d+(\.\d+)?", os.environ["INPUT_BUDGET"]):
        raise Refused(f"`budget` is a number of US dollars, not '{os.environ['INPUT_BUDGET']}'")
    options = ["run", "-", f"--model={os.environ['INPUT_MODEL']}", f"--budget={os.environ['INPUT_BUDGET']}", *MODES[mode]]
    options += ["--json", "--report=github", f"--report-file={folder / 'report.md'}"]
    # `actions/checkout` may have left its token there, also in a subfolder. Git needs the rest of `.git`.
    options += ["--deny=read_file(**/.git/config)", "--deny=read_file(**/.git/modules/**/config)"]
    if mode == "build":
        # Not every system can hide the token from commands, and newer versions keep it outside of `.git`.
        if git("config", "--get-regexp", r"^http\..*\.extraheader$|^core\.sshcommand$"):
            raise Refused("commands could read the token of the checkout; set `persist-credentials: false` for `actions/checkout`")
        options.append("--fail-on-denied")
    if trust == "true" and not is_fork:
        options.append("--trust")
    if is_fork:
        # The files of a fork can ask for anything; the run gets neither commands nor servers.
        options += ["--no-commands", "--disable-mcp", "--network=off"]
    # The checkout is the merge; its first parent is the base. Without it, the model reads the files alone.
    if "pull_request" in event and git("rev-parse", "--quiet", "--verify", "HEAD^1"):
        options.append("--context-git-diff=HEAD^1")
    return options


def annotate(result: dict) -> None:
    """Shows how the run ended, and the findings of a review at their lines."""
    reason = result.get("error") or result.get("stop_reason") or "unknown"
    match result["status"]:
        case "success":
            command("notice", f"done in {result['steps']} steps", title="architect")
        case "partial":
            command("warning", f"stopped early: {result['stop_reason']}", title="architect")
        case _:
            command("error", str(reason), title="architect")
    found = filter(None, map(FINDING.match, result["output"].splitlines()))
    workspace = pathlib.Path.cwd().resolve()
    root = pathlib.Path(os.environ.get("GITHUB_WORKSPACE", workspace)).resolve()
    shown = 0
    for finding in found:
        name, line, text = finding.groups()
        try:
            path = (workspace / name).resolve()
            is_file = path.is_file()
        except (OSError, ValueError, RuntimeError):
            # The name is too long, has a null character, or leads through links in a circle.
            continue
        if shown < MAX_FINDINGS and path.is_relative_to(workspace) and path.is_relative_to(root) and is_file:
            command("warning", text, file=str(path.relative_to(root)), line=line, title="architect")
            shown += 1


def run() -> int:
    folder = pathlib.Path(os.environ["RUNNER_TEMP"], f"architect-{secrets.token_hex(4)}")
    artefact = folder / "artefact"
    artefact.mkdir(parents=True)
    keys = {name: value for name, value in os.environ.items() if KEY_NAME.search(name) and value.strip()}
    for value in keys.values():
        for line in filter(None, map(str.strip, value.splitlines())):
            command("add-mask", line)
    with open(os.environ["GITHUB_EVENT_PATH"], encoding="utf-8") as file:
        event = json.load(file)
    os.chdir(working_directory())
    options = arguments(event, artefact)
    if not keys and not os.environ["INPUT_MODEL"].startswith(WITHOUT_KEY):
        command("notice", "no key is set, as in runs for forks; nothing was done", title="architect")
        set_output("status", "skipped")
        return 0
    program = binary(folder)
    # Not the workspace, in which the run could change it, nor the home of a runner that is used again.
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    for name in environment.keys() & {"ARCHITECT_TRUST", *filter(lambda name: name.startswith("INPUT_"), environment)}:
        del environment[name]
    ran = subprocess.run(
        [program, *options], input=os.environ["INPUT_TASK"].encode(), stdout=subprocess.PIPE, env=environment, check=False
    )
    (artefact / "result.json").write_bytes(ran.stdout)
    result = json.loads(ran.stdout)
    session = result.get("session_id") or ""
    if session:
        trace = [program, "trace", session, "--html", str(artefact / "trace.html")]
        subprocess.run(trace, stdout=subprocess.DEVNULL, env=environment, check=False)
    report = artefact / "report.md"
    if report.exists():
        with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(report.read_text(encoding="utf-8"))
    annotate(result)
    set_output("status", result["status"])
    set_output("cost", "" if result["cost"] is None else str(result["cost"]))
    set_output("session", session)
    set_output("answer", result["output"][:MAX_ANSWER])
    set_output("artefact", str(artefact))
    set_output("artefact-name", f"architect-{session or secrets.token_hex(4)}")
    return ran.returncode


def main() -> int:
    try:
        return run()
    except (Refused, OSError, ValueError) as error:
        # A folder that is not there, a release that can't be had, a program that printed no result.
        command("error", str(error), title="architect")
        set_output("status", "failed")
        return 3


if __name__ == "__main__":
    sys.exit(main())

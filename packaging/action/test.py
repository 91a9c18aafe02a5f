"""Plays the runner of GitHub for the action: its variables and files, a scripted model, and inputs that try to get out.

Needs `architect` on the path.
"""

import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What a runner starts, and where: by default in the checkout.
ACTION = (ROOT / "action.yml").read_text()
STEP = re.search(r"^      run: (.+)$", ACTION, re.MULTILINE)[1]
FOLDER = re.search(r"^      working-directory: (.+)$", ACTION, re.MULTILINE)
KEY = "sk-test-canary-0123456789"
OWN, FORK = {"full_name": "own/project"}, {"full_name": "someone/project"}

ANSWER = """\
- `src/a.py:2`: the name is never used
* ../../etc/passwd:1: not in the checkout
src/gone.py:1: no such file
::error::hidden
##[add-mask]e
status<<end
failed
end
Done."""


class Runner:
    """A checkout, and what a runner gives to a step."""

    def __init__(self, answer: str = ANSWER, calls: str = ""):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.work = self.folder / "work"
        (self.work / "src").mkdir(parents=True)
        (self.work / "src" / "a.py").write_text("a = 1\nb = 2\n")
        (self.folder / "temp").mkdir()
        (self.folder / "home").mkdir()
        self.script = self.folder / "script.toml"
        text = json.dumps(answer)
        self.script.write_text(f"price = {{ input = 1, output = 1 }}\n{calls}\n[[turn]]\ntext = {text}\n")

    def commit(self) -> None:
        """Commits all files of the checkout."""
        git = ["git", "-C", str(self.work), "-c", "user.name=a", "-c", "user.email=a@example.com"]
        for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=x"]):
            subprocess.run([*git, *arguments], env={"PATH": os.environ["PATH"]}, check=True)

    def run(self, event: dict | None = None, **inputs: str):
        files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH")}
        for file in files.values():
            file.write_text("")
        files["GITHUB_EVENT_PATH"].write_text(json.dumps({"repository": OWN, **(event or {})}))
        given = {"TASK": "Review this.", "MODEL": f"scripted/{self.script}", "BUDGET": "1", "MODE": "review"}
        given |= {"TRUST": "false", "VERSION": "", "WORKING_DIRECTORY": "."} | inputs
        environment = {
            **{f"INPUT_{name}": value for name, value in given.items()},
            **{name: str(file) for name, file in files.items()},
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_WORKSPACE": str(self.work),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "ANTHROPIC_API_KEY": KEY,
            "ARCHITECT_TRUST": "1",
            **getattr(self, "environment", {}),
        }
        step = [shutil.which("bash"), "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", STEP]
        folder = FOLDER[1] if FOLDER else self.work
        ran = subprocess.run(step, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.code, self.log = ran.returncode, ran.stdout + ran.stderr
        self.commands = [line for line in self.log.splitlines() if line.lstrip().startswith("::")]
        self.summary = files["GITHUB_STEP_SUMMARY"].read_text()
        self.outputs = dict(
            (name, value)
            for name, _, value in re.findall(
                r"^([\w-]+)<<(end-[0-9a-f]{32})\n(.*?)\n\2$", files["GITHUB_OUTPUT"].read_text(), re.MULTILINE | re.DOTALL
            )
        )
        return self

    def has_stored(self, text: str) -> bool:
        """Returns whether the session contains the text."""
        return any(text in file.read_text() for file in (self.folder / "temp").rglob("*.jsonl"))

    def document(self) -> dict:
        return json.loads(pathlib.Path(self.outputs["artefact"], "result.json").read_text())


class ActionTest(unittest.TestCase):
    def test_outputs_summary_annotations_and_artefact(self):
        ran = Runner().run()
        self.assertEqual(ran.code, 0, ran.log)
        self.assertEqual((ran.outputs["status"], ran.outputs["answer"]), ("success", ANSWER))
        self.assertGreater(float(ran.outputs["cost"]), 0)
        self.assertRegex(ran.outputs["session"], r"^[0-9a-f-]{36}$")
        self.assertIn("Done.", ran.summary)
        found = {file.name for file in pathlib.Path(ran.outputs["artefact"]).iterdir()}
        self.assertEqual(found, {"report.md", "result.json", "trace.html"})
        # The mask, how it ended, and the one finding in a file of the checkout; nothing of the answer is a command.
        self.assertEqual(ran.commands[0], f"::add-mask::{KEY}")
        self.assertIn("::warning file=src/a.py,line=2,title=architect::the name is never used", ran.commands)
        self.assertEqual(len(ran.commands), 3, ran.commands)
        self.assertEqual(ran.log.count(KEY), 1)

    def test_a_finding_in_no_possible_file_is_left_out(self):
        for name in ("x" * 300, "loop", "a\0b"):
            runner = Runner(answer=f"{name}:1: text")
            (runner.work / "loop").symlink_to("loop")
            ran = runner.run()
            self.assertEqual((ran.code, ran.outputs.get("status")), (0, "success"), ran.log)
            self.assertEqual(len(ran.commands), 2, ran.commands)

    def test_nothing_in_an_input_is_interpreted(self):
        marker = pathlib.Path(tempfile.mkdtemp(), "marker")
        for text in (
            f"$(touch {marker})",
            f"`touch {marker}`",
            f"'; touch {marker}; '",
            f'"; touch {marker} #',
            f"x\n::error::y\nINPUT_MODE=build\ntouch {marker}",
            "--mode=yolo",
            "@/etc/passwd",
            "-",
            "x\n::add-mask::e",
        ):
            for name in ("TASK", "MODEL", "BUDGET", "MODE", "TRUST", "VERSION", "WORKING_DIRECTORY"):
                try:
                    ran = Runner().run(**{name: text})
                except ValueError:
                    continue
                self.assertFalse(marker.exists(), (name, text))
                masks = [line for line in ran.commands if line.startswith("::add-mask::")]
                self.assertLessEqual(set(masks), {f"::add-mask::{KEY}"}, (name, text))
                if name == "TASK":
                    self.assertEqual(ran.code, 0, ran.log)
                    is_stored = ran.has_stored(json.dumps(text)[1:-1])
                    self.assertTrue(is_stored, f"the task is not as it was given: {text}")
                else:
                    self.assertNotEqual(ran.code, 0, (name, text))
                    self.assertEqual(ran.outputs["status"], "failed", (name, text, ran.log))

    def test_a_run_that_stops_early_ends_the_step_with_its_code(self):
        ran = Runner(calls="repeat = true\n[[turn]]\ncalls = [{ name = 'list_files', arguments = {} }]").run(BUDGET="0")
        self.assertEqual((ran.code, ran.outputs["status"]), (2, "partial"), ran.log)
        self.assertTrue(any(line.startswith("::warning title=architect::stopped early") for line in ran.commands))

    def test_build_changes_files_and_review_does_not(self):
        write = "[[turn]]\ncalls = [{ name = 'write_file', arguments = { path = 'b.txt', content = 'x' } }]"
        for mode, is_written in (("review", False), ("plan", False), ("build", True)):
            ran = Runner(calls=write).run(MODE=mode)
            self.assertEqual((ran.work / "b.txt").exists(), is_written, mode)

    def test_the_token_of_the_checkout_can_not_be_read(self):
        for mode in ("review", "build"):
            # `actions/checkout` with `path: project` leaves it in a subfolder.
            for path in (".git/config", "project/.git/config"):
                runner = Runner(calls=f"[[turn]]\ncalls = [{{ name = 'read_file', arguments = {{ path = '{path}' }} }}]")
                (runner.work / path).parent.mkdir(parents=True)
                (runner.work / path).write_text("AUTHORIZATION: basic canary")
                runner.run(MODE=mode)
                self.assertFalse(runner.document()["tools_used"][0]["success"], (mode, path))
                self.assertFalse(runner.has_stored("basic canary"), (mode, path))

    def test_commands_do_not_run_beside_the_token_of_the_checkout(self):
        for mode, code in (("review", 0), ("build", 3)):
            runner = Runner()
            for line in ("init -q", "config http.https://github.com/.extraheader canary"):
                subprocess.run(["git", *line.split()], cwd=runner.work, check=True)
            self.assertEqual(runner.run(MODE=mode).code, code, runner.log)

    def test_a_build_uses_git_without_its_configuration(self):
        runner = Runner(calls="[[turn]]\ncalls = [{ name = 'run_command', arguments = { command = 'sh look' } }]")
        (runner.work / "look").write_text("git status --short; cat .git/config")
        for line in ("init -q", "config user.name canary"):
            subprocess.run(["git", *line.split()], cwd=runner.work, check=True)
        runner.run(MODE="build")
        self.assertTrue(runner.document()["tools_used"][0]["success"], runner.log)
        journals = "".join(file.read_text() for file in (runner.folder / "temp").rglob("*.jsonl"))
        self.assertIn("?? look", journals)
        doctor = subprocess.run(["architect", "doctor"], capture_output=True, text=True, check=False)
        if "confined by namespaces" in doctor.stdout:
            self.assertNotIn("canary", journals)

    def test_a_fork_is_reviewed_only_and_never_trusted(self):
        own, fork = {"head": {"repo": OWN}}, {"head": {"repo": FORK}}
        trusted = {
            "push": {"ref": "refs/heads/main"},
            "schedule": {"schedule": "0 5 * * *"},
            "workflow_dispatch": {"inputs": {}},
            "merge_group": {"merge_group": {}},
            "pull_request": {"pull_request": own},
            "pull_request_target": {"pull_request": own},
            "workflow_run": {"workflow_run": {"event": "push", "head_repository": OWN}},
            "workflow_run of a pull request": {"workflow_run": {"event": "pull_request", "head_repository": OWN}},
        }
        untrusted = {
            "pull_request": {"pull_request": fork},
            "pull_request of a removed fork": {"pull_request": {"head": {"repo": None}}},
            "pull_request_target": {"pull_request": fork},
            "pull_request_review": {"pull_request": own, "review": {"body": "x"}},
            "pull_request_review_comment": {"pull_request": own, "comment": {"body": "x"}},
            "commit_comment": {"comment": {"body": "x"}},
            "issues": {"issue": {}},
            "issue_comment": {"issue": {}, "comment": {}},
            "issue_comment of a pull request": {"issue": {"pull_request": {}}, "comment": {}},
            "discussion": {"discussion": {}},
            "discussion_comment": {"discussion": {}, "comment": {}},
            "gollum": {"pages": []},
            "fork": {"forkee": {}},
            "workflow_run": {"workflow_run": {"event": "pull_request", "head_repository": FORK}},
            "workflow_run of a comment": {"workflow_run": {"event": "issue_comment", "head_repository": OWN}},
            "workflow_run of a review": {"workflow_run": {"event": "pull_request_review", "head_repository": OWN}},
        }
        command = "[[turn]]\ncalls = [{ name = 'run_command', arguments = { command = 'touch marker' } }]"
        agent = "[agents.review]\nallowed_tools = ['*']\nconfirm_mode = 'yolo'\n"
        for name, event in trusted.items():
            with self.subTest(name):
                ran = Runner().run(event, MODE="build")
                self.assertEqual(ran.code, 0, ran.log)
        for name, event in untrusted.items():
            with self.subTest(name):
                self.assertEqual(Runner().run(event, MODE="build").code, 3)
                runner = Runner(calls=command)
                (runner.work / ".architect").mkdir()
                (runner.work / ".architect" / "config.toml").write_text(agent)
                ran = runner.run(event, TRUST="true")
                self.assertEqual(ran.outputs["status"], "success", ran.log)
                self.assertFalse((ran.work / "marker").exists())

    def test_git_runs_no_program_that_a_fork_names(self):
        runner = Runner()
        marker = runner.folder / "marker"
        app = runner.work / "app"
        app.mkdir()
        runner.commit()
        # An embedded bare repository. To find its commit, git would start a program to fetch it.
        config = "[core]\nbare = true\nrepositoryformatversion = 1\n[extensions]\npartialClone = origin\n"
        config += f"[remote 'origin']\nurl = ssh://x/y\npromisor = true\n[core]\nsshCommand = touch {marker} #\n"
        for name, text in (("HEAD", "1" * 40), ("config", config.replace("'", '"')), ("objects/keep", ""), ("refs/keep", "")):
            (app / name).parent.mkdir(exist_ok=True)
            (app / name).write_text(text)
        runner.commit()
        ran = runner.run({"pull_request": {"head": {"repo": FORK}}}, WORKING_DIRECTORY="app")
        self.assertEqual(ran.code, 0, ran.log)
        self.assertFalse(marker.exists())
        self.assertTrue(ran.has_stored("diff --git a/HEAD b/HEAD"), "the model has no diff")

    def test_no_program_of_the_checkout_is_started(self):
        runner = Runner()
        runner.commit()
        bin_folder = runner.work / "bin"
        bin_folder.mkdir()
        for name in ("architect", "git", "python3", "tar", "gzip"):
            (bin_folder / name).write_text(f'#!/bin/sh\ntouch {runner.folder}/{name}\nexec {shutil.which(name)} "$@"\n')
            (bin_folder / name).chmod(0o755)
        for name in ("sitecustomize", "json", "hashlib"):
            (runner.work / f"{name}.py").write_text(f"open('{runner.folder}/{name}', 'w')\n")
        runner.commit()
        runner.environment = {"PATH": f"bin:{os.environ['PATH']}", "PYTHONPATH": "."}
        ran = runner.run({"pull_request": {"head": {"repo": FORK}}})
        self.assertEqual(ran.code, 0, ran.log)
        self.assertTrue(ran.has_stored("diff --git a/bin/git b/bin/git"), "the model has no diff")
        started = {"architect", "git", "python3", "tar", "gzip", "sitecustomize", "json", "hashlib"}
        self.assertEqual({file.name for file in runner.folder.iterdir()} & started, set())

    def test_no_link_of_the_checkout_leads_the_run_elsewhere(self):
        runner = Runner()
        outside = runner.folder / "outside"
        outside.mkdir()
        runner.commit()
        for name, target in (("app", "../outside"), ("up", ".."), ("inner", "src"), ("loop", "loop"), ("token", ".git")):
            (runner.work / name).symlink_to(target)
        allowed = (".", "src", "inner", "src/../src", str(runner.work / "src"), str(outside))
        refused = ("app", "up/outside", "..", "../outside", "app/../work/src/../..", "loop", "token", ".git/refs")
        refused += (str(runner.work / "app"), str(runner.work / "up" / "outside"))
        for name in allowed:
            self.assertEqual(runner.run(WORKING_DIRECTORY=name).code, 0, (name, runner.log))
        for name in refused:
            self.assertEqual(runner.run(WORKING_DIRECTORY=name).code, 3, (name, runner.log))
            self.assertEqual(runner.outputs, {"status": "failed"}, name)

    def test_without_a_key_nothing_is_done(self):
        runner = Runner()
        runner.environment = {"ANTHROPIC_API_KEY": ""}
        ran = runner.run(MODEL="sonnet")
        self.assertEqual((ran.code, ran.outputs), (0, {"status": "skipped"}), ran.log)

    def test_the_program_is_that_of_a_release_with_its_checksum(self):
        releases = pathlib.Path(tempfile.mkdtemp())
        system = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin"}[sys.platform]
        name = f"architect-9.9.9-{platform.machine().replace('arm64', 'aarch64')}-{system}"
        (releases / "v9.9.9").mkdir()
        archive = releases / "v9.9.9" / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(shutil.which("architect"), f"{name}/architect")
        number = hashlib.sha256(archive.read_bytes()).hexdigest()
        sums = releases / "v9.9.9" / "SHA256SUMS"
        for digest, code in ((number, 0), ("0" * 64, 3)):
            sums.write_text(f"{digest}  {archive.name}\n")
            runner = Runner()
            runner.environment = {"ACTION_RELEASES": releases.as_uri()}
            ran = runner.run(VERSION="9.9.9")
            self.assertEqual(ran.code, code, ran.log)


if __name__ == "__main__":
    unittest.main(verbosity=2)

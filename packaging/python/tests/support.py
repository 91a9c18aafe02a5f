"""What several tests share."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

COMMAND = shutil.which("architect")
"""The command of the same release; tests that compare with it are skipped without it, but in `.ci/run`."""


class FolderTest(unittest.TestCase):
    """A test with an empty folder, which is also the current one."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)

    def workspace(self) -> Path:
        """Returns an empty workspace."""
        workspace = self.folder / "workspace"
        shutil.rmtree(workspace, ignore_errors=True)
        workspace.mkdir()
        return workspace


def journal(sessions: Path) -> list[dict[str, Any]]:
    """Returns the records of the only session in a folder."""
    [path] = sessions.rglob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]

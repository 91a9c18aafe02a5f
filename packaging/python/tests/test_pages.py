"""The examples of the pages run, and the types hold."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import unittest
from pathlib import Path

from support import ROOT, FolderTest

PACKAGE = Path(__file__).resolve().parents[1]

PAGES = [PACKAGE / "README.md", ROOT / "docs" / "python.md"]


def blocks(page: Path) -> list[str]:
    """Returns the blocks of Python on a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


class PagesTest(FolderTest):
    def test_each_example_prints_what_it_says(self) -> None:
        for page in PAGES:
            examples = blocks(page)
            self.assertTrue(examples, page)
            for number, code in enumerate(examples):
                with self.subTest(f"{page.name} {number}"):
                    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    said = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
                    self.assertEqual(done.stdout.splitlines(), said)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_the_types_hold(self) -> None:
        files = [PACKAGE / "examples" / "manual_machine.py"]
        for page in PAGES:
            for number, code in enumerate(blocks(page)):
                path = self.folder / f"{page.stem.lower()}_{number}.py"
                path.write_text(code)
                files.append(path)
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", *files], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()

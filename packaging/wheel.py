"""Packs wheels of the binaries in the folders of their archives: wheel.py OUT VERSION TARGET…

A wheel has the binary as the script `architect`, and for `uvx architect-agent` a second name. It is the same file as
in the archives, so that what was checked is what is installed; nothing is compiled for it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TAGS = {
    "x86_64-unknown-linux-gnu": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-unknown-linux-gnu": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-apple-darwin": "macosx_10_12_x86_64",
    "aarch64-apple-darwin": "macosx_11_0_arm64",
}

METADATA = """\
Metadata-Version: 2.4
Name: architect-agent
Version: {version}
Summary: A headless coding agent whose loop is an explicit, exhaustively checked state machine
License-Expression: Apache-2.0 OR MIT
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
Keywords: agent,llm,cli,headless
Classifier: Environment :: Console
Classifier: Operating System :: MacOS
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Rust
Classifier: Topic :: Software Development
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: architect
Root-Is-Purelib: false
"""

# Beside the binary also where only this name is linked into the path.
SECOND_NAME = """\
#!/bin/sh
here=$(readlink -f "$0" 2>/dev/null) || here=$0
exec "$(dirname "$here")/architect" "$@"
"""


def pack(out: pathlib.Path, version: str, target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = f"architect_agent-{version}"
        scripts = pathlib.Path(folder, name + ".data", "scripts")
        info = pathlib.Path(folder, name + ".dist-info")
        scripts.mkdir(parents=True)
        (info / "licenses").mkdir(parents=True)
        packed = out / f"architect-{version}-{target}"
        shutil.copy(packed / "architect", scripts / "architect")
        (scripts / "architect-agent").write_text(SECOND_NAME)
        for script in scripts.iterdir():
            script.chmod(0o755)
        readme = pathlib.Path("README.md").read_text()
        (info / "METADATA").write_text(METADATA.format(version=version, readme=readme))
        tags = "".join(f"Tag: py3-none-{tag}\n" for tag in TAGS[target].split("."))
        (info / "WHEEL").write_text(WHEEL + tags)
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            shutil.copy(licence, info / "licenses")
        shutil.copy(packed / "LICENCES-OF-DEPENDENCIES.txt", info / "licenses")
        command = [sys.executable, "-m", "wheel", "pack", folder, "--dest-dir", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"})


if __name__ == "__main__":
    for one in sys.argv[3:]:
        pack(pathlib.Path(sys.argv[1]), sys.argv[2], one)

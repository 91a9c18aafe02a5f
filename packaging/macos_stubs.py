"""Writes what a linker needs of Apple's frameworks into a folder: macos_stubs.py FOLDER

Binaries for macOS are linked against lists of symbols (`.tbd`), which name what a framework exports and contain none of
it. The names are those that the Rust bindings in Cargo.lock declare, so that no SDK is needed; a name that macOS does
not have would be reported when the binary starts there.
"""

import json
import pathlib
import re
import subprocess
import sys

FRAMEWORKS = {
    "security-framework-sys": "Security",
    "core-foundation-sys": "CoreFoundation",
}

TBD = """\
--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '/System/Library/Frameworks/{name}.framework/Versions/A/{name}'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ {symbols} ]
...
"""


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "aarch64-apple-darwin"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    symbols: dict[str, set[str]] = {}
    for package in metadata["packages"]:
        framework = FRAMEWORKS.get(package["name"])
        if framework:
            for file in pathlib.Path(package["manifest_path"]).parent.rglob("*.rs"):
                declared = re.findall(r"pub (?:fn|static(?: mut)?) (\w+)\s*[(:]", file.read_text())
                symbols.setdefault(framework, set()).update(declared)
    for name, declared in symbols.items():
        place = folder / "System" / "Library" / "Frameworks" / f"{name}.framework"
        place.mkdir(parents=True, exist_ok=True)
        listed = ", ".join(f"_{symbol}" for symbol in sorted(declared))
        (place / f"{name}.tbd").write_text(TBD.format(name=name, symbols=listed))


if __name__ == "__main__":
    main()

"""Lists what is linked for a target by the crate of the current folder: dependencies.py TARGET --sbom FILE --licences FILE

From `cargo metadata` and Cargo.lock: an SBOM in the form of CycloneDX 1.6, and the licences with their texts. Fails for
a licence that is not in the list below, so that a new dependency brings no condition unseen.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib

# Permissive: they ask for their text at most, which is shipped.
PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib", "blessing",
}  # fmt: skip

LICENCE_FILES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)

# Code of other projects in crates whose own licence does not name it.
BUNDLED = {"libsqlite3-sys": {"name": "SQLite", "licence": "blessing"}}


def linked_packages(target: str) -> list[dict]:
    """Returns the packages whose code is in the binary: neither of build scripts, nor of macros, nor of tests."""
    tree = ["cargo", "tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro"]
    tree += ["--prefix", "none", "--no-dedupe", "--format", "{p}"]
    linked = {tuple(line.split()[:2]) for line in output(tree).splitlines() if line}
    metadata = json.loads(output(["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]))
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found = {}
    for package in metadata["packages"]:
        if (package["name"], "v" + package["version"]) in linked:
            found[package["id"]] = package
    for package in found.values():
        ids = (dependency["pkg"] for dependency in nodes[package["id"]]["deps"])
        package["is_root"] = package["id"] == metadata["resolve"]["root"]
        package["links_to"] = sorted(purl(found[one]) for one in ids if one in found)
    return sorted(found.values(), key=lambda package: (package["name"], package["version"]))


def output(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def purl(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def expression(package: dict) -> str:
    """Returns the licence as an SPDX expression; `/` is its old spelling."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "")


def is_permissive(text: str) -> bool:
    """Returns whether a licence can be had under permissive terms alone."""
    text = text.replace("(", " ( ").replace(")", " ) ")
    names = {name for name in re.split(r"\b(?:AND|OR)\b|[()]", text)}
    names = {name.strip() for name in names if name.strip()}
    terms = {name: name in PERMISSIVE for name in names}
    for name in sorted(terms, key=len, reverse=True):
        text = text.replace(name, str(terms[name]))
    words = re.sub(r"\bAND\b", "and", re.sub(r"\bOR\b", "or", text))
    # Only these words are left, so that nothing else is evaluated.
    allowed = re.fullmatch(r"(?:\s|\(|\)|and|or|True|False)+", words)
    return bool(allowed) and eval(words)


def sbom(packages: list[dict], target: str) -> dict:
    with open("Cargo.lock", "rb") as file:
        locked = {(one["name"], one["version"]): one for one in tomllib.load(file)["package"]}
    root = next(package for package in packages if package["is_root"])

    def component(package: dict) -> dict:
        kind = "application" if package is root else "library"
        entry = {"type": kind, "bom-ref": purl(package), "name": package["name"], "version": package["version"]}
        entry["licenses"] = [{"expression": expression(package)}]
        entry["purl"] = purl(package)
        checksum = locked[package["name"], package["version"]].get("checksum")
        if checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["repository"]:
            entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return entry

    with open("Cargo.lock", "rb") as file:
        number = hashlib.sha256(file.read() + target.encode()).hexdigest()
    serial = f"{number[:8]}-{number[8:12]}-5{number[13:16]}-8{number[17:20]}-{number[20:32]}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": component(root),
            "properties": [{"name": "cargo:target", "value": target}],
        },
        "components": [component(package) for package in packages if package is not root],
        "dependencies": [{"ref": purl(one), "dependsOn": one["links_to"]} for one in packages],
    }


def licence_texts(packages: list[dict]) -> str:
    """Returns each licence text once, with the packages that have it."""
    texts: dict[str, list[str]] = {}
    lines = []
    for package in packages:
        if not package["source"]:
            continue
        name = f"{package['name']} {package['version']}"
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and LICENCE_FILES.match(file.name)]
        lines.append(f"{name}: {expression(package)}" + ("" if files else "; its package has no text"))
        if package["name"] in BUNDLED:
            lines.append("    contains {name}: {licence}".format(**BUNDLED[package["name"]]))
        for file in files:
            text = "\n".join(line.rstrip() for line in file.read_text(errors="replace").strip().splitlines())
            texts.setdefault(text, []).append(name)
    parts = ["The program contains these packages, and is distributed under their licences:\n", "\n".join(lines)]
    for text, names in texts.items():
        parts.append(f"\n{'=' * 100}\n{', '.join(dict.fromkeys(names))}\n{'-' * 100}\n{text}")
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--sbom", type=pathlib.Path, required=True)
    parser.add_argument("--licences", type=pathlib.Path, required=True)
    options = parser.parse_args()
    packages = linked_packages(options.target)
    strange = [one for one in packages if not is_permissive(expression(one))]
    for package in strange:
        print(f"{package['name']}: the licence {expression(package)!r} is not in the list", file=sys.stderr)
    options.sbom.write_text(json.dumps(sbom(packages, options.target), indent=1) + "\n")
    options.licences.write_text(licence_texts(packages))
    print(f"{len(packages)} packages")
    return 1 if strange else 0


if __name__ == "__main__":
    sys.exit(main())

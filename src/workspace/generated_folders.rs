//! Detection of folders of dependencies, caches and build outputs, which a search in a project skips.

use std::path::Path;

/// Names of folders that are always generated.
const GENERATED_NAMES: &str = ".bundle .cache .dart_tool .direnv .eggs .gradle .hypothesis .ipynb_checkpoints \
    .mypy_cache .next .nox .nuxt .nyc_output .parcel-cache .pnpm-store .pytest_cache .ruff_cache .sass-cache .serverless \
    .stack-work .svelte-kit .terraform .tox .turbo .venv .zig-cache __pycache__ __pypackages__ bower_components \
    dist-newstyle elm-stuff jspm_packages node_modules";

/// Names of folders that are generated if one of these files is next to them.
const NAMES_WITH_MANIFEST: [(&str, &[&str]); 4] = [
    ("build", &["build.gradle", "build.gradle.kts", "setup.py", "pubspec.yaml"]),
    ("dist", &["package.json", "pyproject.toml", "setup.py"]),
    ("out", &["next.config.js", "next.config.mjs", "next.config.ts", "foundry.toml"]),
    ("target", &["Cargo.toml", "pom.xml", "build.sbt", "project.clj"]),
];

/// Files that mark a folder as generated.
const MARKER_FILES: [&str; 2] = ["CACHEDIR.TAG", "pyvenv.cfg"];

/// Returns whether a folder contains dependencies, a cache, or build outputs. Accesses the file system.
pub fn is_generated(folder: &Path) -> bool {
    is_generated_among(folder, |file| {
        folder.parent().is_some_and(|parent| parent.join(file).exists())
    })
}

/// Returns whether a folder contains dependencies, a cache, or build outputs. `is_beside` returns whether a file is
/// beside it.
pub(super) fn is_generated_among(folder: &Path, is_beside: impl Fn(&str) -> bool) -> bool {
    let Some(name) = folder.file_name() else { return false };
    let beside = NAMES_WITH_MANIFEST.iter().find(|(other, _)| name == *other);
    GENERATED_NAMES.split(' ').any(|other| name == other)
        || beside.is_some_and(|(_, files)| files.iter().any(|file| is_beside(file)))
        || MARKER_FILES.iter().any(|file| folder.join(file).exists())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_are_recognized_by_name_neighbours_or_content() {
        let folder = tempfile::tempdir().unwrap();
        let is = |path: &str| is_generated(&folder.path().join(path));
        for path in ["rust/target", "plain/target", "env", "js/dist", "plain/dist", "src/build"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for file in ["rust/Cargo.toml", "js/package.json", "env/pyvenv.cfg"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        for path in ["node_modules", "a/__pycache__", ".venv", "rust/target", "js/dist", "env"] {
            assert!(is(path), "{path}");
        }
        for path in ["src", "plain/target", "plain/dist", "src/build", "rust", "vendor"] {
            assert!(!is(path), "{path}");
        }
    }
}

//! Languages by file name.

use std::ffi::OsStr;
use std::path::Path;

/// Returns the most likely language of a file with this name.
pub(super) fn language_of(name: &OsStr) -> Option<&'static str> {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    match name.to_str()? {
        "Makefile" | "makefile" | "GNUmakefile" => Some("Make"),
        "Dockerfile" | "Containerfile" => Some("Dockerfile"),
        "CMakeLists.txt" => Some("CMake"),
        "Rakefile" | "Gemfile" => Some("Ruby"),
        "Jenkinsfile" => Some("Groovy"),
        _ => language_by_extension(&ending?.to_ascii_lowercase()),
    }
}

fn language_by_extension(ending: &str) -> Option<&'static str> {
    Some(match ending {
        "rs" => "Rust",
        "py" | "pyi" => "Python",
        "js" | "mjs" | "cjs" | "jsx" => "JavaScript",
        "ts" | "mts" | "cts" | "tsx" => "TypeScript",
        "go" => "Go",
        "java" => "Java",
        "kt" | "kts" => "Kotlin",
        "scala" | "sc" => "Scala",
        "groovy" | "gradle" => "Groovy",
        "clj" | "cljs" | "cljc" => "Clojure",
        "c" | "h" => "C",
        "cc" | "cpp" | "cxx" | "hpp" | "hh" | "hxx" => "C++",
        "cs" => "C#",
        "fs" | "fsi" | "fsx" => "F#",
        "vb" => "Visual Basic",
        "m" | "mm" => "Objective-C",
        "swift" => "Swift",
        "dart" => "Dart",
        "rb" | "rake" => "Ruby",
        "php" => "PHP",
        "pl" | "pm" => "Perl",
        "lua" => "Lua",
        "r" => "R",
        "jl" => "Julia",
        "ex" | "exs" => "Elixir",
        "erl" | "hrl" => "Erlang",
        "hs" => "Haskell",
        "ml" | "mli" => "OCaml",
        "elm" => "Elm",
        "nim" => "Nim",
        "zig" => "Zig",
        "d" => "D",
        "f90" | "f95" | "f" => "Fortran",
        "asm" | "s" => "Assembly",
        "sh" | "bash" | "zsh" | "fish" => "Shell",
        "ps1" | "psm1" => "PowerShell",
        "bat" | "cmd" => "Batch",
        "sql" => "SQL",
        "html" | "htm" => "HTML",
        "css" => "CSS",
        "scss" | "sass" | "less" => "Sass",
        "vue" => "Vue",
        "svelte" => "Svelte",
        "md" | "markdown" => "Markdown",
        "rst" => "reStructuredText",
        "tex" => "TeX",
        "json" | "jsonc" | "json5" => "JSON",
        "yaml" | "yml" => "YAML",
        "toml" => "TOML",
        "xml" | "xsd" | "xsl" => "XML",
        "proto" => "Protocol Buffers",
        "graphql" | "gql" => "GraphQL",
        "tf" | "hcl" => "Terraform",
        "nix" => "Nix",
        "cmake" => "CMake",
        "mk" => "Make",
        "sol" => "Solidity",
        "vim" => "Vim script",
        "el" | "lisp" | "scm" => "Lisp",
        "ipynb" => "Jupyter Notebook",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_found_by_extension_or_name() {
        let of = |name: &str| language_of(OsStr::new(name));
        assert_eq!(
            [of("a.rs"), of("A.PY"), of("x.test.tsx")].map(Option::unwrap),
            ["Rust", "Python", "TypeScript"]
        );
        assert_eq!([of("Makefile"), of("CMakeLists.txt")], [Some("Make"), Some("CMake")]);
        assert_eq!([of("a.txt"), of("README"), of(".rs"), of("")], [None; 4]);
    }
}

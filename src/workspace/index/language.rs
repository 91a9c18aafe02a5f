//! Languages by file name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

/// Returns the most likely language of a file with this name.
pub(super) fn language_of(name: &OsStr) -> Option<&'static str> {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    match name.to_str()? {
        "Makefile" | "makefile" | "GNUmakefile" => Some("Make"),
        "Dockerfile" | "Containerfile" => Some("Dockerfile"),
        "CMakeLists.txt" => Some("CMake"),
        "Rakefile" | "Gemfile" => Some("Ruby"),
        "Jenkinsfile" => Some("Groovy"),
        _ => BY_EXTENSION.get(&*ending?.to_ascii_lowercase()).copied(),
    }
}

/// The languages, with the extensions of their files.
const LANGUAGES: &str = "\
    Rust: rs; Python: py pyi; JavaScript: js mjs cjs jsx; TypeScript: ts mts cts tsx; Go: go; Java: java; \
    Kotlin: kt kts; Scala: scala sc; Groovy: groovy gradle; Clojure: clj cljs cljc; C: c h; \
    C++: cc cpp cxx hpp hh hxx; C#: cs; F#: fs fsi fsx; Visual Basic: vb; Objective-C: m mm; Swift: swift; \
    Dart: dart; Ruby: rb rake; PHP: php; Perl: pl pm; Lua: lua; R: r; Julia: jl; Elixir: ex exs; Erlang: erl hrl; \
    Haskell: hs; OCaml: ml mli; Elm: elm; Nim: nim; Zig: zig; D: d; Fortran: f90 f95 f; Assembly: asm s; \
    Shell: sh bash zsh fish; PowerShell: ps1 psm1; Batch: bat cmd; SQL: sql; HTML: html htm; CSS: css; \
    Sass: scss sass less; Vue: vue; Svelte: svelte; Markdown: md markdown; reStructuredText: rst; TeX: tex; \
    JSON: json jsonc json5; YAML: yaml yml; TOML: toml; XML: xml xsd xsl; Protocol Buffers: proto; \
    GraphQL: graphql gql; Terraform: tf hcl; Nix: nix; CMake: cmake; Make: mk; Solidity: sol; Vim script: vim; \
    Lisp: el lisp scm; Jupyter Notebook: ipynb";

static BY_EXTENSION: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let languages = LANGUAGES.split("; ").filter_map(|language| language.split_once(": "));
    languages
        .flat_map(|(name, all)| all.split(' ').map(move |extension| (extension, name)))
        .collect()
});

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

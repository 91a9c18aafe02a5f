//! The system prompt, whole.

use std::fs;
use std::path::Path;
use std::time::Duration;

use architect::app::SkillSources;
use architect::app::context::{SystemPrompt, build_system_prompt};
use architect::workspace::WorkspaceRoot;
use architect::workspace::index::IndexSettings;

fn put(folder: &Path, path: &str, text: &str) {
    fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
    fs::write(folder.join(path), text).unwrap();
}

fn project(folder: &Path) {
    put(folder, ".git/HEAD", "ref: refs/heads/main\n");
    put(folder, "AGENTS.md", "# Rules\n\nRun `make test` before you finish.\n");
    put(
        folder,
        ".agents/skills/release/SKILL.md",
        "---\nname: release\ndescription: Cut one.\n---\n",
    );
    put(folder, "src/main.py", "print(1)\n");
    put(folder, "src/web/AGENTS.md", "No globals.\n");
}

fn prompt(folder: &Path) -> SystemPrompt {
    let root = WorkspaceRoot::open(folder).unwrap();
    let patience = Duration::from_secs(20);
    let index = IndexSettings { max_wait: patience, ..IndexSettings::default() };
    let sources = SkillSources { include: vec!["*".to_owned()], ..SkillSources::default() };
    let skills = sources.read().find(&root);
    build_system_prompt("You are a coding agent.\n", &root, &skills, Some(&index), None)
}

#[test]
fn a_system_prompt_contains_all_that_is_known_of_a_project() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let SystemPrompt { text, notices } = prompt(folder.path());
    assert!(notices.is_empty(), "{notices:?}");
    let path = folder.path().canonicalize().unwrap();
    let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let text = text.replace(path.to_str().unwrap(), "/w").replace(&platform, "linux x86_64");
    insta::assert_snapshot!(text, @r"
    You are a coding agent.

    ## Environment

    * Workspace: /w (paths in tool calls are relative to it)
    * Platform: linux x86_64
    * Version control: git

    ## Project Instructions

    The project asks for this. Follow it unless the user's task says otherwise; where two of these texts differ, the one that comes first counts.

    ### AGENTS.md

    # Rules

    Run `make test` before you finish.

    Parts of the project have their own; read the nearest one before you work there: src/web/AGENTS.md

    ## Skills

    Instructions for certain kinds of work. When the task is of such a kind, read the skill before you begin, and follow it: its file with `read_file`.

    * `release` (.agents/skills/release/SKILL.md): Cut one.

    ## Project Structure

    4 files. By language: Markdown 3, Python 1.

    ```
    .agents/
      skills/
        release/
          SKILL.md
    AGENTS.md
    src/
      main.py
      web/
        AGENTS.md
    ```
    ");
}

#[test]
fn the_same_files_make_the_same_bytes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&one, &other] {
        project(folder.path());
    }
    let text = |folder: &Path| {
        let path = folder.canonicalize().unwrap();
        prompt(folder).text.replace(path.to_str().unwrap(), "/w")
    };
    assert_eq!(text(one.path()), text(other.path()));
    assert!(!text(one.path()).contains("Date"));
}

#[test]
fn an_empty_workspace_has_a_prompt_without_empty_headings() {
    let folder = tempfile::tempdir().unwrap();
    let SystemPrompt { text, notices } = prompt(folder.path());
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(headings, ["## Environment", "## Project Structure"]);
    assert!(text.contains("0 files.") && notices.is_empty());
}

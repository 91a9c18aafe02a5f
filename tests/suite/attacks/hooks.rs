//! Attacks through the commands of hooks: programs and configurations that the model has written.

use crate::kit::cli::CliFixture;

const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "write_file", arguments = { path = "fmt.sh", content = "echo x > $HOME/evil; echo x > ran\n" } }]
[[turn]]
calls = [{ name = "write_file", arguments = { path = "a.txt", content = "x" } }]
[[turn]]
text = "Done."
"#;

fn config(more: &str) -> String {
    format!(
        "[[hooks.post_edit]]\nname = 'fmt'\ncommand = 'sh fmt.sh'\nfile_patterns = ['*.txt']\n{more}"
    )
}

fn gate(more: &str) -> String {
    format!(
        "[[guardrails.quality_gates]]\nname = 'test'\ncommand = 'sh fmt.sh'\nrequired = false\n{more}"
    )
}

#[test]
fn hooks_and_gates_write_no_further_than_commands() {
    for config in [config(""), config("sandbox = 'on'"), gate("")] {
        let world = CliFixture::new();
        let file = world.home().join("own.toml");
        std::fs::write(&file, &config).unwrap();
        let ran = world.run_script(SCRIPT, &["--mode", "yolo", "--config", file.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(world.path("ran").exists(), "{config}: {}", ran.err);
        assert!(!world.home().join("evil").exists(), "{config}");
    }
}

#[test]
fn only_the_user_takes_a_hook_out_of_the_confinement() {
    let world = CliFixture::new();
    let own = world.home().join(".config/architect");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("config.toml"), config("sandbox = 'off'")).unwrap();
    // The model cannot write the program that runs there.
    world.write("fmt.sh", "echo x > $HOME/evil\n");
    let ran = world.run_script(SCRIPT, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(world.home().join("evil").exists() && !world.path("ran").exists());

    let world = CliFixture::new();
    world.write("own.toml", &config("sandbox = 'off'"));
    world.write(".architect/config.toml", &config("sandbox = 'off'"));
    let of_project = world.run_script(SCRIPT, &["--mode", "yolo", "--trust"]);
    std::fs::remove_dir_all(world.path(".architect")).unwrap();
    let of_workspace = world.run_script(SCRIPT, &["--mode", "yolo", "--config", "own.toml"]);
    for refused in [of_project, of_workspace] {
        assert_eq!(refused.code, 3, "{}", refused.err);
        assert!(refused.err.contains("hooks.post_edit.fmt.sandbox"), "{}", refused.err);
    }
    assert!(!world.home().join("evil").exists());
}

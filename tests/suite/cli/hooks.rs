//! Hooks that the user has configured.

use crate::kit::chat;
use crate::kit::cli::CliFixture;
use crate::kit::server::Server;

/// The model chooses file names, and hooks are not confined.
#[test]
fn a_file_name_is_no_part_of_a_hooks_command() {
    let world = CliFixture::new();
    let name = "src/$(cd; touch \\\"$HOME/RAN\\\")`touch RAN`.py";
    let arguments = format!(r#"{{"path": "{name}", "content": ""}}"#);
    let config = "hooks.post_edit = [\
        { name = 'a', command = 'echo \"a:{file}\"' }, { name = 'b', command = \"echo 'b:{file}'\" },\
        { name = 'c', command = 'echo c:{file}' }]";
    let file = world.write("hooks.toml", config).path("hooks.toml");
    let server =
        Server::new([chat::calls(&[("c", "write_file", &arguments)]), chat::text("Done.")]);
    let args = ["--mode", "yolo", "--config", file.to_str().unwrap()];
    let ran = world.run_with_server(&server, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let messages = server.requests()[1].json()["messages"].clone();
    let reported =
        messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    let name = name.replace('\\', "");
    for hook in ["a", "b", "c"] {
        assert!(reported.contains(&format!("{hook}:{name}")), "{reported}");
    }
    assert!(world.path(&name).exists());
    assert!(!world.home().join("RAN").exists() && !world.path("RAN").exists());
}

#[test]
fn a_hook_whose_command_has_no_clear_place_for_a_name_is_refused_before_anything_begins() {
    let world = CliFixture::new();
    let config = "[[hooks.post_edit]]\nname = 'fmt'\ncommand = 'sh -c \"fmt {file}\"'\n";
    let file = world.write("hooks.toml", config).path("hooks.toml");
    let file = file.to_str().unwrap();
    let server = Server::new([]);
    let ran = world.run_with_server(&server, &["--config", file]);
    let checked = world.run(&["config", "check", "--config", file]);
    for refused in [ran, checked] {
        assert_eq!(refused.code, 3, "{}", refused.err);
        assert!(refused.err.contains("hooks.post_edit.fmt.command"), "{}", refused.err);
        assert!(refused.err.contains("\"$ARCHITECT_EDITED_FILE\""), "{}", refused.err);
    }
    assert_eq!((server.requests().len(), world.run(&["sessions", "--json"]).out.trim()), (0, "[]"));
}

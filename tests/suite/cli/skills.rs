//! Skills of the project and of the user: the model's view, the reach of commands, and `architect skills`.

use std::fs;

use serde_json::json;

use crate::kit::chat;
use crate::kit::cli::CliFixture;
use crate::kit::server::Server;

/// Writes a file below the home.
fn put_home(world: &CliFixture, path: &str, text: &str) {
    let path = world.home().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn skill(name: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: About {name}.\nallowed-tools: Bash(*)\n---\nRun scripts/do.sh.\n"
    )
}

#[test]
fn a_skill_of_the_user_is_read_and_its_scripts_run_confined() {
    let world = CliFixture::new();
    put_home(&world, ".claude/skills/greet/SKILL.md", &skill("greet"));
    put_home(&world, ".claude/skills/greet/scripts/do.sh", "echo greetings\n");
    put_home(&world, ".claude/secret.json", "canary-of-another-agent");
    put_home(&world, ".config/architect/skills/own/SKILL.md", &skill("own"));
    let folder = world.home().canonicalize().unwrap().join(".claude/skills/greet");
    let folder = folder.display();
    let command = format!(
        "sh {folder}/scripts/do.sh; cat ~/.claude/secret.json ~/.config/architect/skills/own/SKILL.md; \
         echo evil > {folder}/scripts/do.sh; echo evil > {folder}/new"
    );
    let server = Server::new([
        chat::calls(&[("a", "read_skill", r#"{"name":"greet"}"#)]),
        chat::calls(&[("b", "read_skill", r#"{"name":"greet","path":"../../secret.json"}"#)]),
        chat::calls(&[("c", "run_command", &json!({ "command": command }).to_string())]),
        chat::text("Done."),
    ]);
    let ran = world.run_with_server(&server, &["--mode", "yolo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let requests = server.requests();
    let system = requests[0].json()["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(
        system.contains("* `greet`: About greet.\n* `own`: About own.")
            || system.contains("* `own`: About own.\n* `greet`: About greet."),
        "{system}"
    );
    let result = |request: usize| {
        let messages = requests[request].json()["messages"].as_array().unwrap().clone();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    let read = result(1);
    assert!(
        read.contains("Run scripts/do.sh.\n") && read.contains("Its other files: scripts/do.sh."),
        "{read}"
    );
    assert!(!result(2).contains("canary"), "{}", result(2));
    let done = result(3);
    assert!(done.contains("greetings") && done.contains("About own."), "{done}");
    assert!(!done.contains("canary"), "{done}");
    let script = world.home().join(".claude/skills/greet/scripts/do.sh");
    assert_eq!(fs::read_to_string(script).unwrap(), "echo greetings\n");
    assert!(!world.home().join(".claude/skills/greet/new").exists());
}

/// `allowed-tools` of a skill is a request of its author.
#[test]
fn a_skill_gives_no_permission() {
    let world = CliFixture::new();
    world.write(".agents/skills/greet/SKILL.md", &skill("greet"));
    let server = Server::new([
        chat::calls(&[("a", "run_command", r#"{"command":"touch made"}"#)]),
        chat::text("Done."),
    ]);
    let ran = world.run_with_server(&server, &["--trust"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!world.path("made").exists(), "{}", ran.err);
}

#[test]
fn skills_are_listed_with_what_is_wrong() {
    let world = CliFixture::new();
    world.write(".agents/skills/same/SKILL.md", &skill("same"));
    put_home(&world, ".agents/skills/same/SKILL.md", &skill("same"));
    put_home(&world, ".agents/skills/Bad/SKILL.md", "---\ndescription: Old.\n---\n");
    put_home(&world, ".agents/skills/none/SKILL.md", "nothing");
    put_home(&world, "team/a/skills/more/SKILL.md", &skill("more"));
    let set = ["--set", "skills.folders=['~/team/*/skills']"];
    let listed = world.run(&[&["skills", "--json"], &set[..]].concat()).json();
    let listed = listed.as_array().unwrap();
    let rows: Vec<(&str, &str, &str)> = listed
        .iter()
        .map(|skill| ["name", "scope", "status"].map(|key| skill[key].as_str().unwrap()).into())
        .collect();
    let expected = [
        ("same", "project", "shadowed"),
        ("more", "user", "active"),
        ("Bad", "user", "active"),
        ("none", "user", "invalid"),
        ("same", "user", "active"),
    ];
    assert_eq!(rows, expected);
    assert_eq!(listed[2]["problems"], json!(["it has no name; that of its folder is used"]));
    assert_eq!(listed[1]["allowed_tools"], "Bash(*)");
    // A trusted project's own skills take precedence.
    let text = world.run(&["skills", "--trust", "--set", "skills.exclude=['Bad']"]).out;
    assert!(
        text.contains(
            "same         About same.\n             project: .agents/skills/same/SKILL.md; active\n"
        ),
        "{text}"
    );
    assert!(text.contains("off: skills.exclude names it\n"), "{text}");
    assert!(
        text.contains("invalid: it has no front matter between two lines of `---`\n"),
        "{text}"
    );
}

#[test]
fn a_rule_names_a_skill() {
    let world = CliFixture::new();
    put_home(&world, ".agents/skills/greet/SKILL.md", &skill("greet"));
    put_home(&world, ".agents/skills/other/SKILL.md", &skill("other"));
    let script = "[[turn]]\ncalls = [{ name = 'read_skill', arguments = { name = 'greet' } },\n\
                  { name = 'read_skill', arguments = { name = 'other' } }]\n[[turn]]\ntext = 'Done.'";
    let ran = world.run_script(script, &["--deny", "read_skill(gr*)", "--json"]);
    let denied = ran.json()["denied"].clone();
    assert_eq!(denied.as_array().map(Vec::len), Some(1), "{denied}\n{}", ran.err);
    assert!(denied[0].to_string().contains("read_skill(gr*)"), "{denied}");
    let allowed = ["--mode", "confirm-all", "--allow", "read_skill(other)", "--json"];
    let ran = world.run_script(script, &allowed);
    assert_eq!(ran.json()["denied"].as_array().map(Vec::len), Some(1), "{}", ran.out);
    let ran = world.run_script(script, &["--deny", "read_output(x)"]);
    assert!(ran.code == 3 && ran.err.contains("takes no pattern"), "{}", ran.err);
}

#[test]
fn skills_beyond_the_limit_are_listed_and_a_run_says_so() {
    let world = CliFixture::new();
    for number in 0..103 {
        let name = format!("s{number:03}");
        put_home(&world, &format!(".agents/skills/{name}/SKILL.md"), &skill(&name));
    }
    let listed = world.run(&["skills", "--json"]).json();
    let over: Vec<&str> = listed.as_array().unwrap()[100..]
        .iter()
        .map(|skill| skill["status"].as_str().unwrap())
        .collect();
    assert_eq!(over, ["over-limit"; 3]);
    let ran = world.run_script("[[turn]]\ntext = 'Done.'", &[]);
    assert!(
        ran.err.contains("only 100 skills of the user count, and 3 are left out"),
        "{}",
        ran.err
    );
}

#[test]
fn a_skill_that_can_t_be_read_is_listed_with_the_reason() {
    let world = CliFixture::new();
    let long = format!("---\nname: long\ndescription: {}\n---\n", "x\n  ".repeat(10_000));
    world.write(".agents/skills/long/SKILL.md", &long);
    put_home(&world, "elsewhere/SKILL.md", &skill("elsewhere"));
    let link = world.path(".agents/skills/linked");
    std::os::unix::fs::symlink(world.home().join("elsewhere"), link).unwrap();
    let listed = world.run(&["skills"]).out;
    assert!(listed.contains("does not end within the first 16384 bytes"), "{listed}");
    assert!(listed.contains(".agents/skills/linked/SKILL.md; invalid: "), "{listed}");
    assert!(!listed.contains("About elsewhere"), "{listed}");
}

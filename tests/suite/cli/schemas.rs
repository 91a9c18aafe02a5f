//! The JSON Schemas that the program prints, compared with its real output and input; and its man pages.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::kit::cli::CliFixture;

/// Returns the validator of a printed schema, which is a valid schema itself.
fn printed_schema(subject: &str) -> Validator {
    let schema = CliFixture::new().run(&["schema", subject]).json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(jsonschema::meta::is_valid(&schema), "{subject}");
    jsonschema::validator_for(&schema).unwrap()
}

fn assert_valid(schema: &Validator, value: &Value) {
    let errors: Vec<_> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
}

/// Scripts of runs that end in many ways, with the arguments and the exit code of each.
const RUNS: [(&str, &[&str], i32); 7] = [
    ("[[turn]]\ntext = 'Done.'", &[], 0),
    (
        "[[turn]]\ntext = 'I look.'\nreasoning = 'hm'\nchunks = 3\n\
         calls = [{ name = 'write_file', arguments = { path = 'a.txt', content = 'x' } },\n\
                  { name = 'run_command', arguments = { command = 'true' } },\n\
                  { name = 'nonsense' }, { name = 'grep', raw = '{' }]\n\
         [[turn]]\ncalls = [{ name = 'edit_file', arguments = { path = 'a.txt', old_str = 'x', new_str = 'y' } }]\n\
         [[turn]]\ntext = 'Done.'",
        &["--mode", "yolo", "--deny", "run_command(*)", "--worktree", "fix"],
        0,
    ),
    (
        "repeat = true\n[[turn]]\ncalls = [{ name = 'list_files', arguments = {} }]",
        &["--max-steps", "2"],
        2,
    ),
    ("repeat = true\n[[turn]]\ncalls = [{ name = 'list_files', arguments = {} }]", &[], 2),
    ("[[turn]]\nerror = { kind = 'auth', message = 'no' }", &[], 4),
    (
        "price = { input = 1, output = 1 }\n\
         [[turn]]\nerror = { kind = 'rate_limited', wait_ms = 1 }\n\
         [[turn]]\ntext = '{\"n\":'\nfinish = 'length'\n\
         [[turn]]\ntext = ' 1}'\nusage = { input = 100000, output = 20 }",
        &["--set", "limits.warn_at_usd=0.01", "--output-schema", "schema.json"],
        0,
    ),
    ("[[turn]]\ntext = 'x'\nfinish = 'odd'", &["--self-eval", "basic"], 2),
];

#[test]
fn results_and_events_of_runs_satisfy_their_schemas() {
    let [result, event] = ["result", "event"].map(printed_schema);
    let mut types = Vec::new();
    for (script, args, code) in RUNS {
        let world = CliFixture::new();
        world.write("schema.json", r#"{"type": "object", "required": ["n"]}"#);
        let ran = world.run_script(script, &[args, &["--json"]].concat());
        assert_eq!(ran.code, code, "{script}\n{}", ran.err);
        assert_valid(&result, &ran.json());
        let world = CliFixture::new();
        world.write("schema.json", r#"{"type": "object", "required": ["n"]}"#);
        let lines =
            world.run_script(script, &[args, &["--output-format", "stream-json"]].concat()).lines();
        for line in &lines {
            assert_valid(&event, line);
            types.push(line["type"].as_str().unwrap().to_owned());
        }
        assert_valid(&result, lines.last().unwrap());
    }
    types.sort();
    types.dedup();
    assert!(types.len() >= 13, "{types:?}");
}

#[test]
fn the_document_of_a_loop_and_of_a_start_that_failed_satisfy_the_schema() {
    let result = printed_schema("result");
    let world = CliFixture::new();
    let model = world.script_model("repeat = true\n[[turn]]\ntext = 'Done.'");
    let ran = world.run(&["loop", "Do it.", "--check", "false", "--model", &model, "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_valid(&result, &ran.json());
    assert_valid(&result, &world.run(&["run", "x", "--json"]).json());
}

/// Each command that prints JSON has a schema of its name.
#[test]
fn the_documents_of_commands_satisfy_their_schemas() {
    let world = CliFixture::new();
    world.write(".agents/skills/a/SKILL.md", "---\nname: a\ndescription: x\n---\n");
    world.write(
        "trace.json",
        r#"{"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]}"#,
    );
    world.write("scenarios/one.toml", "about = 'x'\nprompt = 'x'\n[[turn]]\ntext = 'Done.'\n");
    for (script, args, code) in RUNS {
        world.write("schema.json", r#"{"type": "object", "required": ["n"]}"#);
        assert_eq!(world.run_script(script, args).code, code);
    }
    let export = world.run(&["sessions", "export", "last"]).out;
    let edited = world.run(&["worktrees", "--json"]).json()[0]["session_id"].clone();
    let edited = edited.as_str().unwrap().to_owned();
    world.write("export.jsonl", &export);
    let model = world.script_model("repeat = true\n[[turn]]\ntext = 'Done.'");
    assert_eq!(world.run(&["run", "x", "--model", &model]).code, 0);
    let lanes = ["what-if", "last", "--model", &model, "--lanes", "2", "--check", "true", "--json"];
    let commands: [(&str, &[&str]); 24] = [
        ("agents", &["agents", "--json"]),
        ("conform", &["conform", "trace.json", "--from", "openai", "--json"]),
        ("diff", &["diff", &edited, "--json"]),
        ("doctor", &["doctor", "--json"]),
        ("models", &["models", "--json"]),
        ("replay", &["replay", "last", "--json"]),
        ("replay", &["replay", "last", "--verify", "--json"]),
        ("sessions", &["sessions", "--json"]),
        ("sessions-show", &["sessions", "show", "last", "--json"]),
        ("sessions-search", &["sessions", "search", "Done", "--json"]),
        ("sessions-costs", &["sessions", "costs", "--json"]),
        ("sessions-costs", &["sessions", "costs", "--total", "--json"]),
        ("skills", &["skills", "--json"]),
        ("stats", &["stats", "--json"]),
        ("test", &["test", "scenarios", "--json"]),
        ("test-from-all", &["test", "--from-all", "--out", "suite", "--json"]),
        ("trace", &["trace", "last", "--json"]),
        ("what-if", &["what-if", "last", "--set", "limits.max_steps=0", "--json"]),
        ("what-if", &lanes),
        ("worktrees", &["worktrees", "--json"]),
        ("worktrees-merge", &["worktrees", "merge", "fix", "--json"]),
        ("worktrees-rm", &["worktrees", "rm", "fix", "--force", "--json"]),
        ("sessions-rm", &["sessions", "rm", "last", "--json"]),
        ("cleanup", &["cleanup", "--older-than", "0", "--json"]),
    ];
    for (subject, args) in commands {
        let schema = printed_schema(subject);
        let ran = world.run(args);
        let lines = ran.lines();
        assert!(!lines.is_empty() && ran.code != 3, "{args:?}: {}{}", ran.out, ran.err);
        lines.iter().for_each(|line| assert_valid(&schema, line));
        assert!(!schema.is_valid(&json!({"nonsense": 1})), "{subject}");
    }
    let imported = CliFixture::new();
    imported.write("export.jsonl", &export);
    let document = imported.run(&["sessions", "import", "export.jsonl", "--json"]).json();
    assert_valid(&printed_schema("sessions-import"), &document);
}

#[test]
fn what_is_none_of_this_does_not_satisfy_the_schemas() {
    let [result, event] = ["result", "event"].map(printed_schema);
    assert!(!result.is_valid(&json!({ "schema": 1 })));
    let world = CliFixture::new();
    let lines = world.run_script(RUNS[0].0, &["--output-format", "stream-json"]).lines();
    for line in lines {
        let mut other = line.clone();
        other["type"] = json!("nonsense");
        assert!(!event.is_valid(&other), "{other}");
        let mut other = line.clone();
        other["session_id"] = json!(3);
        assert!(!event.is_valid(&other), "{other}");
        if line["type"] == "agent_end" || line["type"] == "result" {
            let mut other = line.clone();
            other["stop_reason"] = json!("nonsense");
            assert!(!event.is_valid(&other), "{other}");
        }
    }
}

#[test]
fn scenarios_satisfy_their_schema() {
    let schema = printed_schema("scenario");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut count = 0;
    for file in ignore::Walk::new(&folder).map(Result::unwrap) {
        if file.path().extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(file.path()).unwrap();
            if let Ok(scenario) = toml::from_str(&text) {
                assert_valid(&schema, &scenario);
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
    for wrong in ["promt = 'x'", "prompt = 'x'\n[[turn]]\nsay = 'x'", "prompt = 'x'\nexpect.n = 1"]
    {
        assert!(!schema.is_valid(&toml::from_str(wrong).unwrap()), "{wrong}");
    }
}

/// The other checks are beside the code of these schemas.
#[test]
fn configurations_and_manifests_have_schemas() {
    let template = CliFixture::new().run(&["init", "--print", "--preset", "rust"]).out;
    assert_valid(&printed_schema("config"), &toml::from_str(&template).unwrap());
    let manifest = json!({ "task": [{ "id": "a", "prompt": "x" }] });
    assert_valid(&printed_schema("manifest"), &manifest);
}

/// An editor finds the schema by the first line of the file, which names a file beside it.
#[test]
fn a_new_configuration_names_its_schema_in_the_first_line() {
    let world = CliFixture::new();
    assert_eq!(world.run(&["init", "--preset", "rust"]).code, 0);
    let first = world.read(".architect/config.toml").lines().next().unwrap().to_owned();
    let file = first.strip_prefix("#:schema ./").unwrap_or_else(|| panic!("{first}")).to_owned();
    let written: Value = serde_json::from_str(&world.read(&format!(".architect/{file}"))).unwrap();
    assert_eq!(written, world.run(&["schema", "config"]).json());
    assert_eq!(written, world.run(&["config", "schema"]).json());
}

#[test]
fn every_command_has_a_man_page() {
    let world = CliFixture::new();
    let page = world.run(&["man"]).out;
    assert!(page.contains(".TH architect 1") && page.contains("architect\\-run(1)"), "{page}");
    assert!(world.run(&["man", "run"]).out.contains("\\-\\-max\\-steps"));
    assert_eq!(world.run(&["man", "fly"]).code, 3);
    assert_eq!(world.run(&["man", "--out", "man1"]).code, 0);
    for name in ["architect", "architect-run", "architect-batch-emit", "architect-worktrees"] {
        assert!(world.read(&format!("man1/{name}.1")).starts_with(".ie"), "{name}");
    }
}

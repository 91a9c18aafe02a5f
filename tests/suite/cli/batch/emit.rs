//! Batches for schedulers: the written files, and their runs by a scheduler.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};

use super::fixture::{ANSWER, Batch, appending};
use crate::kit::cli::{CommandResult, wait_for_exit};

/// The options of a batch that runs by itself.
const OPTIONS: [&str; 4] = ["--model", "scripted/script.toml", "--mode", "yolo"];

/// A scheduler that runs jobs at once, one after the other: it takes the options that scripts give to Slurm's.
const SBATCH: &str = r#"#!/bin/bash
echo "sbatch $*" >> "$LOG"
last=1
for word in "$@"; do case $word in --array=1-*) last=${word#--array=1-}; array=yes ;; esac; done
script=${*: -2:1} role=${*: -1}
for index in $(seq "$last"); do
    export SLURM_JOB_ID=$((10 + index)) SLURM_ARRAY_JOB_ID=7
    [ -z "$array" ] || export SLURM_ARRAY_TASK_ID=$index
    bash "$script" "$role" >> "$LOG" 2>&1
    echo "exit code $?" >> "$LOG"
done
echo 7
"#;

const SCONTROL: &str = "#!/bin/bash\necho \"scontrol $*\" >> \"$LOG\"\n";

impl Batch {
    /// Writes the batch for a scheduler.
    fn emit(&self, args: &[&str]) -> CommandResult {
        self.cli.run(&[&["batch", "emit"], args, &OPTIONS].concat())
    }

    /// Returns a script with the scheduler in its path.
    fn script(&self, args: &[&str]) -> Command {
        for (name, text) in [("sbatch", SBATCH), ("scontrol", SCONTROL)] {
            let name = format!("bin/{name}");
            self.cli.write(&name, text);
            fs::set_permissions(self.cli.path(&name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = self.cli.command(&[]);
        let path = std::env::var("PATH").unwrap();
        let mut script = Command::new("bash");
        script.args(args).current_dir(self.cli.path(""));
        for (name, value) in command.env("ARCHITECT", env!("CARGO_BIN_EXE_architect")).get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        script.env("PATH", format!("{}:{path}", self.cli.path("bin").display()));
        script.env("LOG", self.cli.path("log"));
        script.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        script
    }
}

#[test]
fn a_script_for_slurm_runs_all_cells_and_writes_the_report_whatever_the_names_are() {
    let batch = Batch::with_tasks(&["a", "it's $HOME", "c `id`", "d"], &appending(0));
    fs::rename(batch.cli.path("tasks.jsonl"), batch.cli.path("the \"tasks\".jsonl")).unwrap();
    let out = "o'u\nt $(x)";
    let emitted = batch.emit(&[
        "slurm",
        "the \"tasks\".jsonl",
        "--nodes",
        "3",
        "--out",
        out,
        "--set",
        "sandbox.writable=['/tmp/a b']",
        "--retry-failed",
        "--sbatch=--partition=long",
    ]);
    assert_eq!(emitted.code, 0, "{}", emitted.err);
    assert!(
        emitted.out.starts_with("#!/bin/bash\n# 4 cells of the batch the \"tasks\", in 3 parts")
    );
    assert!(emitted.out.contains("\n#SBATCH --requeue\n"), "{}", emitted.out);
    assert!(emitted.out.contains("\n#SBATCH --partition=long\n\n"), "{}", emitted.out);
    batch.cli.write("job.sh", &emitted.out);
    let ran = wait_for_exit(batch.script(&["job.sh"]).spawn().unwrap());
    let log = batch.cli.read("log");
    assert_eq!(
        (ran.code, &*ran.out),
        (0, "submitted: job 7 for the parts, job 7 for the report\n")
    );
    assert_eq!(log.matches("exit code 0\n").count(), 4, "{log}");
    assert!(log.contains("sbatch --parsable --dependency=afterany:7 job.sh last\n"), "{log}");
    assert!(log.contains("4 of 4 cells are finished"), "{log}");
    let results = fs::read_to_string(batch.cli.path(out).join("results.jsonl")).unwrap();
    assert_eq!(results.matches("\"status\":\"success\"").count(), 4, "{results}");
    for id in ["a", "it's $HOME", "c `id`", "d"] {
        assert_eq!(batch.runs_of(id), 1, "{id}");
    }
}

#[test]
fn a_part_at_its_time_limit_is_queued_again_and_a_cancelled_one_is_not() {
    let batch = Batch::with_tasks(&["a", "b"], &appending(60_000));
    let emitted = batch.emit(&["slurm", "tasks.jsonl", "--nodes", "2", "--out", "out"]);
    batch.cli.write("job.sh", &emitted.out).write("log", "");
    for (signal, index, expected) in
        [(Signal::TERM, "1", ""), (Signal::USR1, "2", "scontrol requeue 7_2\n")]
    {
        let mut part = batch.script(&["job.sh", "part"]);
        part.env("SLURM_JOB_ID", "9").env("SLURM_ARRAY_JOB_ID", "7");
        let part = part.env("SLURM_ARRAY_TASK_ID", index).spawn().unwrap();
        batch.wait_for(["a", "b"][usize::from(index == "2")]);
        kill_process(Pid::from_child(&part), signal).unwrap();
        let ran = wait_for_exit(part);
        assert_eq!(ran.code, 143, "{}", ran.err);
        assert_eq!(batch.cli.read("log"), expected);
    }
    // Without the delay: the run of another job with the same part.
    batch.cli.write("script.toml", &appending(0));
    let ran =
        wait_for_exit(batch.script(&["job.sh", "last"]).env("SLURM_JOB_ID", "9").spawn().unwrap());
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    assert_eq!((batch.runs_of("a"), batch.runs_of("b")), (1, 1));
}

#[test]
fn nothing_is_written_for_a_batch_that_can_not_run_there() {
    let batch = Batch::with_tasks(&["a"], ANSWER);
    batch.cli.write("wrong.jsonl", "{\"id\": \"a\"}\n{\"prompt\": \"b\"}\n");
    let slurm = |more: &[&str]| batch.emit(&[&["slurm", "--nodes", "2"], more].concat());
    let kubernetes = |more: &[&str]| {
        batch.emit(&[&["kubernetes", "--nodes", "2", "--image", "i"], more].concat())
    };
    for (ran, expected) in [
        (slurm(&["wrong.jsonl"]), "2 mistakes:"),
        (kubernetes(&["wrong.jsonl"]), "2 mistakes:"),
        (slurm(&["missing.jsonl", "--json"]), "could not read missing.jsonl"),
        (slurm(&["-"]), "the nodes can't read the tasks from this standard input"),
        (slurm(&["tasks.jsonl", "--shard", "1/2"]), "--shard is what each part gets"),
        (slurm(&["tasks.jsonl", "--sbatch", "x"]), "'x' is no option of sbatch"),
        (slurm(&["tasks.jsonl", "--sbatch", "--a\nrm x"]), "is no option of sbatch"),
        (kubernetes(&["tasks.jsonl", "--out", "/elsewhere"]), "/elsewhere is not on the volume"),
        (kubernetes(&["../tasks.jsonl"]), "../tasks.jsonl is not on the volume"),
        (kubernetes(&["tasks.jsonl", "--mount", "x"]), "not the absolute path of a folder"),
    ] {
        assert_eq!((ran.code, &*ran.out), (3, ""), "{}", ran.err);
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    let args = [&["batch", "emit", "slurm", "tasks.jsonl", "--nodes", "2"], &OPTIONS[..]].concat();
    let mut command = batch.cli.command(&args);
    command.env("SOME_API_KEY", "k1f9c33d2a7b4").args(["--out", "k1f9c33d2a7b4"]);
    let ran = wait_for_exit(command.spawn().unwrap());
    assert_eq!((ran.code, &*ran.out), (3, ""), "{}", ran.err);
    assert!(ran.err.contains("an option has a secret"), "{}", ran.err);
}

/// The used fields of a Job, as in the published schema `batch/v1`: the fields of an object, after its path. Elements
/// of a list have the path of the list.
const FIELDS: &[(&str, &[&str])] = &[
    ("", &["apiVersion", "kind", "metadata", "spec"]),
    ("metadata", &["name", "labels"]),
    ("metadata.labels", &["app.kubernetes.io/name"]),
    (
        "spec",
        &[
            "completionMode",
            "completions",
            "parallelism",
            "backoffLimitPerIndex",
            "podFailurePolicy",
            "template",
        ],
    ),
    ("spec.podFailurePolicy", &["rules"]),
    ("spec.podFailurePolicy.rules", &["action", "onExitCodes", "onPodConditions"]),
    ("spec.podFailurePolicy.rules.onExitCodes", &["containerName", "operator", "values"]),
    ("spec.podFailurePolicy.rules.onPodConditions", &["type", "status"]),
    ("spec.template", &["metadata", "spec"]),
    ("spec.template.metadata", &["labels"]),
    ("spec.template.metadata.labels", &["app.kubernetes.io/name"]),
    (
        "spec.template.spec",
        &[
            "restartPolicy",
            "automountServiceAccountToken",
            "enableServiceLinks",
            "terminationGracePeriodSeconds",
            "securityContext",
            "containers",
            "volumes",
        ],
    ),
    (
        "spec.template.spec.securityContext",
        &[
            "runAsNonRoot",
            "runAsUser",
            "runAsGroup",
            "fsGroup",
            "fsGroupChangePolicy",
            "seccompProfile",
        ],
    ),
    ("spec.template.spec.securityContext.seccompProfile", &["type"]),
    (
        "spec.template.spec.containers",
        &[
            "name",
            "image",
            "command",
            "args",
            "workingDir",
            "env",
            "envFrom",
            "resources",
            "securityContext",
            "volumeMounts",
        ],
    ),
    ("spec.template.spec.containers.env", &["name", "value"]),
    ("spec.template.spec.containers.envFrom", &["secretRef"]),
    ("spec.template.spec.containers.envFrom.secretRef", &["name"]),
    ("spec.template.spec.containers.resources", &["requests", "limits"]),
    ("spec.template.spec.containers.resources.requests", &["cpu", "memory"]),
    ("spec.template.spec.containers.resources.limits", &["memory"]),
    (
        "spec.template.spec.containers.securityContext",
        &["allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"],
    ),
    ("spec.template.spec.containers.securityContext.capabilities", &["drop"]),
    ("spec.template.spec.containers.volumeMounts", &["name", "mountPath", "subPath"]),
    ("spec.template.spec.volumes", &["name", "persistentVolumeClaim", "emptyDir"]),
    ("spec.template.spec.volumes.persistentVolumeClaim", &["claimName"]),
    ("spec.template.spec.volumes.emptyDir", &[]),
];

/// Reads the part of YAML that the program writes: blocks, and values in one line.
struct YamlReader<'a>(Vec<(usize, &'a str)>);

impl<'a> YamlReader<'a> {
    fn read(text: &'a str) -> Value {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let line = |line: &'a str| (line.len() - line.trim_start().len(), line.trim_start());
        let mut lines: Vec<_> = lines.map(line).collect();
        lines.reverse();
        let mut reader = Self(lines);
        let value = reader.block();
        assert_eq!(reader.0, []);
        value
    }

    fn block(&mut self) -> Value {
        let (indent, first) = *self.0.last().unwrap();
        if first.starts_with("- ") {
            let mut items = Vec::new();
            while let Some((_, item)) =
                self.0.pop_if(|(at, line)| *at == indent && line.starts_with("- "))
            {
                let item = &item[2..];
                match is_entry(item) {
                    true => {
                        self.0.push((indent + 2, item));
                        items.push(self.block());
                    }
                    false => items.push(scalar(item)),
                }
            }
            return Value::Array(items);
        }
        let mut object = Map::new();
        while let Some((_, line)) = self.0.pop_if(|(at, line)| *at == indent && is_entry(line)) {
            let (key, value) = line.split_once(':').unwrap();
            let value = if value.is_empty() { self.block() } else { scalar(value.trim()) };
            assert_eq!(object.insert(key.to_owned(), value), None, "{key} twice");
        }
        Value::Object(object)
    }
}

fn is_entry(line: &str) -> bool {
    !line.starts_with('"') && (line.contains(": ") || line.ends_with(':'))
}

fn scalar(text: &str) -> Value {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(items) => items.split(", ").map(scalar).collect(),
        None => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    }
}

fn check_fields(path: &str, value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| check_fields(path, item)),
        Value::Object(object) => {
            let (_, allowed) = FIELDS.iter().find(|(known, _)| *known == path).expect(path);
            for (key, value) in object {
                assert!(allowed.contains(&key.as_str()), "{path} has no field {key}");
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                check_fields(&path, value);
            }
        }
        _ => {}
    }
}

#[test]
fn a_job_for_kubernetes_has_the_fields_of_the_published_schema() {
    let batch = Batch::with_tasks(&["a", "b", "c"], ANSWER);
    let emitted = batch.emit(&[
        "kubernetes",
        "tasks.jsonl",
        "--nodes",
        "2",
        "--image",
        "r.example/i:1",
        "--claim",
        "c",
        "--secret",
        "s",
        "--cpu",
        "4",
        "--memory",
        "8Gi",
        "--out",
        "o $(HOME) $$",
    ]);
    assert_eq!(emitted.code, 0, "{}", emitted.err);
    let job = YamlReader::read(&emitted.out);
    check_fields("", &job);
    assert_eq!(job["apiVersion"], "batch/v1");
    assert_eq!(job["metadata"]["name"], "architect-tasks");
    let spec = &job["spec"];
    assert_eq!(
        json!([spec["completionMode"], spec["completions"], spec["parallelism"]]),
        json!(["Indexed", 2, 2])
    );
    let rules = spec["podFailurePolicy"]["rules"].as_array().unwrap();
    let by_code = rules.iter().map(|rule| json!([rule["action"], rule["onExitCodes"]["values"]]));
    let expected =
        json!([["FailJob", [3, 4]], ["FailIndex", [2]], ["Ignore", [143]], ["Ignore", null]]);
    assert_eq!(by_code.collect::<Value>(), expected);
    let pod = &spec["template"]["spec"];
    // The only policy with which a Job may have rules for exit codes.
    assert_eq!(pod["restartPolicy"], "Never");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "c");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "r.example/i:1");
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "s"}}]));
    assert_eq!(container["resources"]["requests"], json!({"cpu": "4", "memory": "8Gi"}));
    let mounts = container["volumeMounts"].as_array().unwrap();
    let volumes: Vec<_> =
        pod["volumes"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(mounts.iter().all(|mount| volumes.contains(&&mount["name"])), "{mounts:?}");
}

#[test]
fn the_containers_of_a_job_run_all_cells() {
    let batch = Batch::with_tasks(&["a", "b", "c"], &appending(0));
    let emitted = batch.emit(&[
        "kubernetes",
        "tasks.jsonl",
        "--nodes",
        "2",
        "--image",
        "i",
        "--out",
        "o'u\"t $(HOME) $$",
        "--retry-failed",
    ]);
    assert_eq!(emitted.code, 0, "{}", emitted.err);
    let job = YamlReader::read(&emitted.out);
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let words = |key: &str| container[key].as_array().unwrap().clone();
    // As Kubernetes reads them: no word has a variable, and $$ stands for $.
    let words: Vec<String> = [words("command"), words("args")]
        .concat()
        .iter()
        .map(|word| word.as_str().unwrap().replace("$$", "$"))
        .collect();
    batch.cli.write("bin/architect", "#!/bin/sh\nexec \"$ARCHITECT\" \"$@\"\n");
    let program = batch.cli.path("bin/architect");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for index in ["0", "1"] {
        let mut part = batch.script(&[]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(batch.cli.path(""));
        for (name, value) in part.env("JOB_COMPLETION_INDEX", index).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let out = command.output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{err}");
    }
    let results =
        fs::read_to_string(batch.cli.path("o'u\"t $(HOME) $$").join("results.jsonl")).unwrap();
    assert_eq!(results.lines().count(), 3, "{results}");
}

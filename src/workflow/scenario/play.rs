//! The environment of a scenario: a temporary workspace and a simulated clock.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};
use ignore::WalkBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::parse::{Scenario, ScenarioClock};
use super::recording::{
    EventScript, InputSender, RecordedRun, RecordingModel, ScriptedMessages, SharedRecording,
};
use crate::app::{
    AppError, ExecutionMode, FinishedRun, ProcessEnv, ResolvedModel, RunEnvironment, RunIo,
    RunRequest, RunSetup, SessionTarget, SubagentClock, open_store,
};
use crate::config::{ConfigSources, OptionOverride, load};
use crate::exec::new_temp_name;
use crate::journal::{JournalError, SessionId};
use crate::machine::{Deadline, StopReason};
use crate::policy::{ConfirmationAnswer, ConfirmationRequest, Confirmer};
use crate::port::{Clock, EffectContext};
use crate::runner::{DriverInput, Executor, InlineExecutor, Ports, SystemClock, ThreadExecutor};
use crate::types::TimeSpan;
use crate::view::{CostSource, Reporter, RunResult};

/// The session id of every scenario, so that names derived from it are constant.
const SESSION_ID: &str = "01900000-0000-7000-8000-000000000000";

/// Placeholder for the folder of a scenario in recorded texts.
const FOLDER_PLACEHOLDER: &str = "<folder>";

/// Placeholder for the folder for temporary files.
const TEMP_PLACEHOLDER: &str = "<temp>";

/// Placeholder for the private caches of package managers.
const CACHES_PLACEHOLDER: &str = "<caches>";

/// Size limit of a file that is recorded after a run, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The maximum number of parallel tools with the real clock.
const MAX_PARALLEL_TOOLS: u32 = 4;

/// Runs a scenario, and returns its record.
pub(super) fn play(scenario: &Scenario, world: &ProcessEnv) -> Result<RecordedRun, AppError> {
    let failed =
        |error: io::Error| AppError::system_error("make the workspace of the scenario", &error);
    // A later run removes it if this process is killed.
    let folder = tempfile::Builder::new().prefix(&new_temp_name()).rand_bytes(0).tempdir();
    let folder = folder.map_err(failed)?;
    create_files(scenario, &folder).map_err(failed)?;
    let setup = build_setup(scenario, &folder, world)?;
    let workspace = setup.config.workspace.clone();
    let original_files = read_files(&workspace).map_err(failed)?;
    let notes = SharedRecording::new(&scenario.content.actions);
    let (ended, result) = run_scenario(scenario, &setup, &notes)?;
    let (events, requests) = notes.take();
    let planned = ended.planned.iter();
    let planned = planned.map(|planned| format!("{}: {}", planned.tool, planned.summary));
    let files = read_files(&workspace).map_err(failed)?;
    let mut record = json!({
        "exit_code": result.exit_code,
        "stop_reason": result.stop_reason.map(StopReason::name),
        "steps": result.steps,
        "llm_calls": result.llm_calls,
        "took_ms": result.duration.0 / 1_000,
        "cost_micros": result.cost,
        "output": &*result.output,
        "error": result.error.as_deref().unwrap_or_default(),
        "planned": planned.collect::<Vec<_>>(),
        "files": files,
        "tools": tool_calls(&events),
        "requests": requests,
    });
    let real = fs::canonicalize(folder.path()).map_err(failed)?;
    let temp = setup.sandbox.model.policy().temp.to_string_lossy().into_owned();
    let caches = setup.sandbox.model.policy().caches.store.as_ref();
    let caches = caches.map_or_else(|| temp.clone(), |store| store.to_string_lossy().into_owned());
    let folders = [
        (&*caches, CACHES_PLACEHOLDER),
        (&real.to_string_lossy(), FOLDER_PLACEHOLDER),
        (&folder.path().to_string_lossy(), FOLDER_PLACEHOLDER),
        (&temp, TEMP_PLACEHOLDER),
    ];
    replace_paths(&mut record, &folders);
    Ok(RecordedRun { record, events, original_files, files })
}

/// Creates the files of the scenario.
fn create_files(scenario: &Scenario, folder: &TempDir) -> io::Result<()> {
    for name in ["workspace", "home"] {
        fs::create_dir(folder.path().join(name))?;
    }
    if let Some(config) = &scenario.content.config {
        fs::write(folder.path().join("config.toml"), config)?;
    }
    let workspace = cap_std::fs::Dir::open_ambient_dir(
        folder.path().join("workspace"),
        cap_std::ambient_authority(),
    )?;
    for (path, content) in &scenario.content.workspace {
        if let Some(parent) = Path::new(path).parent().filter(|parent| *parent != Path::new("")) {
            workspace.create_dir_all(parent)?;
        }
        workspace.write(path, content)?;
    }
    Ok(())
}

/// Returns the setup of the run. From the user's environment it only has `PATH`.
fn build_setup(
    scenario: &Scenario,
    folder: &TempDir,
    world: &ProcessEnv,
) -> Result<RunSetup, AppError> {
    let content = &scenario.content;
    let path = |name: &str| folder.path().join(name);
    let mut sets = vec!["sessions.durability=os".to_owned()];
    let mode = content.mode.iter();
    sets.extend(mode.map(|mode| format!("agents.{}.confirm_mode={mode}", content.agent)));
    sets.extend(content.sets.iter().cloned());
    let mut config = load(&ConfigSources {
        cwd: path("workspace"),
        file: content.config.as_ref().map(|_| path("config.toml")),
        sets,
        // A scenario is a file of the project, which the agent can write.
        is_all_of_project: !scenario.is_trusted,
        options: [("workspace.root", "workspace"), ("sessions.dir", "sessions")]
            .map(|(key, name)| OptionOverride {
                key,
                value: path(name).to_string_lossy().into_owned(),
                option: "the folders of a scenario".to_owned(),
            })
            .into(),
        ..ConfigSources::default()
    })?;
    let sandbox = &mut config.settings.sandbox;
    if let Some(own) = &scenario.own_sandbox {
        sandbox.required |= own.required;
        if own.network < sandbox.network {
            sandbox.network = own.network;
            sandbox.allowed_hosts.clone_from(&own.allowed_hosts);
        }
    }
    let user = Some(Arc::new(world.clone()));
    let programs = world.variables.iter().filter(|(name, _)| name == "PATH").cloned();
    let home = ("HOME".into(), path("home").into_os_string());
    let world = ProcessEnv {
        variables: programs.chain([home]).collect(),
        cwd: path("workspace"),
        user,
        ..ProcessEnv::default()
    };
    let model = ResolvedModel::scripted("scripted/scenario", scenario.script.clone());
    let mut setup = RunSetup::new(config, world, &content.agent, model)?;
    if content.dry_run {
        setup.execution = ExecutionMode::DryRun;
    }
    match content.schema.clone() {
        None => Ok(setup),
        Some(schema) => setup.with_schema(schema),
    }
}

fn run_scenario(
    scenario: &Scenario,
    setup: &RunSetup,
    notes: &SharedRecording,
) -> Result<(FinishedRun, RunResult), AppError> {
    let store = open_store(&setup.config, &setup.env)?;
    let session: SessionId = SESSION_ID.parse().map_err(JournalError::from)?;
    let target = SessionTarget::New(store, Some(session));
    let request = RunRequest::new(scenario.content.prompt.as_str(), target, CostSource::Agent);
    let confirm = Arc::new(ScriptedUser(scenario.content.confirm.clone()));
    let (executor, sender, subagent_clock): (Box<dyn Executor>, InputSender, _) =
        match scenario.content.time {
            ScenarioClock::Virtual => {
                let (sender, pending) = unbounded();
                let executor = InterruptibleExecutor { inline: InlineExecutor::new(), pending };
                let send = move |input| drop(sender.send(input));
                (Box::new(executor), Box::new(send), SubagentClock::Simulated)
            }
            ScenarioClock::Real => {
                let executor =
                    ThreadExecutor::new(Arc::new(SystemClock::start()), MAX_PARALLEL_TOOLS);
                let inbox = executor.inbox();
                (Box::new(executor), Box::new(move |input| inbox.send(input)), SubagentClock::Real)
            }
        };
    let script = EventScript { recording: notes.clone(), sender };
    let reporter = Reporter::new(vec![Box::new(script)]);
    let io = RunIo { reporter: reporter.clone(), confirm, sandbox: None };
    let recording = notes.clone();
    let environment = RunEnvironment {
        executor,
        subagent_clock,
        ports: Box::new(move |ports| Ports {
            model: Box::new(RecordingModel { recording: recording.clone(), model: ports.model }),
            messages: Box::new(ScriptedMessages(recording)),
            ..ports
        }),
    };
    let ended = setup.run_in(environment, request, io)?;
    Ok((ended, reporter.last_result()))
}

/// An inline executor that takes inputs from outside between two events.
struct InterruptibleExecutor {
    inline: InlineExecutor,
    pending: Receiver<DriverInput>,
}

impl Executor for InterruptibleExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: crate::runner::EffectTask) {
        self.inline.start(work);
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        self.pending.try_recv().ok().or_else(|| self.inline.wait_input(deadline))
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.pending.try_recv().ok().or_else(|| self.inline.try_input())
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        self.inline.wait_idle(grace)
    }
}

/// A user who always gives the same answer, or no user.
struct ScriptedUser(Option<ConfirmationAnswer>);

impl Confirmer for ScriptedUser {
    fn confirm(&self, _: &ConfirmationRequest<'_>, _: &EffectContext) -> ConfirmationAnswer {
        self.0.clone().unwrap_or(ConfirmationAnswer::Unavailable)
    }
}

/// Returns the tool calls in call order, with their results.
fn tool_calls(events: &[Value]) -> Vec<Value> {
    let mut calls: Vec<(&Value, Option<Value>)> = Vec::new();
    for event in events {
        let id = &event["id"];
        if event["type"] == "tool_call_start" {
            calls.push((id, None));
        } else if event["type"] == "tool_call_end" {
            let [name, status, text] =
                ["name", "status", "output"].map(|key| event[key].as_str().unwrap_or_default());
            let call = Some(json!({ "name": name, "status": status, "text": text }));
            match calls.iter_mut().find(|(known, call)| *known == id && call.is_none()) {
                Some((_, open)) => *open = call,
                None => calls.push((id, call)),
            }
        }
    }
    calls.into_iter().filter_map(|(_, call)| call).collect()
}

/// Returns the text of the files below a folder.
fn read_files(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in WalkBuilder::new(folder).standard_filters(false).build() {
        let entry = entry.map_err(io::Error::other)?;
        let data = entry.metadata().map_err(io::Error::other)?;
        if data.is_file() && data.len() <= MAX_FILE_BYTES {
            let name = entry.path().strip_prefix(folder).unwrap_or(entry.path()).to_string_lossy();
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            found.insert(name.into_owned(), text);
        }
    }
    Ok(found)
}

/// Replaces the paths of folders that differ between runs by constant names.
fn replace_paths(record: &mut Value, folders: &[(&str, &str)]) {
    match record {
        Value::String(text) => {
            for (folder, name) in folders {
                if text.contains(folder) {
                    *text = text.replace(folder, name);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_paths(item, folders)),
        Value::Object(fields) => fields.values_mut().for_each(|item| replace_paths(item, folders)),
        _ => {}
    }
}

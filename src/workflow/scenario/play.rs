//! The environment of a scenario: a temporary workspace and a simulated clock.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use super::parse::{Scenario, ScenarioAnswer, ScenarioClock};
use super::recording::{
    EventScript, InputSender, RecordedCall, RecordedRun, RecordingModel, ScriptedMessages,
    SharedRecording,
};
use crate::app::{
    AppError, Environment, ExecutionMode, FinishedRun, ProcessEnv, ResolvedModel, RunIo,
    RunRequest, RunSetup, SessionTarget, SubagentClock, open_store,
};
use crate::config::{ConfigSources, load};
use crate::journal::SessionId;
use crate::machine::{Deadline, StopReason};
use crate::model::TimeSpan;
use crate::policy::{ConfirmationAnswer, ConfirmationRequest, Confirmer};
use crate::port::{Clock, EffectContext};
use crate::runner::{DriverInput, Executor, InlineExecutor, Ports, SystemClock, ThreadExecutor};
use crate::view::{CostSource, Reporter, RunResult};

/// The session of every scenario, so that what is named after it is always the same.
const SESSION_ID: &str = "01900000-0000-7000-8000-000000000000";

/// Stands for the folder of a scenario in recorded texts.
const FOLDER_PLACEHOLDER: &str = "<folder>";

/// Stands for the folder for temporary files.
const TEMP_PLACEHOLDER: &str = "<temp>";

/// Stands for the private caches of package managers.
const CACHES_PLACEHOLDER: &str = "<caches>";

/// The largest file that is looked at after a run, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Tools that run together by the clock of the machine.
const MAX_PARALLEL_TOOLS: u32 = 4;

/// Plays a scenario, and returns its record.
pub(super) fn play(scenario: &Scenario, world: &ProcessEnv) -> Result<RecordedRun, AppError> {
    let failed = |error: io::Error| AppError::System {
        what: "make the workspace of the scenario",
        cause: error.to_string(),
    };
    let folder = tempfile::Builder::new().prefix("architect-test-").tempdir().map_err(failed)?;
    create_files(scenario, &folder).map_err(failed)?;
    let setup = build_setup(scenario, &folder, world)?;
    let workspace = setup.config.workspace.clone();
    let before = read_files(&workspace).map_err(failed)?;
    let notes = SharedRecording::new(&scenario.actions);
    let (ended, result) = run_scenario(scenario, &setup, &notes)?;
    let (events, requests) = notes.take();
    let planned = ended.planned.iter();
    let planned = planned.map(|planned| format!("{}: {}", planned.tool, planned.summary)).collect();
    let mut seen = RecordedRun {
        output: result.output.to_string(),
        error: result.error.as_deref().unwrap_or_default().to_owned(),
        tools: tool_calls(&events),
        result,
        events,
        planned,
        requests,
        original_files: before,
        files: read_files(&workspace).map_err(failed)?,
    };
    let real = fs::canonicalize(folder.path()).map_err(failed)?;
    let temp = setup.sandbox.model.policy().temp.to_string_lossy().into_owned();
    let caches = setup.sandbox.model.policy().caches.store.as_ref();
    let caches = caches.map_or_else(|| temp.clone(), |store| store.to_string_lossy().into_owned());
    seen.replace_paths(&[
        (&caches, CACHES_PLACEHOLDER),
        (&real.to_string_lossy(), FOLDER_PLACEHOLDER),
        (&folder.path().to_string_lossy(), FOLDER_PLACEHOLDER),
        (&temp, TEMP_PLACEHOLDER),
    ]);
    Ok(seen)
}

/// Creates the files.
fn create_files(scenario: &Scenario, folder: &TempDir) -> io::Result<()> {
    for name in ["workspace", "home"] {
        fs::create_dir(folder.path().join(name))?;
    }
    if let Some(config) = &scenario.config {
        fs::write(folder.path().join("config.toml"), config)?;
    }
    let workspace = cap_std::fs::Dir::open_ambient_dir(
        folder.path().join("workspace"),
        cap_std::ambient_authority(),
    )?;
    for (path, content) in &scenario.workspace {
        if let Some(parent) = Path::new(path).parent().filter(|parent| *parent != Path::new("")) {
            workspace.create_dir_all(parent)?;
        }
        workspace.write(path, content)?;
    }
    Ok(())
}

/// Returns the set-up: nothing of the user's, but for the programs.
fn build_setup(
    scenario: &Scenario,
    folder: &TempDir,
    world: &ProcessEnv,
) -> Result<RunSetup, AppError> {
    let path = |name: &str| folder.path().join(name);
    let mut sets = vec![
        format!("sessions.dir={}", path("sessions").display()),
        "sessions.durability=os".to_owned(),
    ];
    sets.extend(
        scenario.mode.iter().map(|mode| format!("agents.{}.confirm_mode={mode}", scenario.agent)),
    );
    sets.extend(scenario.sets.iter().cloned());
    let config = load(&ConfigSources {
        cwd: path("workspace"),
        file: scenario.config.as_ref().map(|_| path("config.toml")),
        sets,
        ..ConfigSources::default()
    })?;
    let programs = world.variables.iter().filter(|(name, _)| name == "PATH").cloned();
    let home = ("HOME".into(), path("home").into_os_string());
    let world = ProcessEnv { variables: programs.chain([home]).collect(), cwd: path("workspace") };
    let model = ResolvedModel::scripted("scripted/scenario", scenario.script.clone());
    let mut setup = RunSetup::new(config, world, &scenario.agent, model)?;
    if scenario.dry_run {
        setup.execution = ExecutionMode::DryRun;
    }
    match scenario.schema.clone() {
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
    let session: SessionId = SESSION_ID.parse()?;
    let target = SessionTarget::New(store, Some(session));
    let request = RunRequest::new(scenario.prompt.as_str(), target, CostSource::Agent);
    let confirm = Arc::new(ScriptedUser(scenario.confirm));
    let (executor, sender, subagent_clock): (Box<dyn Executor>, InputSender, _) = match scenario
        .time
    {
        ScenarioClock::Virtual => {
            let pending = PendingInputs::default();
            let executor =
                InterruptibleExecutor { inline: InlineExecutor::new(), pending: pending.clone() };
            let sender = Box::new(move |input| pending.push(input));
            (Box::new(executor), sender, SubagentClock::Simulated)
        }
        ScenarioClock::Real => {
            let executor = ThreadExecutor::new(Arc::new(SystemClock::start()), MAX_PARALLEL_TOOLS);
            let inbox = executor.inbox();
            (Box::new(executor), Box::new(move |input| inbox.send(input)), SubagentClock::Real)
        }
    };
    let script = EventScript { recording: notes.clone(), sender };
    let reporter = Reporter::new(vec![Box::new(script)]);
    let io = RunIo { reporter: reporter.clone(), confirm, sandbox: None };
    let recording = notes.clone();
    let environment = Environment {
        executor,
        subagent_clock,
        ports: Box::new(move |ports| Ports {
            model: Box::new(RecordingModel { recording: recording.clone(), model: ports.model }),
            messages: Box::new(ScriptedMessages(recording)),
            ..ports
        }),
    };
    let ended = setup.run_in(environment, request, io)?;
    let broken = "the run left no result";
    let result = reporter.results(StopReason::InternalError, broken).pop();
    Ok((ended, result.unwrap_or_else(|| RunResult::not_started(broken))))
}

/// An inline executor with inputs from outside, between two events.
struct InterruptibleExecutor {
    inline: InlineExecutor,
    pending: PendingInputs,
}

/// Inputs besides the completions of effects.
#[derive(Clone, Default)]
struct PendingInputs(Arc<Mutex<VecDeque<DriverInput>>>);

impl PendingInputs {
    fn push(&self, arrival: DriverInput) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(arrival);
    }

    fn pop(&self) -> Option<DriverInput> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Executor for InterruptibleExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: crate::runner::EffectTask) {
        self.inline.start(work);
    }

    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput> {
        self.pending.pop().or_else(|| self.inline.wait_input(deadline))
    }

    fn try_input(&mut self) -> Option<DriverInput> {
        self.pending.pop().or_else(|| self.inline.try_input())
    }

    fn wait_idle(&mut self, grace: TimeSpan) -> bool {
        self.inline.wait_idle(grace)
    }
}

/// A user who always answers the same, or is not there.
struct ScriptedUser(Option<ScenarioAnswer>);

impl Confirmer for ScriptedUser {
    fn confirm(&self, _: &ConfirmationRequest<'_>, _: &EffectContext) -> ConfirmationAnswer {
        match self.0 {
            None => ConfirmationAnswer::Unavailable,
            Some(ScenarioAnswer::Yes) => ConfirmationAnswer::Yes,
            Some(ScenarioAnswer::No) => ConfirmationAnswer::No,
            Some(ScenarioAnswer::Abort) => ConfirmationAnswer::Abort,
        }
    }
}

/// Returns the tool calls in call order, with their answers.
fn tool_calls(events: &[Value]) -> Vec<RecordedCall> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut calls: Vec<(&Value, Option<RecordedCall>)> = Vec::new();
    for event in events {
        if event["type"] == "tool_call_start" {
            calls.push((&event["id"], None));
        } else if event["type"] == "tool_call_end" {
            let (name, status) = (text(event, "name"), text(event, "status"));
            let call = RecordedCall { name, status, text: text(event, "output") };
            match calls.iter_mut().find(|(id, call)| **id == event["id"] && call.is_none()) {
                Some((_, open)) => *open = Some(call),
                None => calls.push((&event["id"], Some(call))),
            }
        }
    }
    calls.into_iter().filter_map(|(_, call)| call).collect()
}

/// Returns the files below a folder, as text.
fn read_files(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && entry.metadata()?.len() <= MAX_FILE_BYTES {
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy();
                let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                found.insert(name.into_owned(), text);
            }
        }
    }
    Ok(found)
}

impl RecordedRun {
    /// Gives folders that are other ones each time always the same name.
    fn replace_paths(&mut self, folders: &[(&str, &str)]) {
        let replace = |text: &mut String| {
            for (folder, name) in folders {
                if text.contains(folder) {
                    *text = text.replace(folder, name);
                }
            }
        };
        [&mut self.output, &mut self.error].into_iter().for_each(replace);
        self.planned.iter_mut().for_each(replace);
        self.tools.iter_mut().for_each(|tool| replace(&mut tool.text));
        for request in &mut self.requests {
            replace(&mut request.system);
            request.new.iter_mut().for_each(replace);
        }
        self.files.values_mut().for_each(replace);
    }
}

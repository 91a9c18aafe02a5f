//! The stage of a scenario: a throw-away workspace, and hands that work on the spot.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use super::file::{Confirmation, Scenario, TimeKind};
use super::witness::{Called, Letters, Listener, Notes, Prompter, Way, Witnessed};
use crate::app::{
    AppError, Chosen, Effect, Ended, Nesting, Order, Place, Rehearsal, Setup, Stage, World, store,
};
use crate::config::{Sources, load};
use crate::journal::SessionId;
use crate::machine::{Deadline, StopReason};
use crate::model::Span;
use crate::port::{Clock, Model, Scope};
use crate::runner::{Arrival, Hands, Inline, Ports, SystemClock, Threads};
use crate::tools::permission::{Answer, Confirm, Question};
use crate::view::{RunResult, Show, Source};

/// The session of every scenario, so that what is named after it is always the same.
const SESSION: &str = "01900000-0000-7000-8000-000000000000";

/// What texts call the folder of a scenario.
const FOLDER: &str = "<folder>";

/// What texts call the folder for temporary files.
const TEMP: &str = "<temp>";

/// Stands for the private caches of package managers.
const CACHES: &str = "<caches>";

/// The largest file that is looked at after a run, in bytes.
const LONGEST: u64 = 4 << 20;

/// Tools that run together by the clock of the machine.
const PARALLEL: u32 = 4;

/// Plays a scenario, and returns what was seen.
pub(super) fn play(scenario: &Scenario, world: &World) -> Result<Witnessed, AppError> {
    let failed = |error: io::Error| AppError::System {
        what: "make the workspace of the scenario",
        cause: error.to_string(),
    };
    let folder = tempfile::Builder::new().prefix("architect-test-").tempdir().map_err(failed)?;
    furnish(scenario, &folder).map_err(failed)?;
    let setup = setup(scenario, &folder, world)?;
    let workspace = setup.config.workspace.clone();
    let before = files(&workspace).map_err(failed)?;
    let notes = Notes::new(&scenario.at);
    let (ended, result) = run(scenario, &setup, &notes)?;
    let (events, requests) = notes.take();
    let planned = ended.planned.iter();
    let planned = planned.map(|planned| format!("{}: {}", planned.tool, planned.summary)).collect();
    let mut seen = Witnessed {
        output: result.output.to_string(),
        error: result.error.as_deref().unwrap_or_default().to_owned(),
        tools: called(&events),
        result,
        events,
        planned,
        requests,
        before,
        files: files(&workspace).map_err(failed)?,
    };
    let real = fs::canonicalize(folder.path()).map_err(failed)?;
    let temp = setup.sandbox.model.policy().temp.to_string_lossy().into_owned();
    let caches = setup.sandbox.model.policy().caches.store.as_ref();
    let caches = caches.map_or_else(|| temp.clone(), |store| store.to_string_lossy().into_owned());
    seen.forget(&[
        (&caches, CACHES),
        (&real.to_string_lossy(), FOLDER),
        (&folder.path().to_string_lossy(), FOLDER),
        (&temp, TEMP),
    ]);
    Ok(seen)
}

/// Makes the files.
fn furnish(scenario: &Scenario, folder: &TempDir) -> io::Result<()> {
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
fn setup(scenario: &Scenario, folder: &TempDir, world: &World) -> Result<Setup, AppError> {
    let path = |name: &str| folder.path().join(name);
    let mut sets = vec![
        format!("sessions.dir={}", path("sessions").display()),
        "sessions.durability=os".to_owned(),
    ];
    sets.extend(
        scenario.mode.iter().map(|mode| format!("agents.{}.confirm_mode={mode}", scenario.agent)),
    );
    sets.extend(scenario.sets.iter().cloned());
    let config = load(&Sources {
        cwd: path("workspace"),
        file: scenario.config.as_ref().map(|_| path("config.toml")),
        sets,
        ..Sources::default()
    })?;
    let programs = world.variables.iter().filter(|(name, _)| name == "PATH").cloned();
    let home = ("HOME".into(), path("home").into_os_string());
    let world = World { variables: programs.chain([home]).collect(), cwd: path("workspace") };
    let model = Chosen::scripted("scripted/scenario", scenario.script.clone());
    let mut setup = Setup::new(config, world, &scenario.agent, model)?;
    if scenario.dry_run {
        setup.effect = Effect::Described;
    }
    match scenario.schema.clone() {
        None => Ok(setup),
        Some(schema) => setup.answering(schema),
    }
}

fn run(scenario: &Scenario, setup: &Setup, notes: &Notes) -> Result<(Ended, RunResult), AppError> {
    let store = store(&setup.config, &setup.world)?;
    let session: SessionId = SESSION.parse()?;
    let order = Order {
        task: Some(scenario.prompt.as_str().into()),
        place: Place::New(store, Some(session)),
        options: Value::Null,
        source: Source::Agent,
        exit_on_partial: None,
    };
    let confirm = Arc::new(User(scenario.confirm));
    let (show, ended) = match scenario.time {
        TimeKind::Virtual => {
            let late = Late::default();
            let queue = late.clone();
            let show = shown(notes, Box::new(move |arrival| queue.push(arrival)));
            let stage = Stage { show: show.clone(), confirm, sandbox: None };
            let hands = Rehearsed { inline: Inline::new(), late };
            (show, setup.rehearse(order, stage, rehearsal(hands, notes, Nesting::Rehearsed))?)
        }
        TimeKind::Real => {
            let hands = Threads::new(Arc::new(SystemClock::start()), PARALLEL);
            let inbox = hands.inbox();
            let show = shown(notes, Box::new(move |arrival| inbox.post(arrival)));
            let stage = Stage { show: show.clone(), confirm, sandbox: None };
            (show, setup.rehearse(order, stage, rehearsal(hands, notes, Nesting::Live))?)
        }
    };
    let broken = "the run left no result";
    let result = show.results(StopReason::InternalError, broken).pop();
    Ok((ended, result.unwrap_or_else(|| RunResult::refused(broken))))
}

fn shown(notes: &Notes, way: Way) -> Show {
    Show::new(vec![Box::new(Prompter { notes: notes.clone(), way })])
}

fn rehearsal<H>(hands: H, notes: &Notes, nesting: Nesting) -> Rehearsal<H> {
    let (listening, mail) = (notes.clone(), notes.clone());
    Rehearsal {
        hands,
        model: Box::new(move |model| {
            Box::new(Listener { notes: listening.clone(), model }) as Box<dyn Model>
        }),
        ports: Box::new(|ports| Ports { mailbox: Box::new(Letters(mail)), ..ports }),
        nesting,
    }
}

/// Works on the spot, and hears of signals between two events.
struct Rehearsed {
    inline: Inline,
    late: Late,
}

/// What arrives besides the results of work.
#[derive(Clone, Default)]
struct Late(Arc<Mutex<VecDeque<Arrival>>>);

impl Late {
    fn push(&self, arrival: Arrival) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(arrival);
    }

    fn pop(&self) -> Option<Arrival> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Hands for Rehearsed {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inline.clock()
    }

    fn start(&mut self, work: crate::runner::Work) {
        self.inline.start(work);
    }

    fn wait(&mut self, deadline: Option<Deadline>) -> Option<Arrival> {
        self.late.pop().or_else(|| self.inline.wait(deadline))
    }

    fn ready(&mut self) -> Option<Arrival> {
        self.late.pop().or_else(|| self.inline.ready())
    }

    fn settle(&mut self, grace: Span) -> bool {
        self.inline.settle(grace)
    }
}

/// A user who always answers the same, or is not there.
struct User(Option<Confirmation>);

impl Confirm for User {
    fn ask(&self, _: &Question<'_>, _: &Scope) -> Answer {
        match self.0 {
            None => Answer::Nobody,
            Some(Confirmation::Yes) => Answer::Yes,
            Some(Confirmation::No) => Answer::No,
            Some(Confirmation::Abort) => Answer::Abort,
        }
    }
}

/// Returns the tool calls in call order, with their answers.
fn called(events: &[Value]) -> Vec<Called> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut calls: Vec<(&Value, Option<Called>)> = Vec::new();
    for event in events {
        if event["type"] == "tool_call_start" {
            calls.push((&event["id"], None));
        } else if event["type"] == "tool_call_end" {
            let (name, status) = (text(event, "name"), text(event, "status"));
            let call = Called { name, status, text: text(event, "output") };
            match calls.iter_mut().find(|(id, call)| **id == event["id"] && call.is_none()) {
                Some((_, open)) => *open = Some(call),
                None => calls.push((&event["id"], Some(call))),
            }
        }
    }
    calls.into_iter().filter_map(|(_, call)| call).collect()
}

/// Returns the files below a folder, as text.
fn files(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && entry.metadata()?.len() <= LONGEST {
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy();
                let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                found.insert(name.into_owned(), text);
            }
        }
    }
    Ok(found)
}

impl Witnessed {
    /// Gives folders that are other ones each time always the same name.
    fn forget(&mut self, folders: &[(&str, &str)]) {
        let mend = |text: &mut String| {
            for (folder, name) in folders {
                if text.contains(folder) {
                    *text = text.replace(folder, name);
                }
            }
        };
        [&mut self.output, &mut self.error].into_iter().for_each(mend);
        self.planned.iter_mut().for_each(mend);
        self.tools.iter_mut().for_each(|tool| mend(&mut tool.text));
        for request in &mut self.requests {
            mend(&mut request.system);
            request.new.iter_mut().for_each(mend);
        }
        self.files.values_mut().for_each(mend);
    }
}

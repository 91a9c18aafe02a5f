//! `architect sessions`: the stored sessions.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use architect::app::{World, store};
use architect::journal::{JournalError, Past, SessionId, Store};
use architect::machine::State;
use architect::model::Item;
use architect::view::clean;
use serde_json::{Value, json};

use crate::cli::args::{SessionsArgs, SessionsCommand};
use crate::cli::error::Failure;
use crate::cli::{output, settings};

/// Sessions that are listed when nobody says how many.
const USUAL: usize = 50;

pub(crate) fn run(args: &SessionsArgs, world: &World) -> Result<u8, Failure> {
    let store = store(&settings::of_sets(&args.set, world)?, world)?;
    match &args.command {
        None => list(&store, USUAL, args.json)?,
        Some(SessionsCommand::List { limit }) => list(&store, *limit, args.json)?,
        Some(SessionsCommand::Show { session }) => show(&store, session, args.json)?,
        Some(SessionsCommand::Export { session }) => export(&store, session)?,
        Some(SessionsCommand::Import { file }) => import(&store, file, args.json)?,
        Some(SessionsCommand::Rm { session }) => {
            let session = store.resolve(session)?;
            store.remove(session)?;
            tell(
                args.json,
                &json!({ "removed": [session.to_string()] }),
                &format!("session {session} removed"),
            )?;
        }
    }
    Ok(0)
}

fn tell(as_json: bool, json: &Value, text: &str) -> Result<(), Failure> {
    if as_json { output::print(&json.to_string()) } else { output::print(text) }
}

fn list(store: &Store, limit: usize, as_json: bool) -> Result<(), Failure> {
    let sessions = store.list()?;
    let mut rows = Vec::new();
    for listed in sessions.iter().rev().take(limit) {
        match store.replay(listed.session, |_, _, _| {}) {
            Ok((past, _)) => rows.push(Row::of(store, listed.session, &past)),
            // One that is removed meanwhile, or damaged, hides no other.
            Err(error) => log::warn!("{}: {error}", listed.session),
        }
    }
    if as_json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        return output::print(&json!(rows).to_string());
    }
    if rows.is_empty() {
        output::complain("There are no sessions.");
        return Ok(());
    }
    let mut text =
        format!("{:<36}  {:<15} {:>5}  {:<24} task\n", "session", "state", "steps", "model");
    for row in &rows {
        let model = clean::headline(&row.model, 24);
        let task = clean::headline(&row.task, 60);
        text.push_str(&format!(
            "{:<36}  {:<15} {:>5}  {model:<24} {task}\n",
            row.session, row.state, row.steps
        ));
    }
    output::print(&text)
}

/// What is told of a session in a list.
struct Row {
    session: SessionId,
    state: &'static str,
    steps: u32,
    model: String,
    agent: String,
    workspace: String,
    task: String,
    cost: f64,
    parent: Option<String>,
}

impl Row {
    fn of(store: &Store, session: SessionId, past: &Past) -> Self {
        let run = past.fold.state.run();
        let state = match &past.fold.state {
            State::Done(done) => done.outcome.reason.name(),
            _ if store.is_running(session).unwrap_or(false) => "running",
            _ => "interrupted",
        };
        Self {
            session,
            state,
            steps: run.steps,
            model: past.setting.model.to_string(),
            agent: past.setting.agent.to_string(),
            workspace: past.setting.workspace.root.display().to_string(),
            task: match &past.header.task {
                Item::User(message) => message.text.to_string(),
                Item::Assistant(_) | Item::Exchange(_) => String::new(),
            },
            cost: run.spent.cost.dollars(),
            parent: past
                .header
                .lineage
                .map(|lineage| format!("{}@{}", lineage.session, lineage.seq)),
        }
    }

    fn json(&self) -> Value {
        json!({
            "session_id": self.session.to_string(),
            "state": self.state,
            "steps": self.steps,
            "model": self.model,
            "agent": self.agent,
            "workspace": self.workspace,
            "task": self.task,
            "cost": self.cost,
            "parent": self.parent,
        })
    }
}

fn show(store: &Store, name: &str, as_json: bool) -> Result<(), Failure> {
    let session = store.resolve(name)?;
    let (past, _) = store.replay(session, |_, _, _| {})?;
    let row = Row::of(store, session, &past);
    let items: Vec<&Item> =
        past.fold.conversation.entries().iter().map(|entry| &entry.item).collect();
    if as_json {
        let mut json = row.json();
        json["messages"] = serde_json::to_value(&items).unwrap_or_default();
        return output::print(&json.to_string());
    }
    let mut text = format!(
        "session    {}\nstate      {}\nmodel      {}\nagent      {}\nworkspace  {}\nsteps      {}\n",
        row.session, row.state, row.model, row.agent, row.workspace, row.steps
    );
    for item in items {
        match item {
            Item::User(message) => {
                text.push_str(&format!("\n── user\n{}\n", clean::block(&message.text)));
            }
            Item::Assistant(reply) => {
                text.push_str(&format!("\n── model\n{}\n", clean::block(&reply.text())));
            }
            Item::Exchange(exchange) => {
                text.push_str(&format!("\n── model\n{}\n", clean::block(&exchange.reply().text())));
                for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                    let arguments = clean::headline(call.arguments.text(), 200);
                    text.push_str(&format!(
                        "\n── {} {arguments}\n{}\n",
                        call.name,
                        clean::block(&result.text)
                    ));
                }
            }
        }
    }
    output::print(&text)
}

fn export(store: &Store, name: &str) -> Result<(), Failure> {
    let session = store.resolve(name)?;
    match store.export(session, &mut io::stdout().lock()) {
        Ok(_) => Ok(()),
        Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::from_stdout(&source))
        }
        Err(error) => Err(error.into()),
    }
}

fn import(store: &Store, file: &Path, as_json: bool) -> Result<(), Failure> {
    let imported = store.import(file, SystemTime::now())?;
    let session = imported.session.to_string();
    let torn = if imported.torn { "; its end was torn and left out" } else { "" };
    let text = format!("session {session}: {} records{torn}", imported.records);
    tell(
        as_json,
        &json!({ "session_id": session, "records": imported.records, "torn": imported.torn }),
        &text,
    )
}

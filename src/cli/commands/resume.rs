//! `architect resume` and `architect fork`: continue a stored session, or a copy of it.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use architect::app::{self, ProcessEnv, RecordedWorkspace, RunRequest, RunSetup, SessionTarget};
use architect::config::Config;
use architect::journal::{
    DamagePolicy, ForkOptions, OpenedSession, ReplacementResult, SessionHistory, SessionId,
    WorkspaceIdentity,
};
use architect::types::ToolStatus;
use architect::view::{CostSource, sanitize};
use architect::workflow::batch::coordination::Charge;
use architect::workflow::{evaluation_charge, stored_evaluations, subtract_charge};
use architect::workspace::image::ImageSource;
use architect::workspace::read_input;
use architect::workspace::worktree::{RecordedFiles, WorktreeContent, WorktreeName};
use serde_json::Value;

use crate::cli::args::{ForkArgs, ImageArgs, OutputArgs, ResumeArgs, SettingsArgs};
use crate::cli::config_options::{self, SavedOptions, as_sets};
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::task::{self, RunMode, TaskRun};
use crate::cli::worktree_run::{self, WorktreeRun};
use crate::cli::{output, task_text};

/// `architect resume`: resumes a stored session.
pub(crate) fn resume(args: &ResumeArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, &world)?;
    let session = stored.find(&args.session)?;
    let saved = || Ok(stored.store.load(session)?.0.setup.options);
    let prompt = read_prompt(args.prompt.as_deref(), &args.settings, &world, saved)?;
    let images = read_images(&args.images, prompt.as_ref())?;
    let repair = if args.repair { DamagePolicy::Truncate } else { DamagePolicy::Refuse };
    stored.complete_restore(session, &world)?;
    let (settings, output) = (&args.settings, &args.output);
    let request = ResumeRequest { repair, prompt, images, worktree: None, settings };
    resume_session(&stored, session, request, output, world)
}

/// `architect fork`: continues in a copy of a session. The original does not change.
pub(crate) fn fork(args: &ForkArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, &world)?;
    let (name, after) = split_record(&args.session)?;
    let parent = stored.find(name)?;
    let after = match after {
        None => {
            stored.check_damage(parent, args.partial)?;
            let (_, end) = stored.store.load(parent)?;
            args.partial.then(|| end.position.seq.saturating_sub(1))
        }
        after => after,
    };
    let saved = || Ok(stored.store.load(parent)?.0.setup.options);
    let prompt = read_prompt(args.prompt.as_deref(), &args.settings, &world, saved)?;
    let images = read_images(&args.images, prompt.as_ref())?;
    let mut replacement = None;
    if let Some(path) = &args.tool_result {
        let text = read_input(path)
            .map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
        replacement = Some(ReplacementResult { status: ToolStatus::Ok, text: text.into() });
    }
    stored.complete_restore(parent, &world)?;
    // The worktree is created before the copy of the conversation, so that a failure leaves no copy without its files.
    let worktree = match args.files {
        true => {
            let history = stored.store.load(parent)?.0;
            let options = (&args.settings, Some(&args.output));
            let (worktree, note) = create_worktree(options, &stored, &history, after, &world)?;
            output::print_stderr(&format!("The fork works in {note}"));
            Some(worktree)
        }
        false => None,
    };
    let workspace = worktree.as_ref().and_then(WorktreeRun::identity).transpose()?;
    let options =
        ForkOptions { replacement, workspace, ..ForkOptions::new(after, SystemTime::now()) };
    let session = stored.store.fork(parent, &options)?;
    if let (None, Some(seq), false) = (&worktree, after, args.output.quiet) {
        output::print_stderr(&format!(
            "The files are the current ones, not those at record {seq}; --files restores those, in a worktree."
        ));
    }
    if args.only {
        if let Some(worktree) = worktree {
            worktree.keep_for(session)?;
            output::print_stderr(&format!("`architect resume {session}` continues there."));
        }
        return output::print(&session.to_string());
    }
    let repair = DamagePolicy::Refuse;
    let (settings, output) = (&args.settings, &args.output);
    let request = ResumeRequest { repair, prompt, images, worktree, settings };
    resume_session(&stored, session, request, output, world)
}

/// Splits the name of a session from the number of a record.
pub(super) fn split_record(name: &str) -> Result<(&str, Option<u64>), CliError> {
    let Some((name, seq)) = name.split_once('@') else { return Ok((name, None)) };
    let seq = seq.parse().map_err(|_| {
        CliError::usage(format!("invalid record number '{seq}'"))
            .hint("`architect sessions export ID` shows the records with their `seq`")
    })?;
    Ok((name, Some(seq)))
}

/// Returns the configuration of a session for the original workspace, if its workspace is an isolated worktree.
pub(super) fn load_origin_config(
    (settings, output): (&SettingsArgs, Option<&OutputArgs>),
    stored: &SessionLookup,
    history: &SessionHistory,
    world: &ProcessEnv,
) -> Result<Config, CliError> {
    let mut options = saved_options(stored, history, settings.layers.workspace.as_deref())?;
    if let Some(origin) = &history.setup.workspace.origin {
        options.sets.push(format!("workspace.root={}", origin.display()));
    }
    config_options::load_config(settings, output, world, Some(&options)).map(|(config, _)| config)
}

/// Creates a worktree with the files of a session just after a record. Also returns its description, with the paths
/// that differ from that state.
pub(super) fn create_worktree(
    (settings, output): (&SettingsArgs, Option<&OutputArgs>),
    stored: &SessionLookup,
    history: &SessionHistory,
    after: Option<u64>,
    world: &ProcessEnv,
) -> Result<(WorktreeRun, String), CliError> {
    let WorkspaceIdentity { root, head, .. } = &history.setup.workspace;
    let mut config = load_origin_config((settings, output), stored, history, world)?;
    let files = RecordedWorkspace::load(&stored.store, history, after, &config)?;
    let content = WorktreeContent::Recorded(RecordedFiles {
        workspace: root,
        commit: head.as_ref().and_then(|head| head.commit.as_deref()),
        writer: &files,
    });
    worktree_run::sweep(world);
    let name = WorktreeName::Generated("fork");
    let worktree = WorktreeRun::create(&mut config, world, name, content)?;
    let folder = sanitize::path(&config.workspace);
    let left_out = files.left_out();
    let mut note = format!("the worktree {}: {folder}.", worktree.name());
    if !left_out.is_empty() {
        note.push_str(" These were not restored:");
    }
    for (path, reason) in left_out.iter().take(MAX_LISTED) {
        note.push_str(&format!("\n  {}: {reason}", sanitize::path(path)));
    }
    if left_out.len() > MAX_LISTED {
        note.push_str(&format!("\n  … and {} more", left_out.len() - MAX_LISTED));
    }
    Ok((worktree, note))
}

/// The maximum number of listed paths.
const MAX_LISTED: usize = 20;

/// Returns the next task, if there is one. Waits for standard input no longer than the time limit of these settings and
/// of the session's stored options, which are read only for that.
pub(super) fn read_prompt(
    prompt: Option<&str>,
    settings: &SettingsArgs,
    world: &ProcessEnv,
    options: impl FnOnce() -> Result<Value, CliError>,
) -> Result<Option<String>, CliError> {
    let timeout = match prompt {
        Some("-") => {
            let saved = SavedOptions::from_json(&options()?);
            let given = as_sets(&settings.keys.overrides);
            let config = config_options::load_changed(&settings.layers, &saved, &given, world)?;
            config.settings.limits.timeout
        }
        _ => None,
    };
    prompt.map(|text| task_text::read_task(Some(text), false, timeout)).transpose()
}

/// Returns the images of the next task.
fn read_images(args: &ImageArgs, prompt: Option<&String>) -> Result<Vec<ImageSource>, CliError> {
    if prompt.is_none() && !args.files.is_empty() {
        return Err(CliError::usage("--image needs a next task that it belongs to")
            .hint("write the task behind the session"));
    }
    task_text::read_images(args)
}

/// Options for resuming a session.
pub(super) struct ResumeRequest<'a> {
    pub(super) repair: DamagePolicy,
    pub(super) prompt: Option<String>,
    pub(super) images: Vec<ImageSource>,
    /// The worktree that was created for the session.
    pub(super) worktree: Option<WorktreeRun>,
    pub(super) settings: &'a SettingsArgs,
}

/// A stored session that is ready to run.
pub(super) struct PreparedResume {
    pub(super) request: RunRequest,
    pub(super) setup: RunSetup,
    /// Dropped after the setup, whose commands work in the worktree.
    pub(super) worktree: Option<WorktreeRun>,
    /// The evaluations of the session's earlier answers.
    evaluations: Vec<SessionHistory>,
    notes: Vec<String>,
}

/// Resumes a session with its stored options and the given ones.
fn resume_session(
    stored: &SessionLookup,
    session: SessionId,
    request: ResumeRequest<'_>,
    output: &OutputArgs,
    world: ProcessEnv,
) -> Result<u8, CliError> {
    let PreparedResume { worktree, setup, request, evaluations, notes } =
        prepare_resume(stored, session, request, Some(output), world)?;
    if !output.quiet {
        notes.iter().for_each(|note| output::print_stderr(note));
    }
    let task = TaskRun { request, mode: RunMode::Direct, evaluations: &evaluations };
    task::run(&setup, task, output, worktree.as_ref())
}

/// Opens a session, and prepares its run with the stored options and the given ones. Without `output`, the result is
/// not printed.
pub(super) fn prepare_resume(
    stored: &SessionLookup,
    session: SessionId,
    mut request: ResumeRequest<'_>,
    output: Option<&OutputArgs>,
    world: ProcessEnv,
) -> Result<PreparedResume, CliError> {
    let mut opened = stored.store.reopen(session, request.repair)?;
    if let Some(torn) = &opened.saved_tail {
        log::warn!("the end of the journal was torn; it is saved as {}", torn.display());
    }
    let mut stored_options =
        saved_options(stored, &opened.history, request.settings.layers.workspace.as_deref())?;
    // The worktree is opened before the sweep, which removes unused worktrees as abandoned.
    let mut worktree = request.worktree.take();
    let root = &opened.history.setup.workspace.root;
    let own_root = worktree.is_none() && request.settings.layers.workspace.is_none();
    if own_root && !opened.history.is_imported_setup() {
        worktree = WorktreeRun::reopen(session, root, &world)?;
    }
    worktree_run::sweep(&world);
    // The settings are those of the original workspace.
    if let Some(origin) = worktree.as_ref().and_then(WorktreeRun::origin) {
        stored_options.sets.push(format!("workspace.root={}", origin.display()));
    }
    let (mut config, saved) =
        config_options::load_config(request.settings, output, &world, Some(&stored_options))?;
    let evaluations = stored_evaluations(&stored.store, session)?;
    let charge = evaluation_charge(&evaluations);
    let note = restart_limits(&mut opened, &config, &request, charge);
    // Evaluations are separate runs, and count towards the limits of the session.
    subtract_charge(&mut config.settings.limits, charge);
    app::subtract_time_used(&mut config.settings.limits, &opened);
    if let Some(worktree) = &mut worktree {
        worktree.use_for(Some(session))?;
        worktree.enter(&mut config);
    }
    let mut setup = saved.new_setup(config, world)?;
    setup.origin = worktree.as_ref().and_then(WorktreeRun::origin).map(Path::to_owned);
    if let Some(schema) = opened.history.setup.schema.as_deref() {
        setup = setup.with_schema(schema.clone())?;
    }
    let notes = stored.other_folder_note(&opened.history).into_iter().chain(note).collect();
    let request = RunRequest {
        task: request.prompt.map(Arc::from),
        images: request.images,
        target: SessionTarget::Stored(stored.store.clone(), Box::new(opened)),
        options: saved.to_json(),
        source: CostSource::Agent,
        exit_on_partial: output.and_then(|output| output.exit_code_on_partial),
    };
    Ok(PreparedResume { request, setup, worktree, evaluations, notes })
}

/// Resets the limits of steps and time, for a session that has ended or gets another message. Returns a note about the
/// limits of money and tokens, which count the whole session.
fn restart_limits(
    opened: &mut OpenedSession,
    config: &Config,
    request: &ResumeRequest<'_>,
    evaluations: Charge,
) -> Option<String> {
    if !app::restart_limits(opened, request.prompt.is_some()) {
        return None;
    }
    let run = opened.history.machine.state.run();
    let limits = &config.settings.limits;
    let cost = limits.budget_usd.map(|most| {
        let spent = run.used.cost + evaluations.money;
        format!("{spent} of {most} is spent (--budget USD sets another total)")
    });
    let tokens = limits.max_tokens.map(|most| {
        let used = (run.used.tokens + evaluations.tokens).0;
        format!("{used} of {} tokens are used (--max-tokens N sets another total)", most.0)
    });
    let note = cost.into_iter().chain(tokens).reduce(|cost, tokens| format!("{cost}; {tokens}"))?;
    Some(format!("The limits of steps and time start again; money and tokens count on: {note}."))
}

/// Returns the stored options of a session. The options of an imported session are ignored, because they could run a
/// command or send the user's key elsewhere. Of a session in a folder that commands could write, only the model and the
/// options that tighten are kept.
pub(super) fn saved_options(
    stored: &SessionLookup,
    past: &SessionHistory,
    workspace: Option<&Path>,
) -> Result<SavedOptions, CliError> {
    let mut stored_options = SavedOptions::from_json(&past.setup.options);
    if past.is_imported_setup() {
        let names = stored_options.names();
        if names.is_empty() {
            log::warn!("this session was imported: it is resumed in this folder");
        } else {
            let names = sanitize::headline(&names.join(", "), 400);
            log::warn!(
                "this session was imported: it is resumed in this folder, without its stored options ({names}); give the \
                 ones that you want again (`--workspace DIR`, `--set KEY=VALUE`), and they are stored"
            );
        }
        return Ok(SavedOptions::default());
    }
    if stored.check_workspace(past, workspace)? {
        stored_options = stored_options.of_exposed_session();
    }
    // The session works in its own workspace, whatever the current folder is.
    let root = &past.setup.workspace.root;
    stored_options.sets.push(format!("workspace.root={}", root.display()));
    Ok(stored_options)
}

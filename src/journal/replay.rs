//! Offline replay of a journal through the machine.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::error::{JournalError, ReadOnlyReason, RecordDamage, Result};
use super::header::{EndedRecord, ResumedRecord, SessionHeader, SessionSetup, WallTime};
use super::implied_reads;
use super::journal_reader::{JournalPosition, JournalReader, RecordsAfterDamage};
use super::record_line::{ReadRecord, StoredContent, StoredFingerprint, StoredRecord};
use super::session_id::SessionId;
use super::steering_queue::MessageId;
use crate::machine::{
    Authorization, CallIntent, CostBreakdown, Event, FileDigests, Fingerprint, Machine,
    MachineOutput, ModelUsage, PricedUsage, Resumption, RunStatus, State, StateKind, StopReason,
    abandon,
};
use crate::types::{
    CallId, CheckpointKind, CheckpointOutcome, CheckpointRecord, EffectId, FaultKind, FilePath,
    RunTime, Sha256Digest, TimeSpan, Tokens,
};

/// The state of a session, and the data that a resume needs from its records.
#[derive(Clone, Debug)]
pub struct SessionHistory {
    /// The header.
    pub header: SessionHeader,
    /// The current setup.
    pub setup: SessionSetup,
    /// The machine after the newest event.
    pub machine: Machine,
    /// The output of the newest event.
    pub output: MachineOutput,
    /// The time of the newest record.
    pub at: RunTime,
    /// The wall-clock time at session time zero, as of the newest process.
    pub epoch: WallTime,
    /// The usage so far.
    pub costs: CostBreakdown,
    /// The usage by model, in the order of the models' first calls.
    pub models: Vec<ModelUsage>,
    /// The number of completed model calls: answered, failed or given up, including those of sub-agents. A call that a
    /// crash or an interrupt cut off is not counted; the session makes it again.
    pub finished_calls: u32,
    /// The end of the newest run; `None` if it has not ended, or if the session was resumed since.
    pub ended: Option<EndedRecord>,
    /// The recorded states of the workspace, oldest first.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// Whether the user has restored an earlier state of the files since the newest event.
    pub(super) is_restored: bool,
    /// The records with results of calls that may have changed the workspace.
    pub change_records: Vec<u64>,
    /// The parameters of the resume, if the newest record is one.
    pub(super) resumption: Option<Resumption>,
    /// The record with the current setup.
    setup_record: u64,
    /// The messages from other processes that records contain.
    pub(super) delivered_messages: BTreeSet<MessageId>,
    /// The authorized intents of the running calls.
    pub(super) intents: HashMap<CallId, CallIntent>,
    /// The running calls that change nothing.
    pub(super) reading: HashSet<CallId>,
    /// The reported usage of the sub-agents of the newest reply's calls.
    pub(super) subagent_usage: HashMap<CallId, PricedUsage>,
    /// The background commands that calls have started since the session was resumed, except those that are known to
    /// have ended.
    pub(super) background_commands: Vec<(CallId, Arc<str>)>,
    /// The worktrees of sub-agents whose calls are over.
    pub(super) finished_worktrees: Vec<Arc<str>>,
    /// The files that calls replaced since the session was resumed, with their digests.
    pub(super) replaced_files: BTreeMap<FilePath, Option<Arc<str>>>,
    /// All authorized changes of files.
    pub edits: Vec<AuthorizedEdit>,
    /// The sequence number of the newest record.
    pub last_seq: u64,
}

/// An authorized change of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedEdit {
    /// The call.
    pub call: CallId,
    /// The files, with their digests before and after it.
    pub files: Arc<[FileDigests]>,
    /// The record of the authorization.
    pub authorized: u64,
    /// The record of the result, and whether the change was made. `None` if the call was interrupted and the files did
    /// not show at the resume that the change was made.
    pub completed: Option<(u64, bool)>,
}

/// A recorded state of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// The record.
    pub seq: u64,
    /// Its content.
    pub record: CheckpointRecord,
}

impl StoredCheckpoint {
    /// Returns whether the state could not be recorded.
    pub fn is_failed(&self) -> bool {
        matches!(self.record.outcome, CheckpointOutcome::Failed(_))
    }
}

/// The result of replaying a record.
#[derive(Debug)]
pub struct ReplayedRecord {
    /// The fingerprint before the record.
    pub fingerprint: Fingerprint,
    /// Whether the machine accepted it. Its output is then in [`SessionHistory::output`].
    pub is_advanced: bool,
    /// The difference between the replay and the stored records, if it begins here.
    pub divergence: Option<Divergence>,
    /// The SHA-256 of the journal up to the record, if hashes are requested.
    pub hash: Option<Sha256Digest>,
    /// Whether the record contains a wrong hash of the records before it, if hashes are requested.
    pub has_wrong_hash: bool,
}

/// A record that was written in another state than the replay's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The record.
    pub seq: u64,
    /// Its content.
    pub record: String,
    /// The stored fingerprint.
    pub stored: StoredFingerprint,
    /// The computed fingerprint.
    pub replayed: Fingerprint,
    /// The earlier record whose outcome differs.
    pub previous: u64,
}

/// The end of a journal's valid prefix, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    /// The end of the valid prefix.
    pub position: JournalPosition,
    /// The data after it.
    pub kind: JournalEndKind,
    /// The SHA-256 of the valid prefix, if hashes are requested.
    pub hash: Option<Sha256Digest>,
}

/// The data after the valid prefix of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEndKind {
    /// No data: the whole journal is valid.
    Whole,
    /// The result of a crash: an incomplete record, and after it no intact record that was written after a sync.
    Torn(RecordDamage),
    /// Data that makes the session read-only.
    ReadOnly(ReadOnlyReason),
}

impl JournalPosition {
    fn damaged(self, damage: RecordDamage, intact_after: u64) -> ReadOnlyReason {
        ReadOnlyReason::Damaged { seq: self.seq, offset: self.offset, damage, intact_after }
    }
}

impl JournalEnd {
    /// Returns the reason why records after the valid prefix are missing; `None` if no records are known to be missing.
    /// An incomplete line at the end is the result of a crash, or belongs to a journal that is being written.
    pub fn damage(&self) -> Option<ReadOnlyReason> {
        match &self.kind {
            JournalEndKind::Whole
            | JournalEndKind::Torn(RecordDamage::Unterminated)
            | JournalEndKind::ReadOnly(ReadOnlyReason::NewerFormat { .. }) => None,
            JournalEndKind::Torn(damage) => Some(self.position.damaged(damage.clone(), 0)),
            JournalEndKind::ReadOnly(reason) => Some(reason.clone()),
        }
    }
}

impl SessionHistory {
    /// Starts with the header of a session.
    pub fn start(header: SessionHeader) -> Self {
        let (machine, output) = header.start_machine();
        Self {
            setup: header.setup.clone(),
            epoch: header.created,
            header,
            machine,
            output,
            at: RunTime::START,
            costs: CostBreakdown::default(),
            models: Vec::new(),
            finished_calls: 0,
            ended: None,
            checkpoints: Vec::new(),
            is_restored: false,
            change_records: Vec::new(),
            resumption: None,
            setup_record: 0,
            delivered_messages: BTreeSet::new(),
            intents: HashMap::new(),
            reading: HashSet::new(),
            subagent_usage: HashMap::new(),
            background_commands: Vec::new(),
            finished_worktrees: Vec::new(),
            replaced_files: BTreeMap::new(),
            edits: Vec::new(),
            last_seq: 0,
        }
    }

    /// Adds the next record.
    pub fn apply(mut self, stored: &StoredRecord) -> (Self, ReplayedRecord) {
        let fingerprint = Fingerprint::of(&self.machine, &self.output.effects);
        let difference = self.find_divergence(stored, fingerprint);
        let before = (fingerprint.state, self.machine.state.run().used);
        let running_call = pending_model_call(&self.machine.state);
        (self.at, self.last_seq) = (self.at.max(stored.at), stored.seq);
        self.delivered_messages.extend(&stored.message_ids);
        let is_advanced = match &stored.content {
            StoredContent::Event(event) => {
                (self.ended, self.resumption, self.is_restored) = (None, None, false);
                self.remember_event(stored.seq, event);
                let is_charged = matches!(event, Event::UsageReported { .. })
                    && self.machine.state.awaits(event);
                let completed = implied_reads::complete_event(event.clone(), &self.machine.state);
                let state = self.machine.state.clone();
                let received = stored.timing.map_or(Tokens::ZERO, |timing| timing.received);
                let machine = self.machine.with_received(received);
                (self.machine, self.output) = machine.handle(stored.at, completed);
                self.add_model_usage(&state, Some(event));
                self.costs.add(before, Some(event), self.machine.state.run());
                let is_over = running_call.is_some()
                    && pending_model_call(&self.machine.state) != running_call
                    && !ends_run(event)
                    && !is_unpaid(event);
                self.finished_calls += u32::from(is_charged || is_over);
                true
            }
            StoredContent::Resumed(resumed) => {
                let ResumedRecord { setup, resumption } = ResumedRecord::clone(resumed);
                (self.ended, self.resumption) = (None, Some(resumption.clone()));
                if let Some(mut setup) = setup {
                    if self.header.ancestry.is_some_and(|ancestry| ancestry.moves(stored.seq)) {
                        setup.workspace = self.header.setup.workspace.clone();
                    }
                    (self.setup, self.setup_record) = (setup, stored.seq);
                }
                self.epoch = stored.ts.map_or(self.epoch, |now| now.minus(stored.at));
                self.remember_recovered(stored.seq, &resumption);
                let state = self.machine.state.clone();
                (self.machine, self.output) = self.machine.resume(stored.at, resumption);
                self.add_model_usage(&state, None);
                self.costs.add(before, None, self.machine.state.run());
                true
            }
            StoredContent::Ended(ended) => {
                self.ended = Some(ended.clone());
                false
            }
            StoredContent::Checkpoint(record) => {
                let record = CheckpointRecord::clone(record);
                self.is_restored |= record.kind == CheckpointKind::Restored;
                self.checkpoints.push(StoredCheckpoint { seq: stored.seq, record });
                false
            }
            StoredContent::Header(_) | StoredContent::Partial(_) | StoredContent::Other => false,
        };
        let (hash, has_wrong_hash) = (None, false);
        let divergence = difference;
        (self, ReplayedRecord { fingerprint, is_advanced, divergence, hash, has_wrong_hash })
    }

    fn add_model_usage(&mut self, before: &State, event: Option<&Event>) {
        let change = (before, event, &self.machine.state);
        ModelUsage::add_between(&mut self.models, &self.setup.model, change);
    }

    /// Returns the reason why the run has ended; `None` if it has not ended.
    pub fn stop_reason(&self) -> Option<StopReason> {
        let outcome = self.machine.state.outcome()?;
        // The evaluation of an answer decides after the machine.
        let recorded = self.ended.as_ref().and_then(|ended| StopReason::from_name(&ended.reason));
        Some(recorded.filter(|it| it.name() != outcome.reason.name()).unwrap_or(outcome.reason))
    }

    /// Returns whether the setup comes from an import and the session was not resumed here since. Its options, folder
    /// and system prompt are then not the user's.
    pub fn is_imported_setup(&self) -> bool {
        self.header.is_imported(self.setup_record)
    }

    /// Returns whether the session is a fork that begins in its own workspace, and was not resumed there yet.
    pub(super) fn is_moved(&self) -> bool {
        self.header.ancestry.is_some_and(|ancestry| ancestry.moves(self.setup_record))
    }

    /// Returns whether the task is done for the current agent and model.
    pub(super) fn is_finished_for(&self, setup: &SessionSetup) -> bool {
        let State::Done(done) = &self.machine.state else { return false };
        let is_same = self.setup.agent == setup.agent && self.setup.model == setup.model;
        is_same && done.outcome.reason.status() == RunStatus::Success
    }

    /// Returns whether a session that a running call has dispatched must not be resumed by this session: it belongs to
    /// the original of a fork, or comes from an import.
    pub(super) fn is_foreign(&self, session: &str, delegated: &[Self]) -> bool {
        let is_other = |child: &Self| {
            let dispatcher = child.header.dispatched_by.as_ref().map(|parent| parent.session);
            child.header.session.to_string() == session && dispatcher != Some(self.header.session)
        };
        self.header.imported_up_to.is_some() || delegated.iter().any(is_other)
    }

    /// Returns the usage, including that of a call whose reply is lost because its process has ended.
    pub(crate) fn costs_with_lost_call(&self) -> CostBreakdown {
        let (state, mut costs) = (&self.machine.state, self.costs);
        costs.add((state.kind(), state.run().used), None, abandon(state.clone()).run());
        costs
    }

    /// Returns the sessions that running calls have dispatched.
    pub(super) fn delegated_sessions(&self) -> Vec<SessionId> {
        let sessions = self.intents.values().filter_map(|intent| match intent {
            CallIntent::Delegated { session, .. } => session.as_deref()?.parse().ok(),
            _ => None,
        });
        sessions.collect()
    }

    /// Compares the stored fingerprint with the computed one, if both have the same version.
    fn find_divergence(&self, stored: &StoredRecord, found: Fingerprint) -> Option<Divergence> {
        let mark = stored.fingerprint.as_ref()?;
        if self.header.fingerprint_version != Fingerprint::VERSION || mark.matches(found) {
            return None;
        }
        Some(Divergence {
            seq: stored.seq,
            record: stored.content.name(),
            stored: mark.clone(),
            replayed: found,
            previous: stored.seq.saturating_sub(1),
        })
    }

    /// Stores the data that a resume needs from an event.
    fn remember_event(&mut self, seq: u64, event: &Event) {
        match event {
            Event::Authorized {
                id,
                authorization: authorization @ Authorization::Approved { intent, .. },
            } => {
                if let Some(call) = self.machine.state.call_of(*id) {
                    if let CallIntent::Edit { files } = intent {
                        self.edits.push(AuthorizedEdit {
                            call: call.call.id.clone(),
                            files: Arc::clone(files),
                            authorized: seq,
                            completed: None,
                        });
                    }
                    if let CallIntent::Background { command, .. } = intent {
                        let started = (call.call.id.clone(), Arc::clone(command));
                        self.background_commands.push(started);
                    }
                    self.intents.insert(call.call.id.clone(), intent.clone());
                    if authorization.is_read_only() {
                        self.reading.insert(call.call.id.clone());
                    }
                }
            }
            Event::ToolCompleted { id, result } => {
                let Some(call) = self.machine.state.call_of(*id) else { return };
                if let Some(intent) = self.intents.remove(&call.call.id) {
                    self.finished_worktrees.extend(intent.worktree().cloned());
                    complete_edit(&mut self.edits, &call.call.id, (seq, result.is_ok()));
                    let is_reading = self.reading.remove(&call.call.id);
                    if !is_reading && intent.may_change(&call.access) {
                        self.change_records.push(seq);
                    }
                    if result.is_ok() {
                        self.remember_files(&intent);
                    }
                }
            }
            Event::UsageReported { id, usage, cost } => {
                let Some(call) = self.machine.state.call_of(*id) else { return };
                let reported = self.subagent_usage.entry(call.call.id.clone()).or_default();
                *reported = *reported + PricedUsage { usage: *usage, cost: *cost };
            }
            Event::CommandEnded { id } => {
                let commands = &self.machine.state.run().commands;
                if let Some(ended) = commands.iter().find(|command| command.id == *id) {
                    self.background_commands.retain(|(call, _)| *call != ended.call);
                }
            }
            Event::Replied { .. } => {
                self.subagent_usage.clear();
                let ended = self.intents.drain();
                // The worktrees of interrupted calls.
                let worktrees = ended.filter_map(|(_, intent)| intent.worktree().cloned());
                self.finished_worktrees.extend(worktrees);
                self.reading.clear();
            }
            _ => {}
        }
    }

    /// Handles a resume. From now on, only later changes are tracked, because the model knows of earlier ones.
    fn remember_recovered(&mut self, seq: u64, resumption: &Resumption) {
        self.replaced_files.clear();
        self.background_commands.clear();
        if !resumption.recovered.is_empty() {
            self.change_records.push(seq);
        }
        let mut intents = std::mem::take(&mut self.intents);
        for found in resumption.recovered.iter().filter(|found| found.result.is_ok()) {
            complete_edit(&mut self.edits, &found.call, (seq, true));
            if let Some(intent) = intents.get(&found.call) {
                self.remember_files(intent);
            }
        }
        // Calls in worktrees without a result continue.
        let is_open = |call: &CallId| resumption.recovered.iter().all(|found| found.call != *call);
        intents.retain(|call, intent| intent.worktree().is_some() && is_open(call));
        self.intents = intents;
    }

    fn remember_files(&mut self, intent: &CallIntent) {
        if let CallIntent::Edit { files } = intent {
            for image in files.iter() {
                self.replaced_files.insert(image.path.clone(), image.after.clone());
            }
        }
    }
}

/// Adds the end of a call to its edit, if the call is an edit.
fn complete_edit(edits: &mut [AuthorizedEdit], call: &CallId, completed: (u64, bool)) {
    let is_its = |edit: &&mut AuthorizedEdit| edit.completed.is_none() && edit.call == *call;
    if let Some(edit) = edits.iter_mut().rev().find(is_its) {
        edit.completed = Some(completed);
    }
}

/// Returns the running model call.
fn pending_model_call(state: &State) -> Option<EffectId> {
    let is_calling = matches!(
        state.kind(),
        StateKind::CallingSending | StateKind::CompactingSending | StateKind::ClosingSending
    );
    state.pending_effects().first().copied().filter(|_| is_calling)
}

/// Returns whether an event ends a run in every state.
fn ends_run(event: &Event) -> bool {
    matches!(
        event,
        Event::Interrupt { .. } | Event::StoreFailed { .. } | Event::InternalError { .. }
    )
}

/// Returns whether an event is the end of a call that was not sent because a budget did not cover it.
fn is_unpaid(event: &Event) -> bool {
    matches!(event, Event::CallFailed { fault, .. } if fault.kind == FaultKind::Budget)
}

/// Replays a journal record by record, and calls `see` with each record and its result.
///
/// # Errors
///
/// Fails if the file can't be read, or has no header.
pub(super) fn replay(
    reader: &mut JournalReader,
    session: SessionId,
    see: &mut dyn FnMut(&SessionHistory, &StoredRecord, &ReplayedRecord),
) -> Result<(SessionHistory, JournalEnd)> {
    let read_only = |reason| JournalError::ReadOnly { session, reason };
    let headless = |damage| JournalPosition::default().damaged(damage, 0);
    let mut history = match reader.read()? {
        ReadRecord::Record(stored) => match stored.content {
            StoredContent::Header(header) => SessionHistory::start(*header),
            _ => return Err(read_only(headless(RecordDamage::MisplacedHeader))),
        },
        ReadRecord::End => return Err(read_only(headless(RecordDamage::Unterminated))),
        ReadRecord::Damage(damage) => return Err(read_only(headless(damage))),
        ReadRecord::Unknown(reason) => {
            return Err(read_only(ReadOnlyReason::UnknownRecord { seq: 0, reason }));
        }
    };
    let is_newer = history.header.format > super::JOURNAL_FORMAT;
    let mut is_synced = false;
    let kind = loop {
        match reader.read()? {
            ReadRecord::Record(stored) => {
                is_synced |= stored.sync_time > TimeSpan::ZERO;
                let (next, replayed) = history.apply(&stored);
                let (hash, has_wrong_hash) = (reader.hash(), reader.has_wrong_hash());
                see(&next, &stored, &ReplayedRecord { hash, has_wrong_hash, ..replayed });
                history = next;
            }
            ReadRecord::End => break JournalEndKind::Whole,
            ReadRecord::Unknown(reason) => {
                let seq = reader.position().seq;
                break JournalEndKind::ReadOnly(ReadOnlyReason::UnknownRecord { seq, reason });
            }
            ReadRecord::Damage(damage) => break JournalEndKind::Torn(damage),
        }
    };
    let (position, hash) = (reader.position(), reader.hash());
    let is_hole = reader.has_zeros();
    let kind = match kind {
        JournalEndKind::Whole | JournalEndKind::Torn(RecordDamage::Unterminated) if is_newer => {
            JournalEndKind::ReadOnly(ReadOnlyReason::NewerFormat { format: history.header.format })
        }
        JournalEndKind::Torn(damage) => match reader.scan_after_damage()? {
            RecordsAfterDamage { count: 0, .. } => JournalEndKind::Torn(damage),
            // A power cut may preserve some records since the newest sync, but not others before them.
            RecordsAfterDamage { is_synced: false, .. } if is_synced && is_hole => {
                JournalEndKind::Torn(damage)
            }
            RecordsAfterDamage { count: behind, .. } => {
                JournalEndKind::ReadOnly(position.damaged(damage, behind))
            }
        },
        other => other,
    };
    Ok((history, JournalEnd { position, kind, hash }))
}

impl StoredContent {
    /// Returns the name of a record's content.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Header(_) => "header",
            Self::Event(event) => event.kind().as_str(),
            Self::Partial(_) => "partial",
            Self::Resumed(_) => "resumed",
            Self::Checkpoint(_) => "checkpoint",
            Self::Ended(_) => "ended",
            Self::Other => "other",
        };
        name.to_lowercase()
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, record: what, stored, replayed: found, previous: after } = self;
        write!(f, "record {after} leads to another state in the replay: record {seq} ({what}) ")?;
        let (was, is) = (&stored.state, found.state.as_str());
        if was == is {
            write!(f, "was written in state {was}, but with other usage or effects")
        } else {
            write!(f, "was written in state {was}, and is replayed in {is}")
        }
    }
}

//! Folding a journal again, through the same machine that wrote it, offline.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use super::error::{JournalError, ReadOnly};
use super::header::{Ended, Header, Resumed, Setting, Wall};
use super::id::SessionId;
use super::line::{Content, Stored, StoredMark};
use super::mail::MailId;
use super::reader::{Behind, Damage, Found, Position, Reader};
use crate::machine::{
    Bill, Event, EventKind, Fold, Image, Intent, Mark, Outcomes, Resumption, Slot, State,
    StateKind, Status, Verdict,
};
use crate::model::{CallId, EffectId, Span, Time};

/// Where a session stands, and what a resume needs to know of how it came there.
#[derive(Clone, Debug)]
pub struct Past {
    /// What the session was begun with.
    pub header: Header,
    /// What it works with by now.
    pub setting: Setting,
    /// Where it stands.
    pub fold: Fold,
    /// What follows from the newest event.
    pub outcomes: Outcomes,
    /// The time of the newest record.
    pub at: Time,
    /// The time of day when the time of the session was zero, as far as the newest process knew.
    pub dawn: Wall,
    /// What it has used so far.
    pub bill: Bill,
    /// Model calls that are over: answered, failed or given up, those of sub-agents included. A call that a crash or an
    /// interrupt cut off is not among them; the session makes it again.
    pub calls_over: u32,
    /// How the newest run ended; none when it did not, or when the session went on after it.
    pub ended: Option<Ended>,
    /// What the newest record says, when the session has just gone on.
    pub(super) resumption: Option<Resumption>,
    /// The record that says what the session works with by now.
    set_by: u64,
    /// Messages from other processes that records contain.
    pub(super) arrived: BTreeSet<MailId>,
    /// What the calls that run were cleared for.
    intents: HashMap<CallId, Intent>,
    /// The files that calls have replaced since the session went on, as they left them.
    written: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// The changes of files that calls were ever cleared for.
    edits: Vec<Image>,
}

/// What became of a record.
#[derive(Debug)]
pub struct Replayed {
    /// Where the run stood when the record came.
    pub met: Mark,
    /// Whether the run went on with it; what followed is what [`Past::outcomes`] says then.
    pub went_on: bool,
    /// Where the replay left the stored path, if it did here.
    pub difference: Option<Difference>,
}

/// A record that met another state than it meets now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The record.
    pub seq: u64,
    /// What it says.
    pub what: String,
    /// Where the run stood that wrote it.
    pub stored: StoredMark,
    /// Where it stands now.
    pub found: Mark,
    /// The record whose outcome is another one.
    pub after: u64,
}

/// Where the valid prefix of a journal ends, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The valid prefix.
    pub position: Position,
    /// What comes behind it.
    pub kind: EndKind,
}

/// What comes behind the valid prefix of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// Nothing.
    Whole,
    /// What a crash leaves: half a record, and nothing intact behind it that a sync came before.
    Torn(Damage),
    /// Something because of which the session can only be read.
    ReadOnly(ReadOnly),
}

impl End {
    /// Returns why records are missing behind the valid prefix that were once there; none if none are, as far as can be
    /// told. Half a line at the end is what a crash leaves, and what a journal ends with while it is written.
    pub fn damage(&self) -> Option<ReadOnly> {
        match &self.kind {
            EndKind::Whole
            | EndKind::Torn(Damage::NoEnd)
            | EndKind::ReadOnly(ReadOnly::Newer { .. }) => None,
            EndKind::Torn(damage) => {
                let Position { seq, offset, .. } = self.position;
                Some(ReadOnly::Damaged { seq, offset, damage: damage.clone(), behind: 0 })
            }
            EndKind::ReadOnly(why) => Some(why.clone()),
        }
    }
}

impl Past {
    /// Begins with the header of a session.
    pub fn start(header: Header) -> Self {
        let (fold, outcomes) = header.start();
        Self {
            setting: header.setting.clone(),
            dawn: header.created,
            header,
            fold,
            outcomes,
            at: Time::START,
            bill: Bill::default(),
            calls_over: 0,
            ended: None,
            resumption: None,
            set_by: 0,
            arrived: BTreeSet::new(),
            intents: HashMap::new(),
            written: BTreeMap::new(),
            edits: Vec::new(),
        }
    }

    /// Takes the next record in.
    pub fn take(mut self, stored: &Stored) -> (Self, Replayed) {
        let met = Mark::of(&self.fold, &self.outcomes.effects);
        let difference = self.difference(stored, met);
        let before = (met.state, self.fold.state.run().spent);
        let under_way = call_under_way(&self.fold.state);
        self.at = self.at.max(stored.at);
        self.arrived.extend(&stored.mail);
        let went_on = match &stored.content {
            Content::Event(event) => {
                (self.ended, self.resumption) = (None, None);
                self.remember(event);
                let is_charged =
                    matches!(event, Event::Charged { .. }) && self.fold.state.awaits(event);
                (self.fold, self.outcomes) = self.fold.accept(stored.at, event.clone());
                self.bill.take(before, Some(event), self.fold.state.run().spent);
                let is_over = under_way.is_some()
                    && call_under_way(&self.fold.state) != under_way
                    && !cuts_off(event);
                self.calls_over += u32::from(is_charged || is_over);
                true
            }
            Content::Resumed(resumed) => {
                let Resumed { setting, resumption } = Resumed::clone(resumed);
                (self.ended, self.resumption) = (None, Some(resumption.clone()));
                if let Some(setting) = setting {
                    (self.setting, self.set_by) = (setting, stored.seq);
                }
                self.dawn = stored.ts.map_or(self.dawn, |now| now.before(stored.at));
                self.remember_found(&resumption);
                (self.fold, self.outcomes) = self.fold.resume(stored.at, resumption);
                self.bill.take(before, None, self.fold.state.run().spent);
                true
            }
            Content::Ended(ended) => {
                self.ended = Some(ended.clone());
                false
            }
            Content::Header(_) | Content::Partial(_) | Content::Other => false,
        };
        (self, Replayed { met, went_on, difference })
    }

    /// Returns whether somebody else has said what the session works with: it was imported, and has not gone on here yet.
    /// Its options, its folder and its system prompt are no wish of the user then.
    pub fn is_foreign(&self) -> bool {
        self.header.imported.is_some_and(|last| self.set_by <= last)
    }

    /// Returns whether the task is done, as far as this agent and this model are concerned.
    pub(super) fn is_finished_for(&self, setting: &Setting) -> bool {
        let State::Done(done) = &self.fold.state else { return false };
        let is_same = self.setting.agent == setting.agent && self.setting.model == setting.model;
        is_same && done.outcome.reason.status() == Status::Success
    }

    /// Returns the sessions that calls have sent which run.
    pub(super) fn delegated(&self) -> Vec<SessionId> {
        let sessions = self.intents.values().filter_map(|intent| match intent {
            Intent::Delegated { session } => session.as_deref()?.parse().ok(),
            Intent::Pure | Intent::Opaque | Intent::Edit { .. } => None,
        });
        sessions.collect()
    }

    /// Returns what a call that runs was cleared for.
    pub(super) fn intent(&self, call: &CallId) -> Option<&Intent> {
        self.intents.get(call)
    }

    /// Returns the files that calls have replaced since the session went on, with the digests of what they left.
    pub fn written(&self) -> &BTreeMap<Arc<str>, Option<Arc<str>>> {
        &self.written
    }

    /// Marks are compared only when their digests cover the same.
    fn difference(&self, stored: &Stored, found: Mark) -> Option<Difference> {
        let mark = stored.met.as_ref()?;
        if self.header.marks != Mark::RELEASE || mark.is(found) {
            return None;
        }
        Some(Difference {
            seq: stored.seq,
            what: stored.content.name().to_owned(),
            stored: mark.clone(),
            found,
            after: stored.seq.saturating_sub(1),
        })
    }

    /// Returns the changes of files that calls were ever cleared for, whether they were made or not.
    pub(super) fn edits(&self) -> &[Image] {
        &self.edits
    }

    /// Remembers what a resume has to know of an event.
    fn remember(&mut self, event: &Event) {
        match event {
            Event::Vetted { id, verdict: Verdict::Cleared { intent, .. } } => {
                if let Intent::Edit { files } = intent {
                    self.edits.extend(files.iter().cloned());
                }
                if let Some(call) = call_of(&self.fold.state, *id) {
                    self.intents.insert(call, intent.clone());
                }
            }
            Event::Settled { id, result } => {
                let call = call_of(&self.fold.state, *id);
                if let Some(intent) = call.and_then(|call| self.intents.remove(&call))
                    && result.is_ok()
                {
                    self.remember_files(&intent);
                }
            }
            Event::Replied { .. } => self.intents.clear(),
            Event::Vetted { .. }
            | Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::Defect { .. }
            | Event::Prepared { .. }
            | Event::Failed { .. }
            | Event::Charged { .. }
            | Event::Checked { .. } => {}
        }
    }

    /// The session goes on. From now on only what it writes itself is remembered: what others had changed before, the
    /// model was told.
    fn remember_found(&mut self, resumption: &Resumption) {
        self.written.clear();
        let intents = std::mem::take(&mut self.intents);
        for found in resumption.found.iter().filter(|found| found.result.is_ok()) {
            if let Some(intent) = intents.get(&found.call) {
                self.remember_files(intent);
            }
        }
    }

    fn remember_files(&mut self, intent: &Intent) {
        match intent {
            Intent::Edit { files } => {
                for image in files.iter() {
                    self.written.insert(Arc::clone(&image.path), image.after.clone());
                }
            }
            Intent::Pure | Intent::Opaque | Intent::Delegated { .. } => {}
        }
    }
}

/// Returns the model call that is under way.
fn call_under_way(state: &State) -> Option<EffectId> {
    match state.kind() {
        StateKind::CallingSending | StateKind::CompactingSending | StateKind::ClosingSending => {
            state.outstanding().first().copied()
        }
        StateKind::Preparing
        | StateKind::CompactingWaiting
        | StateKind::CallingWaiting
        | StateKind::CallingChecking
        | StateKind::Executing
        | StateKind::ClosingPreparing
        | StateKind::Done => None,
    }
}

/// Returns whether an event ends a run whatever is under way.
fn cuts_off(event: &Event) -> bool {
    match event {
        Event::Interrupt { .. } | Event::StoreFailed { .. } | Event::Defect { .. } => true,
        Event::Tick { .. }
        | Event::Prepared { .. }
        | Event::Replied { .. }
        | Event::Failed { .. }
        | Event::Vetted { .. }
        | Event::Settled { .. }
        | Event::Charged { .. }
        | Event::Checked { .. } => false,
    }
}

/// Returns the call that an effect belongs to.
pub(super) fn call_of(state: &State, effect: EffectId) -> Option<CallId> {
    let State::Executing(state) = state else { return None };
    let open = state.calls.iter().find(|call| match call.slot {
        Slot::Vetting { id, .. } | Slot::Running { id, .. } => id == effect,
        Slot::Queued | Slot::Settled(_) => false,
    });
    open.map(|call| call.call.id.clone())
}

/// Folds a journal record by record; `see` is shown each one with what became of it.
///
/// # Errors
///
/// Fails when the file can't be read, or when not even its header is there.
pub(super) fn replay(
    mut reader: Reader,
    session: SessionId,
    mut see: impl FnMut(&Past, &Stored, &Replayed),
) -> Result<(Past, End), JournalError> {
    let read_only = |why| JournalError::ReadOnly { session, why };
    let headless = |damage| ReadOnly::Damaged { seq: 0, offset: 0, damage, behind: 0 };
    let mut past = match reader.read()? {
        Found::Record(stored) => match stored.content {
            Content::Header(header) => Past::start(*header),
            _ => return Err(read_only(headless(Damage::Header))),
        },
        Found::End => return Err(read_only(headless(Damage::NoEnd))),
        Found::Damage(damage) => return Err(read_only(headless(damage))),
        Found::NotUnderstood(why) => {
            return Err(read_only(ReadOnly::NotUnderstood { seq: 0, why }));
        }
    };
    let is_newer = past.header.format > super::FORMAT;
    let mut is_synced = false;
    let kind = loop {
        match reader.read()? {
            Found::Record(stored) => {
                is_synced |= stored.sync > Span::ZERO;
                let (next, replayed) = past.take(&stored);
                see(&next, &stored, &replayed);
                past = next;
            }
            Found::End => break EndKind::Whole,
            Found::NotUnderstood(why) => {
                let seq = reader.position().seq;
                break EndKind::ReadOnly(ReadOnly::NotUnderstood { seq, why });
            }
            Found::Damage(damage) => break EndKind::Torn(damage),
        }
    };
    let position = reader.position();
    let is_hole = reader.is_hole();
    let kind = match kind {
        EndKind::Whole | EndKind::Torn(Damage::NoEnd) if is_newer => {
            EndKind::ReadOnly(ReadOnly::Newer { format: past.header.format })
        }
        EndKind::Torn(damage) => match reader.behind()? {
            Behind { records: 0, .. } => EndKind::Torn(damage),
            // What a power cut leaves of records since the newest sync: some of them were written, and some before were not.
            Behind { is_synced: false, .. } if is_synced && is_hole => EndKind::Torn(damage),
            Behind { records: behind, .. } => {
                let Position { seq, offset, .. } = position;
                EndKind::ReadOnly(ReadOnly::Damaged { seq, offset, damage, behind })
            }
        },
        other => other,
    };
    Ok((past, End { position, kind }))
}

impl Content {
    /// Returns a name for what a record says.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Header(_) => "header",
            Self::Event(event) => match event.kind() {
                EventKind::Tick => "tick",
                EventKind::Interrupt => "interrupt",
                EventKind::StoreFailed => "store_failed",
                EventKind::Defect => "defect",
                EventKind::Prepared => "prepared",
                EventKind::Replied => "replied",
                EventKind::Failed => "failed",
                EventKind::Vetted => "vetted",
                EventKind::Settled => "settled",
                EventKind::Charged => "charged",
                EventKind::Checked => "checked",
            },
            Self::Partial(_) => "partial",
            Self::Resumed(_) => "resumed",
            Self::Ended(_) => "ended",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, what, stored, found, after } = self;
        write!(f, "record {after} leads elsewhere than it did: record {seq} ({what}) ")?;
        let (was, is) = (&stored.state, found.state.name());
        if was == is {
            write!(f, "was met in {was} as it is now, but with another account or other effects")
        } else {
            write!(f, "was met in {was}, and now it is met in {is}")
        }
    }
}

//! Verification of a stored session: its records, its requests, and the files beside its journal.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::error::AppError;
use super::resolved_model::encoding_models;
use super::undo::verify_checkpoints;
use crate::journal::{
    Divergence, EndedRecord, JournalEnd, ReplayedRecord, SessionHistory, SessionId, SessionStore,
    StoredContent, StoredRecord,
};
use crate::llm::RequestSettingsError;
use crate::machine::{CallPurpose, Effect, Event, State, StopReason};
use crate::port::{Model, RequestDigest};
use crate::runner::RequestContext;
use crate::types::{CallId, EffectId, Sha256Digest, Tokens};

/// The result of verifying a session.
pub struct SessionVerification {
    /// The history of the session.
    pub history: SessionHistory,
    /// The end of the journal, with its hash.
    pub end: JournalEnd,
    /// The number of records, without the header.
    pub records: u64,
    /// The first record that was written in another state than the replay reaches.
    pub divergence: Option<Divergence>,
    /// The first record with a wrong hash of the records before it.
    pub wrong_hash: Option<WrongHash>,
    /// The comparison of the requests.
    pub requests: RequestComparison,
    /// The problem with the recorded files of the workspace, if there is one.
    pub files: Result<(), String>,
    /// The first record that was changed after it was written, according to its own digests or the records before it.
    pub wrong_record: Option<RecordProblem>,
    /// The first stored output that differs from the original one.
    pub damaged_output: Option<RecordProblem>,
    /// The last record after which the journal has the expected hash.
    pub expected_at: Option<u64>,
}

/// A record with a wrong hash of the records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongHash {
    /// The record.
    pub seq: u64,
    /// The last record with a correct hash; the difference comes after it.
    pub after: Option<u64>,
}

/// A record with a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordProblem {
    /// The record.
    pub seq: u64,
    /// The problem.
    pub error: String,
}

/// The comparison of the sent requests with those rebuilt from the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestComparison {
    /// The number of equal requests.
    pub same: u64,
    /// The number of requests that were not compared, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// The first different request.
    pub difference: Option<RequestDifference>,
}

/// A request that differs from the one rebuilt from the records before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestDifference {
    /// The record of the reply or the failure.
    pub seq: u64,
    /// The request that was sent.
    pub sent: RequestDigest,
    /// The rebuilt request; `None` if the records lead to no request.
    pub built: Option<RequestDigest>,
    /// The record of the newest equal request before this one.
    pub same: Option<u64>,
}

/// Replays a session with its hashes, rebuilds its requests, and checks all files beside its journal.
///
/// # Errors
///
/// Fails if there is no such session, or it can't be read.
pub fn verify_session(
    store: &SessionStore,
    session: SessionId,
    expected: Option<Sha256Digest>,
) -> Result<SessionVerification, AppError> {
    let (mut records, mut divergence, mut wrong_hash) = (0, None, None);
    let (mut expected_at, mut hashed) = (None, None);
    let mut requests = RequestVerifier::default();
    let (mut contents, mut wrong_record) = (ContentVerifier::default(), None);
    let mut outputs = HashMap::<CallId, (u64, Sha256Digest)>::new();
    let (history, end) = store.replay_with_hashes(session, |history, stored, replayed| {
        records += 1;
        divergence = divergence.take().or_else(|| replayed.divergence.clone());
        if stored.hash_before.is_some() && wrong_hash.is_none() {
            let wrong = WrongHash { seq: stored.seq, after: hashed };
            wrong_hash = replayed.has_wrong_hash.then_some(wrong);
            hashed = Some(stored.seq);
        }
        if expected.is_some() && replayed.hash == expected {
            expected_at = Some(stored.seq);
        }
        let problem = contents.find_problem(history, stored, replayed);
        wrong_record = wrong_record
            .take()
            .or_else(|| Some(RecordProblem { seq: stored.seq, error: problem?.to_owned() }));
        if divergence.is_none() {
            requests.verify(history, stored, replayed);
        }
        if let StoredContent::Event(Event::ToolCompleted { result, .. }) = &stored.content
            && let Some(digest) = &result.whole_output
        {
            outputs.insert(result.call.clone(), (stored.seq, **digest));
        }
    })?;
    let stored = store.outputs(session);
    // An export contains no outputs.
    let damaged_outputs =
        outputs.into_iter().filter(|(_, (seq, _))| !history.header.is_imported(*seq));
    let damaged_outputs = damaged_outputs.filter_map(|(call, (seq, digest))| {
        let error = stored.verify(&call, digest).err()?.to_string();
        Some(RecordProblem { seq, error })
    });
    let damaged_output = damaged_outputs.min_by_key(|wrong| wrong.seq);
    let files = verify_checkpoints(store, &history).map_err(|error| error.to_string());
    let requests = requests.comparison;
    Ok(SessionVerification {
        history,
        end,
        records,
        divergence,
        wrong_hash,
        requests,
        files,
        wrong_record,
        damaged_output,
        expected_at,
    })
}

/// Checks the content of records against the digests stored with it, and against the machine.
#[derive(Default)]
struct ContentVerifier {
    /// Whether the end of the run was recorded with the machine's own reason.
    has_own_end: bool,
}

impl ContentVerifier {
    fn find_problem(
        &mut self,
        history: &SessionHistory,
        stored: &StoredRecord,
        next: &ReplayedRecord,
    ) -> Option<&'static str> {
        self.has_own_end &= !next.is_advanced;
        let is_marked = match &stored.content {
            StoredContent::Event(_) => stored.fingerprint.is_some(),
            StoredContent::Resumed(_) | StoredContent::Ended(_) => {
                stored.fingerprint.is_some() && stored.hash_before.is_some()
            }
            _ => true,
        };
        if history.header.has_hashes && !is_marked {
            return Some("it has no hash of the state or of the records before it");
        }
        match &stored.content {
            StoredContent::Ended(ended) => self.find_wrong_end(history, ended),
            // An export contains masked texts.
            StoredContent::Event(_) if history.header.is_imported(stored.seq) => None,
            StoredContent::Event(Event::ToolCompleted { result, .. }) => (!result.has_own_digest())
                .then_some("the result of its call has another digest than is stored with it"),
            StoredContent::Event(Event::Replied { reply, .. }) => {
                let is_changed = reply.calls().any(|call| !call.has_own_digest());
                is_changed.then_some("a call has another digest than is stored with it")
            }
            _ => None,
        }
    }

    /// Checks the record of a run's end. The evaluation of the answer may end a run for another reason, in a second
    /// record.
    fn find_wrong_end(
        &mut self,
        history: &SessionHistory,
        ended: &EndedRecord,
    ) -> Option<&'static str> {
        let State::Done(done) = &history.machine.state else {
            return Some("it says that the run has ended, and it has not");
        };
        let is_own = *ended == EndedRecord::new(done, done.outcome.reason);
        let is_decided_later = || {
            let reason = StopReason::from_name(&ended.reason);
            reason.is_some_and(|reason| *ended == EndedRecord::new(done, reason))
        };
        let is_right = is_own || (self.has_own_end && is_decided_later());
        self.has_own_end |= is_own;
        (!is_right).then_some("it says that the run has ended in another way than it has")
    }
}

/// Compares requests while a session is replayed.
#[derive(Default)]
struct RequestVerifier {
    comparison: RequestComparison,
    /// Encodes the requests of the process of the session that is being replayed.
    model: Option<Result<Box<dyn Model>, RequestSettingsError>>,
    /// The newest rebuilt request.
    built: Option<(EffectId, RequestDigest)>,
    /// The record of the newest equal request.
    same: Option<u64>,
}

impl RequestVerifier {
    fn verify(&mut self, history: &SessionHistory, stored: &StoredRecord, next: &ReplayedRecord) {
        let id = match &stored.content {
            StoredContent::Event(event) => event.completed_effect(),
            _ => None,
        };
        if let (Some(id), Some(sent)) = (id, stored.timing.and_then(|timing| timing.request)) {
            self.compare(stored.seq, id, sent);
        }
        if matches!(stored.content, StoredContent::Resumed(_)) {
            // Another process encoded the following requests, possibly with other settings.
            self.model = None;
        }
        for effect in history.output.effects.iter().filter(|_| next.is_advanced) {
            if let Effect::CallModel { id, purpose, attempt, max_output } = effect {
                let digest = self.build(history, (*purpose, *attempt, *max_output));
                self.built = digest.map(|digest| (*id, digest));
            }
        }
    }

    fn compare(&mut self, seq: u64, id: EffectId, sent: RequestDigest) {
        let comparison = &mut self.comparison;
        let mut skip = |reason: String| *comparison.skipped.entry(reason).or_default() += 1;
        if sent.is_altered {
            return skip("changed by a hook or by the budget of a batch".to_owned());
        }
        if let Some(Err(error)) = &self.model {
            return skip(error.to_string());
        }
        let built = self.built.filter(|(built, _)| *built == id).map(|(_, digest)| digest);
        if built == Some(sent) {
            comparison.same += 1;
            self.same = Some(seq);
        } else if comparison.difference.is_none() {
            let same = self.same;
            comparison.difference = Some(RequestDifference { seq, sent, built, same });
        }
    }

    /// Returns the digest of a request in the present state of the replay.
    fn build(
        &mut self,
        history: &SessionHistory,
        call: (CallPurpose, u32, Option<Tokens>),
    ) -> Option<RequestDigest> {
        let setup = &history.setup;
        let model = self.model.get_or_insert_with(|| encoding_models(&setup.requests));
        let model = model.as_mut().ok()?;
        let context = RequestContext {
            system: Arc::clone(&setup.system),
            tools: Arc::clone(&setup.tools),
            schema: setup.schema.clone(),
        };
        context.with_request(&history.machine, call, |request, _| {
            model.prepare(request).ok()?.request_digest()
        })
    }
}

impl fmt::Display for WrongHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, after } = self;
        let first = after.map_or(0, |after| after + 1);
        write!(f, "the hash in record {seq} is not that of the records before it: ")?;
        write!(f, "at least one of the records from {first} on was changed, moved or removed")
    }
}

impl fmt::Display for RequestDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, sent, built, same } = self;
        write!(f, "the request of record {seq} had {} bytes (sha256 {})", sent.bytes, sent.sha256)?;
        match built {
            Some(built) => {
                let RequestDigest { bytes, sha256, .. } = built;
                write!(
                    f,
                    ", and the records before it lead to one of {bytes} bytes (sha256 {sha256})"
                )?;
            }
            None => write!(f, ", and the records before it lead to no request")?,
        }
        match same {
            Some(same) => {
                write!(
                    f,
                    "; the request of record {same} is the same, so what differs comes after it"
                )
            }
            None => Ok(()),
        }
    }
}

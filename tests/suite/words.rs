//! Names and words that this project no longer uses, each with the one to write instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::kit::sources::files;

/// Names that no type has, and what such a type is called. A name must be clear three modules away from its declaration.
const TYPES: &[(&str, &str)] = &[
    ("Fold Outcomes", "Machine"),
    ("Next Out", "Output, Step"),
    ("Move", "Transition"),
    ("Mark", "Fingerprint"),
    ("Facts", "RequestSize"),
    ("Gauge", "ContextUsage"),
    ("Ledger", "WorkRecord"),
    ("Bill", "CostBreakdown"),
    ("Allowance", "BudgetShare"),
    ("Spent", "Usage"),
    ("Slot", "CallState"),
    ("Settled", "Completed"),
    ("Charged", "UsageReported"),
    ("Defect", "InternalError"),
    ("Why", "the deadline enum of the state"),
    ("Vetted Verdict Judged Permit", "Decision"),
    ("Cleared", "Approved"),
    ("Judge", "PolicyEngine"),
    ("Span Patience Watch", "Duration, or a constant …_TIMEOUT"),
    ("Micros", "MicroUsd"),
    ("Time", "RunTime"),
    ("Wall", "WallClock"),
    ("Hands", "Executor"),
    ("Inline", "InlineExecutor"),
    ("Lane", "Thread…"),
    ("Work", "Task"),
    ("Post", "Sender"),
    ("Arrival", "Input"),
    ("Brief", "RequestContext"),
    ("Order", "RunRequest"),
    ("Place First Start Written", "SessionTarget"),
    ("Stage Audience", "RunIo, Sinks"),
    ("Going Opened", "Session"),
    ("GoOn Begin", "ResumeOptions"),
    ("Staging Live Rehearsal Around", "RunEnvironment"),
    ("Prompter", "EventScript"),
    ("Witnessed Listener Happening", "Recorded…"),
    ("World", "ProcessEnv"),
    ("Crew", "SubagentContext"),
    ("Errand", "SubagentTask"),
    ("Meter", "UsageMeter"),
    ("Nesting", "Depth"),
    ("Seen", "RunEvent"),
    ("Nobody", "NoObserver"),
    ("Gone", "Disconnected"),
    ("Show Look", "Reporter"),
    ("Hush", "PauseDrawing"),
    ("Farewell Desk", "a noun for what it does"),
    ("Prelude", "PreCallHooks"),
    ("Occasion", "HookInput"),
    ("Passage Ran", "HookRun"),
    ("Heard", "HookOutput"),
    ("Mail Mailbox", "SteeringQueue"),
    ("Letter", "QueuedMessage"),
    ("Past", "History"),
    ("Lineage", "Ancestry"),
    ("Unheard", "Pending…"),
    ("Kept", "StoredOutput"),
    ("Drift", "Divergence"),
    ("Carrier", "Transport"),
    ("Incoming", "ResponseBody"),
    ("Lead", "BomSkipper"),
    ("Steady", "PrefixCheck"),
    ("Pen", "JsonWriter"),
    ("Draft", "ReplyBuilder"),
    ("Piece", "…Delta"),
    ("Speaks", "ApiFormat"),
    ("Reached", "Connection"),
    ("Means", "Deps"),
    ("Common", "SharedQuota"),
    ("Felled", "KilledTree"),
    ("Hole", "WritablePath"),
    ("Chosen", "ResolvedModel"),
    ("Remembered", "SavedOptions"),
    ("Way How", "RunMode"),
    ("Whose", "TrustLevel"),
    ("Author", "Owner"),
    ("LeftOut", "Skipped"),
    ("Ahead", "StricterThan"),
    ("Trouble", "Problem"),
    ("Shape", "ValueType"),
    ("Left", "RemainingLimits"),
    ("Changed Covered Impatient Open Typed", "a noun for what is or does so"),
    ("Cell Claim Refusal Record Request", "Coordination…, or a noun that says of what"),
    ("Direction End Goal Limit", "Workflow…, or a noun that says of what"),
    (
        "Answer Ask Ended Found Got Line Masks Near Parting Places Repairs Said Tell Tree Use Used What",
        "a noun that says of what",
    ),
];

/// Words that stand in no identifier, comment or text.
const WORDS: &[(&str, &str)] = &[
    ("nobody", "no one, no caller, no user"),
    ("somebody", "someone, a user, another process"),
    ("whoever", "the caller, the user, the reader"),
    ("anew", "again"),
    ("mend mends mended mending", "fix, repair"),
    ("reckon reckons reckoned reckoning", "compute, count"),
    ("tell tells telling told", "report, show, distinguish"),
    ("heard", "received, read"),
    ("said", "reported, written"),
    ("lies", "is located, is"),
    ("house", "architecture"),
    ("floor floors", "layer"),
    ("room rooms", "module; space"),
    ("hush farewell errand errands desk sitting sittings", "the plain technical noun"),
    ("judge judges judged judging", "decide, check"),
    ("verdict verdicts", "decision"),
    ("witness witnesses witnessed", "record, recording"),
    ("vet vets vetted vetting", "authorize"),
    ("stage stages rehearsal rehearsals rehearse", "environment, simulation"),
    ("prompter audience", "script, reporter"),
    ("mail mailbox letterbox parcel postman", "message, queue"),
    ("post posts posted", "send"),
    ("hand hands handed", "pass, give; executor"),
    ("limb limbs mouth ears", "the plain technical noun"),
    ("breath", "a constant …_TIMEOUT"),
    ("letter", "message"),
];

/// Phrases that stand in no comment or text.
const PHRASES: &[(&str, &str)] = &[
    (" is none", "is invalid, is not one"),
    (" are none", "are invalid, do not exist"),
    ("safety net", "limit"),
    ("last word", "final summary"),
    ("sum up", "summarize"),
    ("sums up", "summarizes"),
];

/// Where a word is right: in a line that contains the second text, or in a file whose path contains it.
const ALLOWED: &[(&str, &str)] = &[
    ("nobody", "'nobody'"), // the name of a user or an agent
    ("nobody", "su -c"),
    ("post", "\"post\""), // the method of HTTP
    ("post", "post /"),
    ("post", "post http"),
    ("post", "method::post"),
    ("post", "`post`"),
    ("post", "agent.post"),
    ("post", "http post"),
    ("post", "client_secret_post"), // the name of a method in metadata
    ("post", "post_"),              // the points of a hook
    ("post", "post-"),
    ("post", "postedit"),
    ("post", "posttool"),
    ("post", "postllm"),
    ("post", "postcompact"),
    ("judge", "--judge"), // an option
    ("judge", "\"judge\""),
    ("mail", "\"mail\""), // the folder of a stored session
    ("mail", "user.mail"),
    ("letter", "capital letter"),
    ("letter", "one letter"),
    ("letter", "token_bound.rs"), // of the alphabet
    ("hand", "by hand"),
    ("hand", "by_hand"),
    ("hand", "right-hand"),
    ("hand", "left-hand"),
    ("hand", "beforehand"),
    ("floor", ".floor()"),
    ("floor", "div_floor"),
    ("floor", "floor_char_boundary"),
    ("stage", "git"), // its index
    ("stages", "git"),
    ("stage", "/machine/"), // of a state
    ("stage", "callingstage"),
    ("stage", "closingstage"),
    ("stage", "permission/command/"), // of a pipeline
    ("stage", "src/policy/"),
    ("stage", "ci_job_stage"),  // a variable
    ("mail", "patch"),          // as git formats it
    ("parcel", "parcel-cache"), // a bundler
    ("letter", "a letter"),
    ("sitting", "kitten"), // the usual example of a distance
    ("room", "room for"),
    ("letter", "first letter"),
    (" is none", "there is none"),
    (" are none", "there are none"),
    // Names that stored sessions, documents and the chart have.
    ("heard", "\"heard\""),
    ("judged", "\"judged_ms\""),
    ("nobody", "\"nobody\""),
    ("vet", "\"vet\""),
    ("vetted", "(vetted)"),
    ("vetted", "\"vetted"),
    ("vetted", "\\\"vetted"),
    ("verdict", "\"verdict"),
    ("said", "\"said\""),
    ("vetted", "docs/statechart.md"),
    ("vetted", "statecharts/"),
    ("safety net", "docs/statechart.md"),
    ("safety net", "statecharts/"),
    ("last word", "docs/statechart.md"),
    ("last word", "statecharts/"),
];

/// The type names that several modules have, because the modules have one shape.
const SIBLINGS: &[&str] = &[
    // A tool each.
    "Arguments",
    "Call",
    // An API format each.
    "Chunk",
    "ContentPart",
    "Reader",
    "ReportedUsage",
    "StreamEvent",
    // An alias for the error of a module each.
    "Result",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files that people read, with their texts.
fn sources() -> Vec<(PathBuf, String)> {
    let mut paths = vec!["README.md".into(), "SECURITY.md".into(), "CONTRIBUTING.md".into()];
    for folder in ["src", "tests", "benches", "examples", "statecharts", "docs"] {
        if root().join(folder).is_dir() {
            paths.extend(files(&root().join(folder), &["rs", "md", "toml", "json", "py"]));
        }
    }
    let of_others = ["tests/recordings", "tests/journals", "tests/fuzz/corpus", "tests/scenarios"];
    let is_ours = |path: &Path| {
        !of_others.iter().any(|folder| path.starts_with(folder))
            && !path.starts_with("tests/fuzz/target")
            && path != Path::new("tests/FAULTS.md") // written by a test
            && path != Path::new("tests/suite/words.rs")
    };
    let inside = paths.iter().map(|path: &PathBuf| path.strip_prefix(root()).unwrap_or(path));
    inside
        .filter(|path| is_ours(path))
        .filter_map(|path| Some((path.to_owned(), fs::read_to_string(root().join(path)).ok()?)))
        .collect()
}

/// Returns the words of a line in lower case: `HttpPost`, `http_post` and "HTTP post" are the same two.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for c in line.chars() {
        let starts = !c.is_alphabetic() || c.is_uppercase() && previous.is_lowercase();
        if starts && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c.is_alphabetic() {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        previous = c;
    }
    words
}

/// Returns the name that a line of code declares a type with.
fn declared_type(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let unrestricted = match trimmed.strip_prefix("pub(") {
        Some(restricted) => restricted.split_once(')')?.1,
        None => trimmed,
    };
    let mut words = unrestricted
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .skip_while(|word| ["", "pub", "unsafe"].contains(word));
    let keyword = words.next()?;
    let name = words.next()?;
    let is_declared = ["struct", "enum", "trait", "type", "union"].contains(&keyword)
        && name.starts_with(|c: char| c.is_uppercase());
    // An associated type is named by its trait.
    (is_declared && (keyword != "type" || !line.starts_with(' '))).then_some(name)
}

fn by_word(table: &'static [(&str, &str)]) -> BTreeMap<&'static str, &'static str> {
    let words = |(words, instead): &'static (&'static str, &'static str)| {
        words.split(' ').map(|word| (word, *instead))
    };
    table.iter().flat_map(words).collect()
}

/// Returns what is wrong with a line, and what to write instead.
fn complaints(path: &str, line: &str) -> Vec<String> {
    static MAPS: LazyLock<[BTreeMap<&str, &str>; 2]> =
        LazyLock::new(|| [by_word(TYPES), by_word(WORDS)]);
    let [types, single] = &*MAPS;
    let mut found = Vec::new();
    let is_code = Path::new(path).extension().is_some_and(|ending| ending == "rs");
    let declared = declared_type(line).filter(|_| is_code);
    let gone = declared.and_then(|name| types.get_key_value(name));
    let linked = types.iter().filter(|(name, _)| line.contains(&format!("[`{name}`]")));
    for (name, instead) in gone.into_iter().chain(linked) {
        found.push(format!("type {name}: {instead}"));
    }
    let lower = line.to_lowercase();
    let is_allowed = |word: &str| {
        let mut places = ALLOWED.iter().filter(|(allowed, _)| *allowed == word);
        places.any(|(_, place)| lower.contains(place) || path.contains(place))
    };
    let phrases = PHRASES.iter().filter(|(phrase, _)| lower.contains(phrase));
    for (phrase, instead) in phrases.filter(|(phrase, _)| !is_allowed(phrase)) {
        found.push(format!("'{phrase}': {instead}"));
    }
    for word in words(line) {
        if let Some(instead) = single.get(word.as_str()).filter(|_| !is_allowed(&word)) {
            found.push(format!("'{word}': {instead}"));
        }
    }
    found
}

#[test]
fn no_retired_name_or_word_is_used() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let path = path.to_str().unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let complaints = complaints(path, line);
            found.extend(complaints.iter().map(|what| format!("{path}:{number}: {what}")));
        }
    }
    assert!(found.is_empty(), "{} hits:\n{}", found.len(), found.join("\n"));
}

/// Comments say what a thing is with a noun, and what it does with a verb.
#[test]
fn no_comment_begins_with_a_relative_clause() {
    let starts = ["What", "Whose", "Who", "Where", "Which"].map(|word| format!("{word} "));
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| path.extension() == Some("rs".as_ref()))
    {
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
            let comment = comment.trim_start_matches(['/', '!', ' ']);
            if starts.iter().any(|start| comment.starts_with(start)) {
                found.push(format!("{}:{number}: {comment}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "write a noun or a sentence:\n{}", found.join("\n"));
}

#[test]
fn no_type_name_stands_for_two_things() {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let is_product = path.starts_with("src") && path.extension().is_some_and(|end| end == "rs");
        // Tests stand at the end of a file, or in one of their own.
        if !is_product
            || path.file_name().unwrap() == "tests.rs"
            || path.iter().any(|part| part == "tests")
        {
            continue;
        }
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for name in product.lines().filter_map(declared_type) {
            modules.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    modules.values_mut().for_each(Vec::dedup);
    modules.retain(|name, modules| modules.len() > 1 && !SIBLINGS.contains(&name.as_str()));
    assert!(
        modules.is_empty(),
        "rename all but one, or add siblings of one shape to SIBLINGS:\n{modules:#?}"
    );
}

#[test]
fn words_and_types_are_found_in_every_spelling() {
    assert_eq!(words("HttpPost http_post1 isn't"), ["http", "post", "http", "post", "isn", "t"]);
    assert_eq!(declared_type("pub(crate) struct Letter<'a> {"), Some("Letter"));
    assert_eq!(declared_type("pub(in crate::post) unsafe trait Letter {"), Some("Letter"));
    assert_eq!(declared_type("    pub(super) enum Letter {"), Some("Letter"));
    assert_eq!(declared_type("    type Output = String;"), None);
    assert_eq!(declared_type("/// An enum Letter"), None);
    assert_eq!(complaints("a.rs", "fn tell(letter: HttpPost)").len(), 3);
    assert_eq!(complaints("a.rs", "let empty = list.is_none(); // sent by HTTP POST"), [""; 0]);
    assert_eq!(complaints("a.rs", "/// A name that is none, see [`Letter`].").len(), 3);
}

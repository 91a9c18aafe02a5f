//! `architect schema`: the schemas of the documents that programs and editors read and write.

use architect::config;
use architect::journal::index::{SearchHit, SessionDetail, SessionRow};
use architect::llm::provider_names;
use architect::view::stats::Statistics;
use architect::view::trace::Trace;
use architect::view::{document_schema, event_schema, result_schema};
use architect::workflow::batch::manifest_schema;
use architect::workflow::scenario::{ScenarioSuite, TestDocument, scenario_schema};

use super::config::AgentDocument;
use super::conform::ConformDocument;
use super::doctor::CheckDocument;
use super::models::ModelDocument;
use super::sessions::{CostDocument, ImportDocument, RemovedDocument};
use super::skills::SkillDocument;
use super::stored::ReplayDocument;
use super::undo::PatchDocument;
use super::what_if::WhatIfLine;
use super::worktrees::{MergeDocument, RemovedWorktrees, WorktreeDocument};
use crate::cli::args::SchemaSubject;
use crate::cli::error::CliError;
use crate::cli::output;

/// Prints the JSON Schema of a subject.
pub(crate) fn print(subject: SchemaSubject) -> Result<u8, CliError> {
    let schema = match subject {
        SchemaSubject::Result => result_schema(),
        SchemaSubject::Event => event_schema(),
        SchemaSubject::Config => config::schema(&provider_names()),
        SchemaSubject::Scenario => scenario_schema(),
        SchemaSubject::Manifest => manifest_schema(&config::schema(&provider_names())),
        SchemaSubject::Agents => document_schema::<Vec<AgentDocument>>(),
        SchemaSubject::Cleanup | SchemaSubject::SessionsRm => document_schema::<RemovedDocument>(),
        SchemaSubject::Conform => document_schema::<ConformDocument<'_>>(),
        SchemaSubject::Diff => document_schema::<Vec<PatchDocument>>(),
        SchemaSubject::Doctor => document_schema::<Vec<CheckDocument<'_>>>(),
        SchemaSubject::Models => document_schema::<Vec<ModelDocument>>(),
        SchemaSubject::Replay => document_schema::<ReplayDocument<'_>>(),
        SchemaSubject::Sessions => document_schema::<Vec<SessionRow>>(),
        SchemaSubject::SessionsCosts => document_schema::<CostDocument>(),
        SchemaSubject::SessionsImport => document_schema::<ImportDocument>(),
        SchemaSubject::SessionsSearch => document_schema::<Vec<SearchHit>>(),
        SchemaSubject::SessionsShow => document_schema::<SessionDetail>(),
        SchemaSubject::Skills => document_schema::<Vec<SkillDocument<'_>>>(),
        SchemaSubject::Stats => document_schema::<Statistics>(),
        SchemaSubject::Test => document_schema::<TestDocument<'_>>(),
        SchemaSubject::TestFromAll => document_schema::<ScenarioSuite>(),
        SchemaSubject::Trace => document_schema::<Trace>(),
        SchemaSubject::WhatIf => document_schema::<WhatIfLine>(),
        SchemaSubject::Worktrees => document_schema::<Vec<WorktreeDocument>>(),
        SchemaSubject::WorktreesMerge => document_schema::<MergeDocument>(),
        SchemaSubject::WorktreesRm => document_schema::<RemovedWorktrees>(),
    };
    output::print(&format!("{schema:#}\n"))
}

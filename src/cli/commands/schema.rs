//! `architect schema`: the forms of what programs and editors read and write.

use architect::config;
use architect::llm::provider_names;
use architect::view::{event_schema, result_schema};
use architect::workflow::batch::manifest_schema;
use architect::workflow::scenario::scenario_schema;

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
    };
    output::print(&format!("{schema:#}\n"))
}

//! The frame of HTML pages: reports, traces and statistics.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::sanitize;
use super::trace::StepChange;
use crate::machine::RunStatus;

/// Returns a policy that forbids loading anything, and all scripts except the page's own, whatever the page contains.
fn content_security_policy(script: Option<&str>) -> String {
    let hash = |script: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script)));
    let script = script.map_or_else(|| "'none'".to_owned(), hash);
    format!(
        "default-src 'none'; script-src {script}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
}

const STYLE: &str = include_str!("page.css");

/// The frame around the sections of a page.
pub(super) struct PageFrame<'a> {
    pub(super) title: &'a str,
    pub(super) heading: &'a str,
    /// The style sheet of the page, after the common one.
    pub(super) style: &'a str,
    /// The script of the page, if it has one.
    pub(super) script: Option<&'static str>,
    /// The status, which determines the color of the header.
    pub(super) status: RunStatus,
    pub(super) outcome: &'a str,
    pub(super) key_figures: &'a [String],
    /// Names and values in the footer; without any there is no footer.
    pub(super) facts: &'a [(&'static str, String)],
}

impl PageFrame<'_> {
    /// Returns the whole page with these sections.
    pub(super) fn render(&self, sections: &Markup) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content=(content_security_policy(self.script));
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) (PreEscaped(self.style)) }
                }
                body {
                    main {
                        header class=(self.status.as_str()) {
                            h1 { (self.heading) }
                            p.numbers {
                                strong { (self.outcome) }
                                @for figure in self.key_figures { span { (figure) } }
                            }
                        }
                        (sections)
                        @if !self.facts.is_empty() { footer { (facts(self.facts)) } }
                    }
                    @if let Some(script) = self.script { script { (PreEscaped(script)) } }
                }
            }
        };
        page.into_string()
    }
}

/// Returns a list of names and values.
pub(super) fn facts(facts: &[(&'static str, String)]) -> Markup {
    html! { dl { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } } }
}

/// Returns a section of a page.
pub(super) fn section(title: impl Display, content: &Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}

/// Returns the changes of files, step by step, each with its patch folded below it.
pub(super) fn step_changes(changes: &[StepChange]) -> Markup {
    html! {
        @for change in changes {
            details {
                summary { "Step " (change.step) ": " (file_change(change)) }
                (patch(change))
            }
        }
    }
}

/// Returns the path of a changed file, with its numbers of added and removed lines.
pub(super) fn file_change(change: &StepChange) -> Markup {
    html! { code { (sanitize::line(&change.path.to_string())) } " +" (change.added) " −" (change.removed) }
}

/// Returns the patch of a change, with its added and removed lines marked.
pub(super) fn patch(change: &StepChange) -> Markup {
    if change.patch.is_empty() {
        return html! { p { "This change has no patch, or one that is too long." } };
    }
    let mut is_head = true;
    let mut kind = |line: &str| {
        is_head &= !line.starts_with('@');
        match line.as_bytes().first() {
            _ if is_head => Some("hunk"),
            Some(b'+') => Some("ins"),
            Some(b'-') => Some("del"),
            Some(b'@') => Some("hunk"),
            _ => None,
        }
    };
    let lines: Vec<_> = change.patch.lines().map(|line| (kind(line), line)).collect();
    let groups = lines.chunk_by(|one, next| one.0 == next.0);
    html! {
        pre.patch {
            @for group in groups {
                span class=[group[0].0] {
                    @for (_, line) in group { (sanitize::multiline(line)) "\n" }
                }
            }
        }
    }
}

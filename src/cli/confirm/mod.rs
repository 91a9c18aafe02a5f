//! Confirmations on the terminal.

mod editing;
mod server_question;
mod terminal;

use std::path::PathBuf;
use std::sync::Arc;

use architect::config::allow_in_user_config;
use architect::policy::{
    ConfirmationAnswer, ConfirmationRequest, Confirmer, Elicitation, ElicitationAnswer, NoConfirmer,
};
use architect::port::EffectContext;
use architect::types::CallId;
use architect::view::human::{PauseDrawing, diff_lines};
use architect::view::sanitize;

use terminal::{Input, Terminal};

/// Settings of the questions to the user.
#[derive(Default)]
pub(crate) struct PromptSettings {
    /// Pauses the drawing of the log during a question.
    pub(crate) pause_drawing: Option<PauseDrawing>,
    /// Whether diffs are coloured.
    pub(crate) has_color: bool,
    /// The user's own configuration file, if its folder is known.
    pub(crate) user_config: Option<PathBuf>,
    /// The editor for arguments; without an editor, the user enters them one by one.
    pub(crate) editor: Option<String>,
}

/// Asks on the terminal from which the program was started.
struct TerminalPrompt(PromptSettings);

/// Returns a prompt on the terminal, if there is a terminal; otherwise a confirmer that can't ask.
pub(crate) fn confirmation_port(settings: PromptSettings, may_ask: bool) -> Arc<dyn Confirmer> {
    if may_ask && Terminal::open().is_some() {
        Arc::new(TerminalPrompt(settings))
    } else {
        Arc::new(NoConfirmer)
    }
}

impl TerminalPrompt {
    /// Asks while the log does not draw on the terminal.
    fn pause_drawing<T>(&self, ask: impl FnOnce() -> T) -> T {
        match &self.0.pause_drawing {
            Some(pause_drawing) => pause_drawing.during(ask),
            None => ask(),
        }
    }
}

impl Confirmer for TerminalPrompt {
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer {
        let Some(terminal) = Terminal::open() else { return ConfirmationAnswer::Unavailable };
        let ask = || Dialog { settings: &self.0, question, scope, terminal }.run();
        self.pause_drawing(ask).unwrap_or(ConfirmationAnswer::Abort)
    }

    fn can_answer(&self) -> bool {
        true
    }

    fn answer(
        &self,
        question: &Elicitation,
        _: &CallId,
        scope: &EffectContext,
    ) -> ElicitationAnswer {
        let Some(terminal) = Terminal::open() else { return ElicitationAnswer::Cancel };
        let ask = || server_question::ask(question, terminal, &scope.cancel);
        self.pause_drawing(ask).unwrap_or(ElicitationAnswer::Cancel)
    }
}

/// The number of lines of a diff or of arguments that are shown at first.
const SHOWN_LINES: usize = 40;

/// A question with all inputs until the user has decided.
struct Dialog<'a> {
    settings: &'a PromptSettings,
    question: &'a ConfirmationRequest<'a>,
    scope: &'a EffectContext,
    terminal: Terminal,
}

impl Dialog<'_> {
    /// Returns the answer; `None` at the end of the input, or if the run no longer waits.
    fn run(mut self) -> Option<ConfirmationAnswer> {
        // Input that was typed before the question does not answer it.
        self.terminal.discard_input();
        self.show_question(SHOWN_LINES);
        loop {
            let rule = if self.question.rule.is_some() { " [s]ession [S]always" } else { "" };
            self.say(&format!("  run it? [y]es [n]o [a]bort{rule} [e]dit [v]iew [?]help: "));
            match self.terminal.read_line(&self.scope.cancel).line()?.trim() {
                "y" | "Y" | "yes" | "sí" | "si" => return Some(ConfirmationAnswer::Yes),
                "n" | "N" | "no" => return self.refuse(),
                "a" | "A" | "abort" => return Some(ConfirmationAnswer::Abort),
                "s" | "session" if self.question.rule.is_some() => {
                    return Some(ConfirmationAnswer::YesForSession);
                }
                "S" | "always" if self.question.rule.is_some() => {
                    if self.store_rule() {
                        return Some(ConfirmationAnswer::YesAlways);
                    }
                }
                "s" | "session" | "S" | "always" => self.say(
                    "  no rule would allow this call: a rule of permissions.ask asks, or the call is too special\n",
                ),
                "e" | "edit" => {
                    if let Some(arguments) = self.edit()? {
                        return Some(ConfirmationAnswer::Edit(arguments));
                    }
                }
                "v" | "view" => self.show_question(usize::MAX),
                _ => self.say(HELP),
            }
        }
    }

    fn say(&mut self, text: &str) {
        self.terminal.write(text);
    }

    /// Shows the call, and the reason for the question.
    fn show_question(&mut self, most: usize) {
        let ConfirmationRequest { tool, summary, reason, diff, findings, rule, edit_error, .. } =
            *self.question;
        let has_color = self.settings.has_color;
        let mut text = match self.is_command() {
            // The user decides about a command as a whole.
            true => {
                format!("\n{tool}\n{}", indented(&sanitize::multiline(summary), "  $ ", "    "))
            }
            false => format!("\n{tool} → {}\n", sanitize::line(summary)),
        };
        let lines = match diff {
            "" if self.is_command() => Vec::new(),
            "" => self.argument_lines(),
            diff => diff_lines(diff, has_color),
        };
        for line in lines.iter().take(most) {
            text.push_str(&format!("  {line}\n"));
        }
        if lines.len() > most {
            text.push_str(&format!("  … {} more lines (v to view)\n", lines.len() - most));
        }
        text.push_str(&format!("  asked, because: {}\n", sanitize::line(reason)));
        for finding in findings {
            text.push_str(&format!("  {}\n", sanitize::line(finding)));
        }
        if let Some(rule) = rule {
            let all = if rule.contains('(') { "" } else { " (every call of this tool)" };
            text.push_str(&format!("  s and S allow from now on: {}{all}\n", sanitize::line(rule)));
        }
        if let Some(error) = edit_error {
            text.push_str(&format!(
                "  the edited arguments are invalid: {}\n",
                sanitize::line(error)
            ));
        }
        self.say(&text);
    }

    fn is_command(&self) -> bool {
        editing::command_of(self.question.arguments).is_some()
    }

    /// Returns the arguments of a call without a diff, since the one-line summary may omit parts of them.
    fn argument_lines(&self) -> Vec<String> {
        let value = serde_json::from_str::<serde_json::Value>(self.question.arguments);
        let text = value.ok().and_then(|value| serde_json::to_string_pretty(&value).ok());
        let text = text.unwrap_or_default();
        sanitize::multiline(&text).lines().map(str::to_owned).collect()
    }

    /// Asks for a reason, which the model gets. The call is refused even without a reason.
    fn refuse(&mut self) -> Option<ConfirmationAnswer> {
        self.say("  why not? (the model reads it; empty for no reason): ");
        match self.terminal.read_line(&self.scope.cancel) {
            Input::Line(reason) if !reason.trim().is_empty() => {
                Some(ConfirmationAnswer::NoBecause(reason.trim().to_owned()))
            }
            Input::Line(_) | Input::End => Some(ConfirmationAnswer::No),
            Input::Cancelled => None,
        }
    }

    /// Writes the rule into the user's own configuration. Returns whether that succeeded.
    fn store_rule(&mut self) -> bool {
        let (Some(rule), Some(path)) = (self.question.rule, &self.settings.user_config) else {
            self.say("  there is no folder for your configuration; s allows it for the session\n");
            return false;
        };
        let stored = allow_in_user_config(path, rule);
        let text = match &stored {
            Ok(()) => format!("  added to {}\n", path.display()),
            Err(error) => format!("  {error}\n"),
        };
        self.say(&sanitize::multiline(&text));
        stored.is_ok()
    }

    /// Returns the edited arguments; `Some(None)` if nothing was changed.
    #[allow(clippy::option_option)] // no answer, and no change
    fn edit(&mut self) -> Option<Option<String>> {
        let arguments = self.question.arguments;
        let edited = match &self.settings.editor {
            Some(editor) => editing::edit_in(editor, arguments, &mut self.terminal),
            None => editing::edit_by_line(arguments, &mut self.terminal, &self.scope.cancel)?,
        };
        match edited {
            Ok(Some(edited)) => Some(Some(edited)),
            Ok(None) => {
                self.say("  nothing was changed\n");
                Some(None)
            }
            Err(error) => {
                self.say(&format!("  {}\n", sanitize::line(&error)));
                Some(None)
            }
        }
    }
}

const HELP: &str = "  y  run it
  n  don't run it; a reason can be given to the model
  a  end the whole run; Ctrl-C and Ctrl-D do the same
  s  run it, and what the rule allows in any folder until this run ends
  S  run it, and add the rule to your own configuration, where it holds for every project
  e  edit the arguments, in $VISUAL or $EDITOR or one by one; the question comes again
  v  show everything
";

/// Returns a text with a prefix before its first line and another before the rest.
fn indented(text: &str, first: &str, rest: &str) -> String {
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| format!("{}{line}\n", if at == 0 { first } else { rest })).collect()
}

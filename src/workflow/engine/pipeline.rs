//! The file of a pipeline: steps, and the problems in them.

use std::path::Path;

use super::condition::{Condition, has_item, step_names};
use super::{MAX_ITEMS, StepDefinition, Workflow};
use crate::workflow::batch::{
    EntryReader, ManifestEntry, ManifestProblem, ManifestText, read_entries,
};

/// A pipeline, as defined by its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The steps, in order.
    pub steps: Vec<PipelineStep>,
}

/// A step of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineStep {
    /// The line in which the step begins, counted from one.
    pub line: usize,
    /// The definition.
    pub definition: StepDefinition,
    /// The agent, if the step names one.
    pub agent: Option<String>,
    /// The model, if the step names one.
    pub model: Option<String>,
}

/// The keys of a step.
const STEP_KEYS: [&str; 10] = [
    "name", "prompt", "agent", "model", "checks", "when", "repeat", "until", "foreach", "parallel",
];

/// Maximum number of iterations of a step.
const MAX_REPEAT: u64 = 1000;

/// Maximum number of parallel items.
const MAX_PARALLEL: u64 = 32;

/// Length limit of a step's name, in characters.
const MAX_NAME_LENGTH: usize = 64;

impl Pipeline {
    /// Parses the file of a pipeline. Returns the readable steps, and every problem that is visible in the file itself.
    pub fn parse(file: ManifestText<'_>) -> (Self, Vec<ManifestProblem>) {
        let mut reader = EntryReader::new(file.name, &STEP_KEYS, Path::new(""));
        let entries = read_entries(file, &["steps"]);
        let steps = reader.read_all(entries, "steps", read_step, |step| &step.definition.name);
        let mut earlier: Vec<&str> = Vec::new();
        for step in &steps {
            check_references(&mut reader, step, &mut earlier);
        }
        reader.problems.sort_by_key(|problem| problem.line);
        let problems = std::mem::take(&mut reader.problems);
        (Self { steps }, problems)
    }

    /// Returns the workflow.
    pub fn workflow(&self) -> Workflow {
        Workflow { steps: self.steps.iter().map(|step| step.definition.clone()).collect() }
    }
}

fn read_step(reader: &mut EntryReader<'_>, mut entry: ManifestEntry) -> Option<PipelineStep> {
    reader.check_keys(&entry);
    let line = entry.line;
    let lines = ["prompt", "repeat", "until"].map(|key| entry.fields.get(key).map(|it| it.line));
    let [prompt_line, repeat_line, until_line] = lines;
    let name = reader.required_text(&mut entry, "name");
    let prompt = reader.required_text(&mut entry, "prompt");
    let [agent, model] = ["agent", "model"].map(|key| reader.text(&mut entry, key));
    let checks = reader.texts(&mut entry, "checks");
    let [when, until] = ["when", "until"].map(|key| read_condition(reader, &mut entry, key));
    let repeat = reader.count(&mut entry, "repeat", MAX_REPEAT);
    let items = reader.text(&mut entry, "foreach");
    let parallel_line = entry.fields.get("parallel").map(|it| it.line);
    let parallel = reader.count(&mut entry, "parallel", MAX_PARALLEL);
    if let (Some(line), None) = (parallel_line, &items) {
        reader.problem(line, "`parallel` needs `foreach`");
    }
    match &items {
        None if until.is_some() && repeat.is_none() => {
            reader.problem(line, "`until` needs `repeat`, the maximum number of iterations");
        }
        None => {}
        Some(_) => {
            if let Some(line) = repeat_line {
                reader.problem(line, "`repeat` can't stand with `foreach`: each item runs once");
            }
            if let Some(line) = until_line {
                reader.problem(
                    line,
                    "`until` can't stand with `foreach`: each item runs once, and `checks` run after it",
                );
            }
            if prompt.as_ref().is_some_and(|prompt| !has_item(prompt)) {
                let message = "`prompt` needs {{item}}, which stands for an item of `foreach`";
                reader.problem(prompt_line.unwrap_or(line), message);
            }
        }
    }
    let name = name?;
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.chars().all(is_fit) || name.len() > MAX_NAME_LENGTH {
        let message = format!(
            "`name` has letters, digits, '-' and '_', at most {MAX_NAME_LENGTH}: `{name}` does not"
        );
        reader.problem(line, message);
    }
    let definition = StepDefinition {
        name,
        prompt: prompt.unwrap_or_default(),
        has_placeholders: true,
        when,
        until,
        checks,
        is_skipped_if_checked: false,
        metric: None,
        iterations: match (&items, parallel) {
            (Some(_), None) => MAX_ITEMS,
            (Some(_), Some(_)) => 1,
            (None, _) => repeat.unwrap_or(1),
        },
        items,
        parallel,
        max_unchanged: None,
    };
    Some(PipelineStep { line, definition, agent, model })
}

fn read_condition(
    reader: &mut EntryReader<'_>,
    entry: &mut ManifestEntry,
    key: &str,
) -> Option<Condition> {
    let line = entry.fields.get(key)?.line;
    match Condition::parse(&reader.text(entry, key)?) {
        Ok(condition) => Some(condition),
        Err(why) => {
            reader.problem(line, format!("`{key}`: {why}"));
            None
        }
    }
}

impl EntryReader<'_> {
    /// Returns a number from one to `most`.
    fn count(&mut self, entry: &mut ManifestEntry, key: &str, most: u64) -> Option<u32> {
        let field = entry.take(key)?;
        let number = field.value.as_u64().filter(|number| (1..=most).contains(number));
        if number.is_none() {
            let message = format!("`{key}` has to be a whole number from 1 to {most}");
            self.problem(field.line, message);
        }
        // An invalid number counts as one, so that the key is not reported as missing, too.
        Some(number.and_then(|number| u32::try_from(number).ok()).unwrap_or(1))
    }
}

/// Checks that a step only refers to earlier steps.
fn check_references<'a>(
    reader: &mut EntryReader<'_>,
    step: &'a PipelineStep,
    earlier: &mut Vec<&'a str>,
) {
    let definition = &step.definition;
    let conditions = |condition: &'a Option<Condition>| {
        condition.iter().flat_map(Condition::texts).collect::<Vec<_>>()
    };
    let mut check = |key: &str, texts: Vec<&str>, earlier: &[&str]| {
        for text in texts {
            match step_names(text) {
                Err(why) => reader.problem(step.line, format!("`{key}`: {why}")),
                Ok(names) => {
                    for name in names.into_iter().filter(|name| !earlier.contains(name)) {
                        let message =
                            format!("`{key}` uses `{name}`, which is not an earlier step");
                        reader.problem(step.line, message);
                    }
                }
            }
        }
    };
    check("prompt", vec![&definition.prompt], earlier);
    check("when", conditions(&definition.when), earlier);
    check("foreach", definition.items.iter().map(String::as_str).collect(), earlier);
    earlier.push(&definition.name);
    check("until", conditions(&definition.until), earlier);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Pipeline, Vec<String>> {
        let (pipeline, problems) = Pipeline::parse(ManifestText { name: "p.toml", text });
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        if problems.is_empty() { Ok(pipeline) } else { Err(problems) }
    }

    #[test]
    fn a_file_has_steps_in_order() {
        let pipeline = parse(
            "[[steps]]\nname = \"plan\"\nagent = \"plan\"\nprompt = \"Plan.\"\n\
             [[steps]]\nname = \"build\"\nprompt = \"{{steps.plan.output}}\"\nrepeat = 3\nchecks = \"true\"\n\
             when = \"{{steps.plan.output}} != none\"\nuntil = \"{{steps.build.output}} contains done\"\n",
        );
        let pipeline = pipeline.unwrap();
        let names: Vec<_> = pipeline.workflow().steps.into_iter().map(|step| step.name).collect();
        assert_eq!(names, ["plan", "build"]);
        assert_eq!(pipeline.steps[0].agent.as_deref(), Some("plan"));
        assert_eq!(pipeline.steps[1].definition.iterations, 3);
    }

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        let wrong = parse(
            "[[steps]]\nname = \"a b\"\nprompt = \"{{steps.later.output}}\"\nwhen = \"maybe\"\n\
             [[steps]]\nname = \"later\"\npromt = \"x\"\nrepeat = 0\n\
             [[steps]]\nname = \"later\"\nprompt = \"{{steps.later.text}}\"\nuntil = \"1 == 1\"\n\
             [[steps]]\nname = \"each\"\nprompt = \"x\"\nrepeat = 2\nuntil = \"1 == 1\"\nforeach = \"{{steps.none.output}}\"\nparallel = 33\n\
             [[steps]]\nname = \"alone\"\nprompt = \"x\"\nparallel = 2\n",
        );
        let wrong = wrong.unwrap_err();
        let expected = [
            "p.toml:1: `name` has letters",
            "p.toml:1: `prompt` uses `later`, which is not an earlier step",
            "p.toml:4: `when`: write a comparison",
            "p.toml:5: `prompt` is missing",
            "p.toml:7: unknown key `promt`",
            "p.toml:8: `repeat` has to be a whole number from 1 to 1000",
            "p.toml:9: `until` needs `repeat`",
            "p.toml:9: the name `later` is used in line 5 already",
            "p.toml:9: `prompt`: `{{steps.later.text}}`",
            "p.toml:13: `foreach` uses `none`, which is not an earlier step",
            "p.toml:15: `prompt` needs {{item}}",
            "p.toml:16: `repeat` can't stand with `foreach`",
            "p.toml:17: `until` can't stand with `foreach`",
            "p.toml:19: `parallel` has to be a whole number from 1 to 32",
            "p.toml:23: `parallel` needs `foreach`",
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
        for (found, expected) in wrong.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }
}

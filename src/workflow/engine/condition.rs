//! Templates in steps: conditions that compare texts with answers of steps, and lists of items.

use serde::Serialize;

use crate::types::word_enum;

/// A comparison of two texts, in which `{{steps.NAME.output}}` is replaced by the answer of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    left: String,
    comparison: ComparisonOperator,
    right: String,
}

word_enum! {
    /// A comparison of two texts. Surrounding spaces are ignored.
    pub enum ComparisonOperator {
        /// The texts are equal.
        Equal = "==",
        /// The texts differ.
        NotEqual = "!=",
        /// Both are numbers, and the left one is not larger.
        AtMost = "<=",
        /// Both are numbers, and the left one is not smaller.
        AtLeast = ">=",
        /// Both are numbers, and the left one is smaller.
        Less = "<",
        /// Both are numbers, and the left one is larger.
        Greater = ">",
        /// The left text contains the right one.
        Contains = "contains",
        /// The left text does not contain the right one.
        Lacks = "lacks",
    }
}

impl ComparisonOperator {
    fn compares_numbers(self) -> bool {
        match self {
            Self::AtMost | Self::AtLeast | Self::Less | Self::Greater => true,
            Self::Equal | Self::NotEqual | Self::Contains | Self::Lacks => false,
        }
    }
}

/// The beginning and the end of a placeholder.
const PLACEHOLDER: [&str; 2] = ["{{", "}}"];

/// The name in the placeholder for an item.
const ITEM: &str = "item";

impl Condition {
    /// Parses a condition, such as `{{steps.review.output}} contains BUG`. The texts may be in quotation marks.
    ///
    /// # Errors
    ///
    /// Fails with a description of the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut found = None;
        for comparison in ComparisonOperator::ALL {
            let padded = format!(" {comparison} ");
            if let Some(at) = text.find(&padded)
                && found.is_none_or(|(first, _)| at < first)
            {
                found = Some((at, comparison));
            }
        }
        let Some((at, comparison)) = found.filter(|_| words.len() > 2) else {
            let known = ComparisonOperator::ALL.map(ComparisonOperator::as_str).join(", ");
            return Err(format!(
                "write a comparison: LEFT OPERATOR RIGHT, with spaces around one of {known}"
            ));
        };
        let right = &text[at + comparison.as_str().len() + 2..];
        let condition = Self { left: unquoted(&text[..at]), comparison, right: unquoted(right) };
        if comparison.compares_numbers() {
            let is_wrong =
                |text: &&str| !text.contains(PLACEHOLDER[0]) && text.parse::<f64>().is_err();
            if let Some(text) = condition.texts().into_iter().find(is_wrong) {
                return Err(format!("`{comparison}` compares numbers, and '{text}' is not one"));
            }
        }
        Ok(condition)
    }

    /// Returns both texts, with placeholders.
    pub(super) fn texts(&self) -> [&str; 2] {
        [&self.left, &self.right]
    }

    /// Returns whether the condition holds. `output` returns the answer of a step by its name.
    pub(super) fn holds(&self, output: &dyn Fn(&str) -> String) -> bool {
        let [left, right] = self.texts().map(|text| render(text, None, output));
        let (left, right) = (left.trim(), right.trim());
        let numbers = left.parse::<f64>().ok().zip(right.parse::<f64>().ok());
        let compare = |holds: fn(f64, f64) -> bool| numbers.is_some_and(|(a, b)| holds(a, b));
        match self.comparison {
            ComparisonOperator::Equal => left == right,
            ComparisonOperator::NotEqual => left != right,
            ComparisonOperator::AtMost => compare(|a, b| a <= b),
            ComparisonOperator::AtLeast => compare(|a, b| a >= b),
            ComparisonOperator::Less => compare(|a, b| a < b),
            ComparisonOperator::Greater => compare(|a, b| a > b),
            ComparisonOperator::Contains => left.contains(right),
            ComparisonOperator::Lacks => !left.contains(right),
        }
    }
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inner =
        ['"', '\''].into_iter().find_map(|mark| text.strip_prefix(mark)?.strip_suffix(mark));
    inner.unwrap_or(text).to_owned()
}

/// Returns the names of the steps in a text's placeholders.
///
/// # Errors
///
/// Fails with the first placeholder that begins with `steps.` and does not have the form `steps.NAME.output`.
pub(super) fn step_names(text: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    for part in parts(text) {
        match part {
            TemplatePart::Output(name) => names.push(name),
            TemplatePart::Unknown(inner) => {
                return Err(format!("`{{{{{inner}}}}}`: write {{{{steps.NAME.output}}}}"));
            }
            TemplatePart::Text(_) | TemplatePart::Item(_) => {}
        }
    }
    Ok(names)
}

/// Returns whether a text has a placeholder for an item.
pub(super) fn has_item(text: &str) -> bool {
    parts(text).iter().any(|part| matches!(part, TemplatePart::Item(_)))
}

/// Replaces the placeholders of a text by the answers of steps and, if given, the item. Placeholders within answers and
/// items are not replaced.
pub(super) fn render(text: &str, item: Option<&str>, output: &dyn Fn(&str) -> String) -> String {
    let render = |part| match (part, item) {
        (TemplatePart::Text(text), _) => text.to_owned(),
        (TemplatePart::Output(name), _) => output(name),
        (TemplatePart::Item(_), Some(item)) => item.to_owned(),
        (TemplatePart::Unknown(inner), _) | (TemplatePart::Item(inner), None) => {
            [PLACEHOLDER[0], inner, PLACEHOLDER[1]].concat()
        }
    };
    parts(text).into_iter().map(render).collect()
}

/// A part of a template.
enum TemplatePart<'a> {
    Text(&'a str),
    /// The answer of this step.
    Output(&'a str),
    /// The placeholder of an item.
    Item(&'a str),
    /// A placeholder that begins with `steps.` and has another form.
    Unknown(&'a str),
}

fn parts(text: &str) -> Vec<TemplatePart<'_>> {
    let [open, close] = PLACEHOLDER;
    let (mut parts, mut begin, mut from) = (Vec::new(), 0, 0);
    while let Some(start) = text[from..].find(open).map(|at| from + at) {
        let Some(length) = text[start..].find(close) else { break };
        let inner = &text[start + open.len()..start + length];
        from = start + open.len();
        // Other braces are part of the text.
        let part = match (inner.trim(), inner.trim().strip_prefix("steps.")) {
            (ITEM, _) => TemplatePart::Item(inner),
            (_, None) => continue,
            (_, Some(path)) => match path.strip_suffix(".output") {
                Some(name) if !name.is_empty() => TemplatePart::Output(name),
                Some(_) | None => TemplatePart::Unknown(inner),
            },
        };
        parts.push(TemplatePart::Text(&text[begin..start]));
        parts.push(part);
        from = start + length + close.len();
        begin = from;
    }
    parts.push(TemplatePart::Text(&text[begin..]));
    parts
}

/// The maximum number of items of a step.
pub const MAX_ITEMS: u32 = 100;

/// Returns the items of a list: its non-empty lines, without list markers.
pub(super) fn parse_items(list: &str) -> Vec<String> {
    list.lines().map(without_mark).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Returns a line without surrounding spaces, and without a leading `- `, `* ` or number with a dot.
fn without_mark(line: &str) -> &str {
    let line = line.trim();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let after_mark = match digits {
        0 => line.strip_prefix(['-', '*']),
        _ => line[digits..].strip_prefix('.'),
    };
    match after_mark {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => rest.trim_start(),
        Some(_) | None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(name: &str) -> String {
        match name {
            "count" => " 12\n".to_owned(),
            "review" => "LGTM, but {{steps.count.output}}".to_owned(),
            _ => String::new(),
        }
    }

    #[test]
    fn placeholders_are_replaced_once() {
        for (text, rendered) in [
            ("a {{steps.count.output}}b", "a  12\nb"),
            ("{{ steps.review.output }}", "LGTM, but {{steps.count.output}}"),
            ("{{other}} {{steps.none.output}}", "{{other}} "),
            ("{{ {{steps.count.output}} }}", "{{  12\n }}"),
            ("{{steps.count", "{{steps.count"),
        ] {
            assert_eq!(render(text, None, &output), rendered, "{text}");
        }
        let item = Some("{{steps.count.output}}");
        assert_eq!(
            render("{{ item }}, {{items}}", item, &output),
            "{{steps.count.output}}, {{items}}"
        );
        assert_eq!(render("{{item}}", None, &output), "{{item}}");
        assert!(has_item("a{{item}}") && !has_item("{{items}} item"));
        assert_eq!(step_names("{{steps.a.output}} {{steps.b.output}}").unwrap(), ["a", "b"]);
        assert!(step_names("{{steps.a.text}}").unwrap_err().contains("{{steps.NAME.output}}"));
    }

    #[test]
    fn a_condition_compares_texts_and_numbers() {
        for (text, holds) in [
            ("{{steps.count.output}} == 12", true),
            ("{{steps.count.output}} != '12'", false),
            ("{{steps.count.output}} > 9", true),
            ("{{steps.count.output}} <= 9", false),
            ("{{steps.review.output}} contains LGTM", true),
            ("{{steps.review.output}} lacks \"LGTM\"", false),
            ("{{steps.review.output}} < 9", false),
            ("{{steps.none.output}} == ''", true),
        ] {
            assert_eq!(Condition::parse(text).unwrap().holds(&output), holds, "{text}");
        }
        for wrong in ["", "a", "a==b", "a ==", "a is b", "{{steps.count.output}} > many"] {
            assert!(Condition::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn marks_of_lists_are_no_part_of_items() {
        let list = "- one\r\n  * two words\n\n12. three\n-\n -4 is a number\n**bold**\n3.5\n1) x\n";
        let items = ["one", "two words", "three", "-4 is a number", "**bold**", "3.5", "1) x"];
        assert_eq!(parse_items(list), items);
        assert!(parse_items(" \n\n").is_empty());
    }
}

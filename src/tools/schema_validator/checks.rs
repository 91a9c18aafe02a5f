//! Applies the keywords of a schema to a value.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher as _, RandomState};

use serde_json::{Map, Number, Value};

use super::compile::escape;
use super::{SchemaDraft, SchemaValidator, SchemaViolation, TooManySteps};

/// The maximum nesting of applied schemas.
pub(super) const MAX_DEPTH: usize = 400;

/// Returns the violations of a validator's schema by a value.
pub(super) fn violations(
    validator: &SchemaValidator,
    schema: &Value,
    value: &Value,
    steps: usize,
) -> Result<Vec<SchemaViolation>, TooManySteps> {
    let mut validation = Validation { validator, steps, depth: 0, path: String::new() };
    let mut found = Vec::new();
    validation.apply(schema, value, &mut found)?;
    Ok(found)
}

struct Validation<'a> {
    validator: &'a SchemaValidator,
    /// The number of remaining steps.
    steps: usize,
    depth: usize,
    /// The part of the value that a schema is applied to, as a JSON Pointer.
    path: String,
}

/// The fields and elements of a value that schemas were applied to.
#[derive(Default)]
struct Evaluated {
    fields: HashSet<String>,
    items: HashSet<usize>,
}

impl Evaluated {
    fn extend(&mut self, other: Self) {
        self.fields.extend(other.fields);
        self.items.extend(other.items);
    }
}

type Violations = Vec<SchemaViolation>;

impl<'a> Validation<'a> {
    /// Applies a schema, and adds the violations.
    fn apply(
        &mut self,
        schema: &'a Value,
        value: &Value,
        found: &mut Violations,
    ) -> Result<Evaluated, TooManySteps> {
        self.steps = self.steps.checked_sub(1).ok_or(TooManySteps)?;
        if self.depth >= MAX_DEPTH {
            return Err(TooManySteps);
        }
        let mut evaluated = Evaluated::default();
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(false) => {
                self.add(found, "is not allowed");
                return Ok(evaluated);
            }
            _ => return Ok(evaluated),
        };
        self.depth += 1;
        if let Some(target) = map.get("$ref").and_then(Value::as_str) {
            let target = self.validator.schema.pointer(target).unwrap_or(&Value::Null);
            self.apply_part(target, value, found, &mut evaluated)?;
            if self.validator.draft.reference_stands_alone() {
                self.depth -= 1;
                return Ok(evaluated);
            }
        }
        self.any(map, value, found);
        match value {
            Value::Number(number) => self.number(map, number, found),
            Value::String(text) => self.string(map, text, found),
            Value::Array(items) => self.array(map, items, found, &mut evaluated)?,
            Value::Object(fields) => self.object(map, fields, found, &mut evaluated)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations(map, value, found, &mut evaluated)?;
        if self.validator.has_unevaluated {
            self.unevaluated(map, value, found, &mut evaluated)?;
        }
        self.depth -= 1;
        Ok(evaluated)
    }

    /// Applies a schema to the same value, and returns whether the value is valid.
    fn apply_part(
        &mut self,
        schema: &'a Value,
        value: &Value,
        found: &mut Violations,
        evaluated: &mut Evaluated,
    ) -> Result<bool, TooManySteps> {
        let before = found.len();
        let inner = self.apply(schema, value, found)?;
        let is_valid = found.len() == before;
        if is_valid {
            evaluated.extend(inner);
        }
        Ok(is_valid)
    }

    /// Applies a schema to a part of the value.
    fn apply_below(
        &mut self,
        schema: &'a Value,
        name: &str,
        value: &Value,
        found: &mut Violations,
    ) -> Result<(), TooManySteps> {
        let end = self.path.len();
        self.path.push('/');
        self.path.push_str(&escape(name));
        self.apply(schema, value, found)?;
        self.path.truncate(end);
        Ok(())
    }

    /// Returns whether a value satisfies a schema.
    fn is_valid(
        &mut self,
        schema: &'a Value,
        value: &Value,
        evaluated: &mut Evaluated,
    ) -> Result<bool, TooManySteps> {
        self.apply_part(schema, value, &mut Vec::new(), evaluated)
    }

    fn add(&self, found: &mut Violations, message: impl Into<String>) {
        found.push(SchemaViolation { path: self.path.clone(), message: message.into() });
    }

    fn any(&self, map: &Map<String, Value>, value: &Value, found: &mut Violations) {
        if let Some(types) = map.get("type") {
            let types = types.as_array().map_or(std::slice::from_ref(types), Vec::as_slice);
            let has_type = |name| has_type(value, name, self.validator.draft);
            if !types.iter().filter_map(Value::as_str).any(has_type) {
                self.add(found, format!("is not of type {}", list(types)));
            }
        }
        if let Some(Value::Array(values)) = map.get("enum")
            && !values.iter().any(|one| is_same(one, value))
        {
            self.add(found, format!("is not one of {}", list(values)));
        }
        if let Some(constant) = map.get("const").filter(|constant| !is_same(constant, value)) {
            self.add(found, format!("is not {constant}"));
        }
    }

    fn number(&self, map: &Map<String, Value>, number: &Number, found: &mut Violations) {
        let is = |limit: &Number, ordering: Ordering| compare(number, limit) == ordering;
        let excludes = |key: &str| map.get(key) == Some(&Value::Bool(true));
        let limit = |key: &str| map.get(key).and_then(Value::as_number);
        if let Some(least) = limit("minimum") {
            let is_excluded = excludes("exclusiveMinimum") && is(least, Ordering::Equal);
            if is(least, Ordering::Less) || is_excluded {
                self.add(found, format!("is less than the minimum of {least}"));
            }
        }
        if let Some(most) = limit("maximum") {
            let is_excluded = excludes("exclusiveMaximum") && is(most, Ordering::Equal);
            if is(most, Ordering::Greater) || is_excluded {
                self.add(found, format!("is greater than the maximum of {most}"));
            }
        }
        if let Some(least) = limit("exclusiveMinimum").filter(|least| !is(least, Ordering::Greater))
        {
            self.add(found, format!("is not greater than {least}"));
        }
        if let Some(most) = limit("exclusiveMaximum").filter(|most| !is(most, Ordering::Less)) {
            self.add(found, format!("is not less than {most}"));
        }
        if let Some(factor) = limit("multipleOf").filter(|factor| !is_multiple(number, factor)) {
            self.add(found, format!("is not a multiple of {factor}"));
        }
    }

    fn string(&self, map: &Map<String, Value>, text: &str, found: &mut Violations) {
        if map.contains_key("minLength") || map.contains_key("maxLength") {
            self.count(map, ["minLength", "maxLength"], text.chars().count(), "characters", found);
        }
        if let Some(Value::String(pattern)) = map.get("pattern")
            && !self.validator.matches(pattern, text)
        {
            self.add(found, format!("does not match {pattern:?}"));
        }
        // In later drafts, formats are annotations only.
        if let (true, Some(Value::String(format))) =
            (self.validator.draft <= SchemaDraft::Draft7, map.get("format"))
            && !has_format(text, format)
        {
            self.add(found, format!("is not a {format}"));
        }
    }

    fn count(
        &self,
        map: &Map<String, Value>,
        [least, most]: [&str; 2],
        count: usize,
        of: &str,
        found: &mut Violations,
    ) {
        if let Some(least) = limit(map, least).filter(|least| count < *least) {
            self.add(found, format!("has fewer than {least} {of}"));
        }
        if let Some(most) = limit(map, most).filter(|most| count > *most) {
            self.add(found, format!("has more than {most} {of}"));
        }
    }

    fn array(
        &mut self,
        map: &'a Map<String, Value>,
        items: &[Value],
        found: &mut Violations,
        evaluated: &mut Evaluated,
    ) -> Result<(), TooManySteps> {
        self.count(map, ["minItems", "maxItems"], items.len(), "elements", found);
        if map.get("uniqueItems") == Some(&Value::Bool(true)) && self.has_equal(items)? {
            self.add(found, "has elements that are equal");
        }
        // Up to draft 2019-09, a list in `items` applies to the first elements.
        let (first, rest) = match map.get("items") {
            Some(Value::Array(first)) => (Some(first), map.get("additionalItems")),
            rest => (map.get("prefixItems").and_then(Value::as_array), rest),
        };
        let first = first.map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or(rest) {
                self.apply_below(schema, &index.to_string(), item, found)?;
                evaluated.items.extend(self.validator.has_unevaluated.then_some(index));
            }
        }
        if let Some(schema) = map.get("contains") {
            self.contains(map, schema, items, found, evaluated)?;
        }
        Ok(())
    }

    fn contains(
        &mut self,
        map: &Map<String, Value>,
        schema: &'a Value,
        items: &[Value],
        found: &mut Violations,
        evaluated: &mut Evaluated,
    ) -> Result<(), TooManySteps> {
        let mut count = 0;
        for (index, item) in items.iter().enumerate() {
            if self.is_valid(schema, item, &mut Evaluated::default())? {
                count += 1;
                if self.validator.draft >= SchemaDraft::Draft202012 {
                    evaluated.items.insert(index);
                }
            }
        }
        let of_draft =
            |key| limit(map, key).filter(|_| self.validator.draft >= SchemaDraft::Draft201909);
        let least = of_draft("minContains").unwrap_or(1);
        if count < least {
            self.add(found, format!("has fewer than {least} elements that 'contains' asks for"));
        }
        if let Some(most) = of_draft("maxContains").filter(|most| count > *most) {
            self.add(found, format!("has more than {most} elements of 'contains'"));
        }
        Ok(())
    }

    /// Returns whether two of these values are equal. Each value takes a step, and so does each comparison.
    fn has_equal(&mut self, items: &[Value]) -> Result<bool, TooManySteps> {
        let hasher = RandomState::new();
        let mut seen: HashMap<u64, Vec<&Value>> = HashMap::new();
        for item in items {
            let with_same_hash = seen.entry(hash_value(item, &hasher)).or_default();
            self.steps = self.steps.checked_sub(1 + with_same_hash.len()).ok_or(TooManySteps)?;
            if with_same_hash.iter().any(|one| is_same(one, item)) {
                return Ok(true);
            }
            with_same_hash.push(item);
        }
        Ok(false)
    }

    fn object(
        &mut self,
        map: &'a Map<String, Value>,
        fields: &Map<String, Value>,
        found: &mut Violations,
        evaluated: &mut Evaluated,
    ) -> Result<(), TooManySteps> {
        self.count(map, ["minProperties", "maxProperties"], fields.len(), "properties", found);
        self.required(map.get("required"), fields, found);
        for (name, field) in fields {
            let mut is_known = false;
            if let Some(schema) = map.get("properties").and_then(|properties| properties.get(name))
            {
                is_known = true;
                self.apply_below(schema, name, field, found)?;
            }
            for (pattern, schema) in
                map.get("patternProperties").and_then(Value::as_object).into_iter().flatten()
            {
                if self.validator.matches(pattern, name) {
                    is_known = true;
                    self.apply_below(schema, name, field, found)?;
                }
            }
            match map.get("additionalProperties").filter(|_| !is_known) {
                Some(Value::Bool(false)) => self.add(
                    found,
                    format!("Additional properties are not allowed ({name:?} was unexpected)"),
                ),
                Some(schema) => {
                    is_known = true;
                    self.apply_below(schema, name, field, found)?;
                }
                None => {}
            }
            if is_known && self.validator.has_unevaluated {
                evaluated.fields.insert(name.clone());
            }
            if let Some(schema) = map.get("propertyNames") {
                let mut wrong = Vec::new();
                self.apply(schema, &Value::String(name.clone()), &mut wrong)?;
                found.extend(wrong.into_iter().map(|violation| SchemaViolation {
                    message: format!("the name {name:?} {}", violation.message),
                    ..violation
                }));
            }
        }
        for keyword in ["dependencies", "dependentSchemas", "dependentRequired"] {
            for (name, needed) in map.get(keyword).and_then(Value::as_object).into_iter().flatten()
            {
                match needed {
                    _ if !fields.contains_key(name) => {}
                    Value::Array(_) => self.required(Some(needed), fields, found),
                    schema => {
                        let fields = Value::Object(fields.clone());
                        self.apply_part(schema, &fields, found, evaluated)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn required(&self, names: Option<&Value>, fields: &Map<String, Value>, found: &mut Violations) {
        let names = names.and_then(Value::as_array).into_iter().flatten();
        for name in names.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name)) {
            self.add(found, format!("{name:?} is a required property"));
        }
    }

    fn combinations(
        &mut self,
        map: &'a Map<String, Value>,
        value: &Value,
        found: &mut Violations,
        evaluated: &mut Evaluated,
    ) -> Result<(), TooManySteps> {
        let list = |key| map.get(key).and_then(Value::as_array).map(Vec::as_slice);
        for schema in list("allOf").unwrap_or_default() {
            self.apply_part(schema, value, found, evaluated)?;
        }
        for key in ["anyOf", "oneOf"] {
            let Some(schemas) = list(key) else { continue };
            let mut count = 0;
            for schema in schemas {
                count += usize::from(self.is_valid(schema, value, evaluated)?);
            }
            if count == 0 {
                self.add(found, format!("is not valid under any of the schemas in '{key}'"));
            } else if count > 1 && key == "oneOf" {
                self.add(found, "is valid under more than one of the schemas in 'oneOf'");
            }
        }
        if let Some(schema) = map.get("not")
            && self.is_valid(schema, value, &mut Evaluated::default())?
        {
            self.add(found, format!("is valid under {schema}, which 'not' excludes"));
        }
        if let Some(condition) = map.get("if") {
            let key = if self.is_valid(condition, value, evaluated)? { "then" } else { "else" };
            if let Some(schema) = map.get(key) {
                self.apply_part(schema, value, found, evaluated)?;
            }
        }
        Ok(())
    }

    /// Applies schemas to the fields and elements that no other keyword has evaluated.
    fn unevaluated(
        &mut self,
        map: &'a Map<String, Value>,
        value: &Value,
        found: &mut Violations,
        evaluated: &mut Evaluated,
    ) -> Result<(), TooManySteps> {
        if let (Some(schema), Value::Array(items)) = (map.get("unevaluatedItems"), value) {
            for (index, item) in items.iter().enumerate() {
                if evaluated.items.insert(index) {
                    self.apply_below(schema, &index.to_string(), item, found)?;
                }
            }
        }
        if let (Some(schema), Value::Object(fields)) = (map.get("unevaluatedProperties"), value) {
            for (name, field) in fields {
                if evaluated.fields.insert(name.clone()) {
                    self.apply_below(schema, name, field, found)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns a limit on a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked when the schema was compiled"
)]
fn limit(map: &Map<String, Value>, key: &str) -> Option<usize> {
    map.get(key)?.as_f64().map(|count| count as usize)
}

fn has_type(value: &Value, name: &str, draft: SchemaDraft) -> bool {
    match (name, value) {
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("string", Value::String(_))
        | ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => {
            let is_whole = |number: f64| number.fract() == 0.0 && draft > SchemaDraft::Draft4;
            integer(number).is_some() || number.as_f64().is_some_and(is_whole)
        }
        _ => false,
    }
}

fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "email" => {
            text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        }
        _ => true,
    }
}

/// Returns values separated by commas.
fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Compares numbers; unless both are integers, as floating-point numbers.
pub(super) fn compare(one: &Number, other: &Number) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
    }
}

/// Returns whether values are equal: numbers by value, and objects in any order.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other) == Ordering::Equal,
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has_same =
                |(name, value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(has_same)
        }
        _ => one == other,
    }
}

/// Returns a hash that is the same for values that are equal by [`is_same`].
fn hash_value(value: &Value, hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    std::mem::discriminant(value).hash(&mut state);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(&mut state),
        // Zero has two representations.
        Value::Number(number) => (number.as_f64().unwrap_or(0.0) + 0.0).to_bits().hash(&mut state),
        Value::String(text) => text.hash(&mut state),
        Value::Array(items) => {
            items.iter().for_each(|item| hash_value(item, hasher).hash(&mut state));
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let hashes =
                fields.map(|(name, value)| hasher.hash_one((name, hash_value(value, hasher))));
            hashes.fold(0, u64::wrapping_add).hash(&mut state);
        }
    }
    state.finish()
}

/// Returns whether a number is a multiple of another one, within the precision of floating point.
fn is_multiple(number: &Number, factor: &Number) -> bool {
    if let (Some(number), Some(factor)) = (integer(number), integer(factor)) {
        return factor != 0 && number % factor == 0;
    }
    let quotient = number.as_f64().unwrap_or(0.0) / factor.as_f64().unwrap_or(1.0);
    (quotient - quotient.round()).abs() <= f64::EPSILON * 8.0 * quotient.abs().max(1.0)
}

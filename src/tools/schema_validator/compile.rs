//! Checks a schema, compiles its patterns, and resolves its references.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{SchemaDraft, SchemaError, SchemaValidator, pattern};

/// The form of a keyword's value.
enum Form {
    Schema,
    /// A schema or a list of them.
    Schemas,
    SchemaList,
    /// A schema for each name.
    NamedSchemas,
    /// A schema, or a list of names, for each name.
    Dependencies,
    Number,
    Count,
    Bool,
    /// A limit: a number, and up to draft 4, whether the limit itself is excluded.
    ExclusiveLimit,
    String,
    Names,
    List,
    Types,
    Pattern,
    Unsupported,
    Other,
}

fn form(keyword: &str) -> Form {
    match keyword {
        "additionalProperties"
        | "unevaluatedProperties"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "not"
        | "if"
        | "then"
        | "else"
        | "propertyNames" => Form::Schema,
        "items" => Form::Schemas,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Form::SchemaList,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            Form::NamedSchemas
        }
        "dependencies" => Form::Dependencies,
        "minimum" | "maximum" | "multipleOf" => Form::Number,
        "exclusiveMinimum" | "exclusiveMaximum" => Form::ExclusiveLimit,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => Form::Count,
        "uniqueItems" => Form::Bool,
        "$ref" | "$id" | "$anchor" | "format" => Form::String,
        "required" => Form::Names,
        "enum" => Form::List,
        "type" => Form::Types,
        "pattern" => Form::Pattern,
        "$dynamicRef" | "$recursiveRef" => Form::Unsupported,
        _ => Form::Other,
    }
}

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// The maximum nesting of a schema.
const MAX_DEPTH: usize = 200;

/// A schema with a reference.
struct Reference {
    /// The location of the schema, as a JSON Pointer.
    at: String,
    /// The reference, resolved against the base address of the schema.
    address: String,
}

#[derive(Default)]
struct Compiler {
    /// Schemas by address: documents without a fragment, anchors with one.
    addresses: HashMap<String, String>,
    visited: HashSet<String>,
    references: Vec<Reference>,
    patterns: HashMap<String, regex_automata::meta::Regex>,
    has_unevaluated: bool,
    draft: Option<SchemaDraft>,
}

pub(super) fn compile(schema: &Value) -> Result<SchemaValidator, SchemaError> {
    let draft = SchemaDraft::of(schema);
    let mut compiler = Compiler { draft: Some(draft), ..Compiler::default() };
    compiler.addresses.insert(String::new(), String::new());
    compiler.visit(schema, "", "", 0)?;
    let mut resolved = schema.clone();
    // A reference may lead to a schema that is not inside any keyword, and that has references itself.
    let mut next = 0;
    while let Some(Reference { at, address }) = compiler.references.get(next) {
        let target = compiler.resolve(address).filter(|target| schema.pointer(target).is_some());
        let Some(target) = target else {
            let what = format!("the reference to {address:?} leads to nothing in the schema");
            return Err(error(at, &what));
        };
        if let Some(schema) = resolved.pointer_mut(at) {
            schema["$ref"] = target.clone().into();
        }
        if let (false, Some(found)) = (compiler.visited.contains(&target), schema.pointer(&target))
        {
            let base = address.split('#').next().unwrap_or_default().to_owned();
            compiler.visit(found, &target, &base, 0)?;
        }
        next += 1;
    }
    let Compiler { patterns, has_unevaluated, .. } = compiler;
    Ok(SchemaValidator { schema: resolved, draft, patterns, has_unevaluated })
}

impl Compiler {
    /// Visits a schema and its inner schemas.
    fn visit(
        &mut self,
        schema: &Value,
        at: &str,
        base: &str,
        depth: usize,
    ) -> Result<(), SchemaError> {
        if depth > MAX_DEPTH {
            return Err(error(at, "nests too deep"));
        }
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return Ok(()),
            _ => return Err(error(at, "a schema has to be an object, true or false")),
        };
        if !self.visited.insert(at.to_owned()) {
            return Ok(());
        }
        let draft = self.draft.unwrap_or(SchemaDraft::Draft202012);
        let reference = map.get("$ref").and_then(Value::as_str);
        let base = self.base(map, at, base, draft);
        if let Some(reference) = reference {
            let address = join(&base, reference);
            self.references.push(Reference { at: at.to_owned(), address });
            if draft.reference_stands_alone() {
                // Siblings of the reference are ignored, but may contain definitions.
                for keyword in ["definitions", "$defs"] {
                    if let Some(value) = map.get(keyword) {
                        self.keyword(keyword, value, &format!("{at}/{keyword}"), &base, depth)?;
                    }
                }
                return Ok(());
            }
        }
        for (keyword, value) in map {
            self.keyword(keyword, value, &format!("{at}/{}", escape(keyword)), &base, depth)?;
        }
        Ok(())
    }

    /// Returns the base address inside a schema, and stores the addresses that the schema is known by.
    fn base(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        base: &str,
        draft: SchemaDraft,
    ) -> String {
        let mut base = base.to_owned();
        let key = if draft == SchemaDraft::Draft4 { "id" } else { "$id" };
        let is_ignored = draft.reference_stands_alone() && map.contains_key("$ref");
        if let (Some(id), false) = (map.get(key).and_then(Value::as_str), is_ignored) {
            let address = join(&base, id);
            let address = address.strip_suffix('#').unwrap_or(&address);
            self.addresses.entry(address.to_owned()).or_insert_with(|| at.to_owned());
            if !id.starts_with('#') {
                address.clone_into(&mut base);
            }
        }
        for anchor in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = map.get(anchor).and_then(Value::as_str) {
                self.addresses.insert(format!("{base}#{name}"), at.to_owned());
            }
        }
        base
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        at: &str,
        base: &str,
        depth: usize,
    ) -> Result<(), SchemaError> {
        let depth = depth + 1;
        let expected = match (form(keyword), value) {
            (Form::Schema | Form::Schemas, Value::Object(_) | Value::Bool(_)) => {
                self.has_unevaluated |= keyword.starts_with("unevaluated");
                return self.visit(value, at, base, depth);
            }
            (Form::Schemas | Form::SchemaList, Value::Array(schemas)) => {
                for (index, schema) in schemas.iter().enumerate() {
                    self.visit(schema, &format!("{at}/{index}"), base, depth)?;
                }
                return Ok(());
            }
            (Form::NamedSchemas | Form::Dependencies, Value::Object(named)) => {
                for (name, schema) in named {
                    let at = format!("{at}/{}", escape(name));
                    if keyword == "patternProperties" {
                        self.add_pattern(name, &at)?;
                    }
                    if !(keyword == "dependencies" && is_names(schema)) {
                        self.visit(schema, &at, base, depth)?;
                    }
                }
                return Ok(());
            }
            (Form::Pattern, Value::String(pattern)) => return self.add_pattern(pattern, at),
            (Form::Number | Form::ExclusiveLimit, Value::Number(number)) => {
                let is_invalid = keyword == "multipleOf" && number.as_f64() <= Some(0.0);
                if is_invalid { "a number above zero" } else { return Ok(()) }
            }
            (Form::ExclusiveLimit | Form::Bool, Value::Bool(_))
            | (Form::String, Value::String(_))
            | (Form::List, Value::Array(_))
            | (Form::Other, _) => return Ok(()),
            (Form::Count, count)
                if count.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0) =>
            {
                return Ok(());
            }
            (Form::Names, names) if is_names(names) => return Ok(()),
            (Form::Types, types) if is_types(types) => return Ok(()),
            (Form::Unsupported, _) => {
                return Err(error(at, "dynamic references are not supported"));
            }
            (Form::Schema | Form::Schemas, _) => "a schema",
            (Form::SchemaList, _) => "a list of schemas",
            (Form::NamedSchemas | Form::Dependencies, _) => "an object of schemas",
            (Form::Number | Form::ExclusiveLimit, _) => "a number",
            (Form::Count, _) => "a number of 0 or more without a fraction",
            (Form::Bool, _) => "true or false",
            (Form::String | Form::Pattern, _) => "a string",
            (Form::Names, _) => "a list of names",
            (Form::List, _) => "a list",
            (Form::Types, _) => {
                "string, number, integer, boolean, array, object or null, or a list of these"
            }
        };
        Err(error(at, &format!("has to be {expected}")))
    }

    fn add_pattern(&mut self, text: &str, at: &str) -> Result<(), SchemaError> {
        if !self.patterns.contains_key(text) {
            let compiled = pattern::compile(text);
            let invalid =
                || error(at, &format!("the pattern {text:?} is invalid, or not supported"));
            self.patterns.insert(text.to_owned(), compiled.ok_or_else(invalid)?);
        }
        Ok(())
    }

    /// Returns the location of the schema with an address, as a JSON Pointer.
    fn resolve(&self, address: &str) -> Option<String> {
        let (document, fragment) = address.split_once('#').unwrap_or((address, ""));
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.addresses.get(address).cloned();
        }
        let root = self.addresses.get(document)?;
        let path = percent_encoding::percent_decode_str(fragment).decode_utf8().ok()?;
        Some(format!("{root}{path}"))
    }
}

fn error(path: &str, message: &str) -> SchemaError {
    SchemaError { path: path.to_owned(), message: message.to_owned() }
}

fn is_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

fn is_types(value: &Value) -> bool {
    let is_type = |one: &Value| one.as_str().is_some_and(|name| TYPES.contains(&name));
    is_type(value) || value.as_array().is_some_and(|types| types.iter().all(is_type))
}

/// Escapes a name for a JSON Pointer.
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Resolves a reference against the address of its document.
fn join(base: &str, reference: &str) -> String {
    if reference.starts_with('#') {
        return format!("{base}{reference}");
    }
    let scheme = base.find(':').map_or(0, |colon| colon + 1);
    let is_absolute = reference.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char))
    });
    let path = base[scheme..]
        .strip_prefix("//")
        .map_or(scheme, |rest| scheme + 2 + rest.find('/').unwrap_or(rest.len()));
    match reference {
        _ if is_absolute => reference.to_owned(),
        _ if reference.starts_with("//") => format!("{}{reference}", &base[..scheme]),
        _ if reference.starts_with('/') => format!("{}{reference}", &base[..path]),
        _ => match base[path..].rfind('/') {
            Some(end) => format!("{}{reference}", &base[..=path + end]),
            None if path > scheme => format!("{base}/{reference}"),
            None => reference.to_owned(),
        },
    }
}

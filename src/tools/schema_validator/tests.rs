use serde_json::{Value, json};

use super::*;

const STEPS: usize = 100_000;

fn messages(schema: &Value, value: &Value) -> Vec<String> {
    let validator = SchemaValidator::new(schema).unwrap();
    let violations = validator.violations(value, STEPS).unwrap();
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn a_violation_says_where_and_what() {
    let schema = json!({ "type": "object", "required": ["n", "m"], "properties": {
        "n": { "type": "integer", "minimum": 3 }, "a/b": { "items": { "enum": ["x", 1] } },
        "s": { "maxLength": 2, "pattern": "^a" },
    } });
    let value = json!({ "n": 1, "a/b": ["x", "y"], "s": "bcd" });
    assert_eq!(
        messages(&schema, &value),
        [
            "\"m\" is a required property",
            "/n: is less than the minimum of 3",
            "/a~1b/1: is not one of \"x\", 1",
            "/s: has more than 2 characters",
            "/s: does not match \"^a\"",
        ]
    );
}

/// Returns schemas, each of which is applied to all values.
fn schemas() -> Vec<Value> {
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    let draft_4 = "http://json-schema.org/draft-04/schema#";
    vec![
        json!(true),
        json!(false),
        json!({ "type": ["integer", "null"] }),
        json!({ "enum": [1, "a", [1.0], { "a": 1, "b": 2 }] }),
        json!({ "const": { "b": 2, "a": 1 } }),
        json!({ "minimum": 1, "exclusiveMaximum": 2.5 }),
        json!({ "exclusiveMinimum": 1, "maximum": 18_446_744_073_709_551_614_u64 }),
        json!({ "multipleOf": 0.1 }),
        json!({ "multipleOf": 2 }),
        json!({ "minLength": 2, "maxLength": 3 }),
        json!({ "pattern": "^\\w+\\d$|[[&&]" }),
        json!({ "minItems": 1, "maxItems": 2, "uniqueItems": true }),
        json!({ "prefixItems": [{ "type": "string" }], "items": { "type": "integer" } }),
        json!({ "contains": { "type": "integer" }, "minContains": 2, "maxContains": 2 }),
        json!({ "contains": { "const": "a" } }),
        json!({ "minContains": 0, "contains": false }),
        json!({ "required": ["a"], "minProperties": 2, "maxProperties": 2 }),
        json!({ "properties": { "a": { "type": "integer" } }, "patternProperties": { "^b": true }, "additionalProperties": false }),
        json!({ "propertyNames": { "maxLength": 1 } }),
        json!({ "dependentRequired": { "a": ["b"] }, "dependentSchemas": { "b": { "required": ["a"] } } }),
        json!({ "allOf": [{ "minimum": 1 }, { "type": "number" }] }),
        json!({ "anyOf": [{ "type": "string" }, { "minimum": 2 }] }),
        json!({ "oneOf": [{ "type": "integer" }, { "minimum": 2 }, { "type": "string" }] }),
        json!({ "not": { "type": "object" } }),
        json!({ "if": { "type": "string" }, "then": { "minLength": 2 }, "else": { "not": { "const": 1 } } }),
        json!({ "allOf": [{ "properties": { "a": true } }], "unevaluatedProperties": false }),
        json!({ "anyOf": [{ "required": ["a"], "properties": { "a": { "type": "integer" } } }, true], "unevaluatedProperties": { "type": "null" } }),
        json!({ "prefixItems": [true], "contains": { "type": "string" }, "unevaluatedItems": false }),
        json!({ "$ref": "#/$defs/tree", "minProperties": 1, "$defs": { "tree": { "additionalProperties": { "$ref": "#/$defs/tree" }, "type": ["object", "integer"] } } }),
        json!({ "$id": "https://example.com/root.json", "properties": { "a": { "$ref": "part.json" } }, "$defs": { "p": { "$id": "part.json", "$ref": "#/$defs/q", "$defs": { "q": { "type": "integer" } } } } }),
        json!({ "properties": { "a": { "$ref": "#named" } }, "$defs": { "p": { "$anchor": "named", "type": "string" } } }),
        json!({ "properties": { "a": { "$ref": "#/x~1y/%7E0" } }, "x/y": { "~": { "$ref": "#/x~1y/z" }, "z": { "minimum": 2 } } }),
        json!({ "$schema": draft_7, "items": [{ "type": "string" }, true], "additionalItems": { "type": "integer" } }),
        json!({ "$schema": draft_7, "properties": { "a": { "$ref": "#/definitions/n", "type": "string" } }, "definitions": { "n": { "type": "integer" } } }),
        json!({ "$schema": draft_7, "dependencies": { "a": ["b"], "b": { "required": ["a"] } } }),
        json!({ "$schema": draft_7, "format": "date", "properties": { "a": { "format": "ipv4" } } }),
        json!({ "$schema": draft_4, "minimum": 1, "exclusiveMinimum": true, "maximum": 2, "exclusiveMaximum": true }),
    ]
}

/// Returns values of all types, and containers of them.
fn values() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(2),
        json!(2.5),
        json!(0.3),
        json!(-4),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(""),
        json!("a"),
        json!("ab"),
        json!("ä€c"),
        json!("w0rd9"),
        json!("[&"),
        json!("2024-02-30"),
        json!("2024-02-29"),
        json!("127.0.0.1"),
        json!([]),
        json!({}),
    ];
    let simple = values.clone();
    for one in &simple {
        values.push(json!([one]));
        values.push(json!({ "a": one }));
        values.push(json!({ "long": one }));
        for other in &simple[..8] {
            values.push(json!([one, other]));
            values.push(json!(["a", other, one]));
            values.push(json!({ "a": one, "b": other }));
        }
    }
    values.push(json!({ "a": { "b": { "c": 1 } } }));
    values.push(json!({ "a": { "b": { "c": "x" } } }));
    values.push(json!([{ "a": 1, "b": [1] }, { "b": [1.0], "a": 1.0 }]));
    values
}

#[test]
fn the_outcome_is_that_of_another_implementation() {
    let (values, mut differences) = (values(), Vec::new());
    for schema in schemas() {
        let other = jsonschema::validator_for(&schema).unwrap();
        let validator = SchemaValidator::new(&schema).unwrap();
        for value in &values {
            let violations = validator.violations(value, STEPS).unwrap();
            if violations.is_empty() != other.is_valid(value) {
                differences.push(format!("{schema} {value}: {violations:?}"));
            }
        }
    }
    assert_eq!(differences, Vec::<String>::new());
}

#[test]
fn an_invalid_schema_is_an_error_with_its_place() {
    for (schema, expected) in [
        (json!(7), "a schema has to be an object, true or false"),
        (
            json!({ "type": "text" }),
            "/type: has to be string, number, integer, boolean, array, object or null, or a list of these",
        ),
        (
            json!({ "properties": { "a": { "minLength": -1 } } }),
            "/properties/a/minLength: has to be a number of 0 or more without a fraction",
        ),
        (json!({ "anyOf": { "type": "null" } }), "/anyOf: has to be a list of schemas"),
        (json!({ "required": "a" }), "/required: has to be a list of names"),
        (
            json!({ "items": { "pattern": "(?=a)b" } }),
            "/items/pattern: the pattern \"(?=a)b\" is invalid, or not supported",
        ),
        (
            json!({ "$ref": "https://example.com/s.json" }),
            ": the reference to \"https://example.com/s.json\" leads to nothing in the schema",
        ),
        (json!({ "$dynamicRef": "#a" }), "/$dynamicRef: dynamic references are not supported"),
    ] {
        let Err(error) = SchemaValidator::new(&schema) else { panic!("{schema} is valid") };
        assert_eq!(error.to_string(), expected.trim_start_matches(": "));
    }
}

/// Data is not interpreted as a schema, whatever its form.
#[test]
fn data_is_not_taken_for_schemas() {
    let data = json!({ "$ref": "#/nowhere", "type": 7 });
    let value = json!({ "$ref": data });
    let schema =
        json!({ "enum": [value], "default": data, "properties": { "$ref": { "const": data } } });
    assert_eq!(messages(&schema, &value), Vec::<String>::new());
}

#[test]
fn long_lists_are_searched_for_equal_elements() {
    let validator = SchemaValidator::new(&json!({ "uniqueItems": true })).unwrap();
    let is_unique =
        |items: &[Value]| validator.violations(&json!(items), 2 * STEPS + 10).unwrap().is_empty();
    let integers: Vec<Value> = (0..100_000).map(Value::from).collect();
    let objects: Vec<Value> = (0..10_000).map(|n| json!({ "a": n, "b": [n, null] })).collect();
    let with = |items: &[Value], more: Value| [items, &[more]].concat();
    assert!(is_unique(&integers) && is_unique(&objects));
    for equal in [json!(99_999), json!(7.0), json!(-0.0)] {
        assert!(!is_unique(&with(&integers, equal.clone())), "{equal}");
    }
    assert!(!is_unique(&with(&objects, json!({ "b": [7.0, null], "a": 7 }))));
    assert!(is_unique(&with(&objects, json!({ "a": 7, "b": [null, 7] }))));
    // As floating-point numbers, these would be equal.
    assert!(is_unique(&[json!(u64::MAX), json!(u64::MAX - 1)]));
}

#[test]
fn a_schema_that_no_value_satisfies_is_found() {
    let object = |fields: Value, more: Value| {
        let mut schema = json!({ "type": "object", "required": ["a"], "properties": fields });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    for (schema, reason) in [
        (json!(false), "it is false"),
        (json!({ "$ref": "#" }), "it refers to itself without end"),
        (json!({ "anyOf": [{ "$ref": "#" }, true] }), "it refers to itself without end"),
        (json!({ "oneOf": [true, { "$ref": "#" }] }), "it refers to itself without end"),
        (json!({ "allOf": [true, false] }), "/allOf/1 is false"),
        (json!({ "anyOf": [false, { "enum": [] }] }), "/anyOf/0 is false"),
        (json!({ "not": {} }), "/not excludes everything"),
        (object(json!({ "a": { "$ref": "#" } }), json!({})), "it contains itself without end"),
        (
            object(json!({ "b": true }), json!({ "additionalProperties": false })),
            "it requires \"a\", which is not in its properties",
        ),
        (
            json!({ "type": "array", "minItems": 1, "items": { "$ref": "#" } }),
            "it contains itself without end",
        ),
        (
            json!({ "type": "number", "minimum": 5, "maximum": 3 }),
            "it excludes all numbers: the minimum 5 and the maximum 3",
        ),
        (
            json!({ "type": "integer", "minimum": 0.2, "maximum": 0.8 }),
            "it excludes all integers by its minimum and maximum",
        ),
        (
            json!({ "type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 4 }),
            "it excludes all multiples of 5 by its minimum and maximum",
        ),
        (
            json!({ "type": "string", "minLength": 5, "maxLength": 3 }),
            "it has a minLength above its maxLength",
        ),
        (
            json!({ "type": "array", "minItems": 2, "maxItems": 1 }),
            "it has a minItems above its maxItems",
        ),
        (
            json!({ "type": "array", "minItems": 1, "prefixItems": [false] }),
            "/prefixItems/0 is false",
        ),
        (
            object(json!({ "a": true }), json!({ "maxProperties": 0 })),
            "it requires more properties than its maxProperties allows",
        ),
        (
            object(json!({ "a": { "type": "string", "const": 1 } }), json!({})),
            "/properties/a/const names no value that satisfies the rest of the schema",
        ),
        (
            json!({ "type": "string", "allOf": [{ "enum": [1, null] }] }),
            "/allOf/0/enum names no value that satisfies the rest of the schema",
        ),
        (json!({ "allOf": [{ "type": "string" }, { "type": "number" }] }), "it allows no type"),
        (json!({ "type": "string", "not": { "type": "string" } }), "it allows no type"),
        (
            json!({ "type": "boolean", "not": { "enum": [true, false] } }),
            "it excludes true and false",
        ),
        (
            json!({ "type": "object", "anyOf": [{ "type": "string" }, { "type": "null" }] }),
            "it allows no type",
        ),
    ] {
        let found = SchemaValidator::new(&schema).unwrap().unsatisfiable(1_000_000);
        assert_eq!(found.as_deref(), Some(reason), "{schema}");
    }
    for schema in [
        json!(true),
        json!({ "properties": { "a": false } }),
        json!({ "anyOf": [false, { "type": "string" }] }),
        object(json!({ "a": { "anyOf": [{ "type": "null" }, { "$ref": "#" }] } }), json!({})),
        json!({ "type": "array", "items": { "$ref": "#" } }),
        json!({ "required": ["a"], "properties": { "a": false } }),
        json!({ "minimum": 5, "maximum": 3 }),
        json!({ "type": ["string", "null"], "minLength": 5, "maxLength": 3 }),
        json!({ "type": "number", "minimum": 0.2, "maximum": 0.8 }),
        json!({ "type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 5 }),
        json!({ "type": "string", "enum": [1, "a"] }),
        object(
            json!({}),
            json!({ "additionalProperties": false, "patternProperties": { "^a": true } }),
        ),
        json!({ "type": "array", "minItems": 1, "prefixItems": [true], "items": false }),
    ] {
        assert_eq!(
            SchemaValidator::new(&schema).unwrap().unsatisfiable(1_000_000),
            None,
            "{schema}"
        );
    }
}

/// Doubling a reference at each level takes 2^30 steps, and a long chain nests too deeply.
#[test]
fn a_schema_that_cannot_be_validated_is_found() {
    let chain = |length: usize, link: &dyn Fn(&str) -> Value| {
        let links = (0..length).map(|at| (format!("s{at}"), link(&format!("#/$defs/s{}", at + 1))));
        let mut definitions: serde_json::Map<_, _> = links.collect();
        definitions.insert(format!("s{length}"), json!({ "type": "string" }));
        let schema = json!({ "$ref": "#/$defs/s0", "$defs": definitions });
        SchemaValidator::new(&schema).unwrap().unsatisfiable(1_000_000)
    };
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let double = |next: &str| json!({ keyword: [{ "$ref": next }, { "$ref": next }] });
        let found = chain(30, &double).unwrap();
        assert_eq!(found, "the validation of any answer takes more than 1000000 steps");
        assert_eq!(chain(3, &double), None, "{keyword}");
    }
    let single = |next: &str| json!({ "$ref": next });
    assert_eq!(chain(50_000, &single).as_deref(), Some("its references nest too deep"));
    assert_eq!(chain(100, &single), None);
}

/// Random schemas of keywords that can exclude each other, with random values.
#[test]
fn a_schema_that_a_value_satisfies_is_never_refused() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(0.5),
        json!(2.5),
        json!(""),
        json!("a"),
        json!("ab"),
        json!([]),
        json!([1]),
        json!(["a", 0]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "a": "a", "b": null }),
        json!({ "c": [] }),
    ];
    let mut refused = 0;
    for _ in 0..400 {
        let mut schema = random_schema(&mut random, 0, &values);
        schema["$defs"] = json!({ "d": random_schema(&mut random, 2, &values) });
        let validator = SchemaValidator::new(&schema).unwrap();
        let Some(reason) = validator.unsatisfiable(1_000_000) else { continue };
        refused += 1;
        for value in &values {
            let found = validator.violations(value, 1_000_000);
            assert_ne!(found, Ok(Vec::new()), "{schema}: {reason}: {value}");
        }
    }
    assert!(refused > 40, "{refused}");
}

fn random_schema(random: &mut impl FnMut(usize) -> usize, depth: u32, values: &[Value]) -> Value {
    let mut schema = json!({});
    let types = ["null", "boolean", "object", "array", "number", "string", "integer"];
    for _ in 0..=random(4) {
        let number = json!([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0][random(7)]);
        let count = json!(random(3));
        let one = values[random(values.len())].clone();
        let mut below = || match random(8) {
            0 => json!(random(2) == 0),
            1 => json!({ "$ref": "#/$defs/d" }),
            _ if depth > 2 => json!({ "type": types[random(7)] }),
            _ => random_schema(random, depth + 1, values),
        };
        let (schemas, single) = (json!([below(), below()]), below());
        let (keyword, value) = match random(24) {
            0..=4 => ("type", json!(types[random(7)])),
            5 => ("minimum", number),
            6 => ("maximum", number),
            7 => ("exclusiveMinimum", number),
            8 => ("exclusiveMaximum", number),
            9 => ("multipleOf", json!(random(3) + 1)),
            10 => ("minLength", count),
            11 => ("maxLength", count),
            12 => ("minItems", count),
            13 => ("maxItems", count),
            14 => ("items", single),
            15 => ("prefixItems", schemas),
            16 => ("required", json!(["a"])),
            17 => ("properties", json!({ "a": single })),
            18 => ("additionalProperties", single),
            19 => ("enum", json!([one, 1])),
            20 => ("not", single),
            21 => ("allOf", schemas),
            22 => ("anyOf", schemas),
            _ => ("oneOf", schemas),
        };
        schema[keyword] = value;
    }
    schema
}

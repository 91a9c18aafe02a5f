//! Metrics of model calls: histograms of their durations and tokens, and their encoding in OTLP.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::span::{OtelSpan, SpanKind, encode_resource, encode_scope, nanos, text_attribute};

/// Bucket boundaries of durations, in seconds, as specified by the conventions.
const DURATION_BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// Bucket boundaries of token counts, as specified by the conventions: powers of four.
const TOKEN_BOUNDS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The attributes that metrics of a model call share with its span.
const SHARED_ATTRIBUTES: [&str; 4] = [
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
];

/// Metrics of the model calls of a run and its sub-agents.
pub(super) struct ModelMetrics {
    durations: Histogram,
    tokens: Histogram,
    /// The period that the metrics cover.
    period: Option<(Timestamp, Timestamp)>,
}

/// A histogram for each set of attributes.
struct Histogram {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    bounds: &'static [f64],
    points: BTreeMap<Vec<(&'static str, String)>, HistogramPoint>,
}

struct HistogramPoint {
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl ModelMetrics {
    /// Returns empty metrics.
    pub(super) fn new() -> Self {
        Self {
            durations: Histogram {
                name: "gen_ai.client.operation.duration",
                description: "GenAI operation duration.",
                unit: "s",
                bounds: &DURATION_BOUNDS,
                points: BTreeMap::new(),
            },
            tokens: Histogram {
                name: "gen_ai.client.token.usage",
                description: "Number of input and output tokens used.",
                unit: "{token}",
                bounds: &TOKEN_BOUNDS,
                points: BTreeMap::new(),
            },
            period: None,
        }
    }

    /// Adds a model call. Other spans are ignored.
    pub(super) fn record(&mut self, span: &OtelSpan) {
        if span.kind != SpanKind::Client {
            return;
        }
        let (start, end) = self.period.unwrap_or((span.started_at, span.ended_at));
        self.period = Some((start.min(span.started_at), end.max(span.ended_at)));
        let attribute = |key: &'static str| Some((key, span.text(key)?.to_owned()));
        let shared: Vec<_> = SHARED_ATTRIBUTES.into_iter().filter_map(attribute).collect();
        for (kind, key) in
            [("input", "gen_ai.usage.input_tokens"), ("output", "gen_ai.usage.output_tokens")]
        {
            if let Some(tokens) = span.text(key).and_then(|tokens| tokens.parse().ok()) {
                let mut attributes = shared.clone();
                attributes.push(("gen_ai.token.type", kind.to_owned()));
                self.tokens.record(attributes, tokens);
            }
        }
        let seconds = span.ended_at.duration_since(span.started_at).as_secs_f64().max(0.0);
        let mut attributes = shared;
        attributes.extend(attribute("error.type"));
        self.durations.record(attributes, seconds);
    }

    /// Returns the body of a request; `None` before the first model call.
    pub(super) fn encode(&self, resource: &[(String, String)]) -> Option<Vec<u8>> {
        let period = self.period?;
        let histograms = [&self.durations, &self.tokens].into_iter();
        let metrics: Vec<Value> = histograms
            .filter(|histogram| !histogram.points.is_empty())
            .map(|histogram| histogram.encode(period))
            .collect();
        let scope_metrics = json!([{ "scope": encode_scope(), "metrics": metrics }]);
        let resource = encode_resource(resource);
        let body =
            json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": scope_metrics }] });
        Some(body.to_string().into_bytes())
    }
}

impl Histogram {
    fn record(&mut self, attributes: Vec<(&'static str, String)>, value: f64) {
        let point = self.points.entry(attributes).or_insert_with(|| HistogramPoint {
            buckets: vec![0; self.bounds.len() + 1],
            count: 0,
            sum: 0.0,
            min: value,
            max: value,
        });
        // A boundary belongs to the bucket below it.
        point.buckets[self.bounds.partition_point(|bound| *bound < value)] += 1;
        point.count += 1;
        point.sum += value;
        point.min = point.min.min(value);
        point.max = point.max.max(value);
    }

    fn encode(&self, (start, end): (Timestamp, Timestamp)) -> Value {
        let point = |(attributes, point): (&Vec<(&str, String)>, &HistogramPoint)| {
            let attributes: Vec<Value> =
                attributes.iter().map(|(key, text)| text_attribute(key, text)).collect();
            let buckets: Vec<String> = point.buckets.iter().map(u64::to_string).collect();
            json!({
                "attributes": attributes,
                "startTimeUnixNano": nanos(start),
                "timeUnixNano": nanos(end),
                "count": point.count.to_string(),
                "sum": point.sum,
                "min": point.min,
                "max": point.max,
                "bucketCounts": buckets,
                "explicitBounds": self.bounds,
            })
        };
        let points: Vec<Value> = self.points.iter().map(point).collect();
        // 2 is cumulative.
        let histogram = json!({ "aggregationTemporality": 2, "dataPoints": points });
        json!({
            "name": self.name,
            "description": self.description,
            "unit": self.unit,
            "histogram": histogram,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_boundary_is_in_the_bucket_below_it() {
        let mut tokens = ModelMetrics::new().tokens;
        for value in [0.0, 1.0, 2.0, 4.0, 67_108_865.0] {
            tokens.record(Vec::new(), value);
        }
        let point = &tokens.points[&Vec::new()];
        assert_eq!(&point.buckets[..3], [2, 2, 0]);
        assert_eq!((point.buckets[14], point.count, point.min), (1, 5, 0.0));
    }
}

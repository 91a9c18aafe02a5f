//! The queries of `architect stats`. Each returns JSON objects, and has one parameter: the earliest creation time.

/// A table of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatisticsTable {
    /// `status`, `stop_reason`, `sessions`. Sub-agents and evaluations don't count as sessions.
    Outcomes,
    /// `kind`, `sessions`: `session`, `subagent`, `eval`.
    Kinds,
    /// `state`, `visits`, `time_ms`, of the same sessions as the outcomes.
    States,
    /// `model`, `llm_calls`, `input_tokens`, `cached_input_tokens`, `output_tokens`, `cost`, `steps`, `retries`, `failures`.
    Models,
    /// `step`, `llm_calls`, `input_tokens`, `cached_input_tokens`, `output_tokens`, `cost`.
    Steps,
    /// `name`, `calls`, `ok`, `denied`, `invalid`, `failed`, `interrupted`, and the percentiles of its time in milliseconds.
    Tools,
    /// `kind`, `count`.
    Failures,
    /// `measure`, `count`, and percentiles.
    Percentiles,
}

/// The sessions of the query.
const ASKED: &str =
    "(SELECT key FROM sessions WHERE coalesce(entry ->> 'created', entry ->> 'modified') >= ?1)";

/// The sessions of the query that neither a sub-agent nor an evaluation ran.
const OWN: &str = "(SELECT key FROM sessions WHERE kind = 'session' AND coalesce(entry ->> 'created', entry ->> 'modified') >= ?1)";

/// Percentiles by nearest rank: `r` is the rank of a value, `n` the number of values.
const RANKS: &str = "'p50', max(value) FILTER (WHERE r = (n * 50 + 99) / 100), \
     'p90', max(value) FILTER (WHERE r = (n * 90 + 99) / 100), \
     'p99', max(value) FILTER (WHERE r = (n * 99 + 99) / 100), 'max', max(value)";

impl StatisticsTable {
    pub(super) fn sql(self) -> String {
        match self {
            Self::Outcomes => format!(
                "SELECT json_object('status', entry ->> 'status', 'stop_reason', entry ->> 'stop_reason', \
                     'sessions', count(*)) \
                 FROM sessions WHERE key IN {OWN} \
                 GROUP BY entry ->> 'status', entry ->> 'stop_reason' \
                 ORDER BY count(*) DESC, entry ->> 'status', entry ->> 'stop_reason'"
            ),
            Self::Kinds => format!(
                "SELECT json_object('kind', kind, 'sessions', count(*)) FROM sessions WHERE key IN {ASKED} \
                 GROUP BY kind ORDER BY kind"
            ),
            Self::States => format!(
                "SELECT json_object('state', state, 'visits', sum(visits), 'time_ms', sum(time) / 1000.0) \
                 FROM states WHERE session IN {OWN} GROUP BY state ORDER BY sum(time) DESC, state"
            ),
            Self::Models => format!(
                "SELECT json_object('model', model, 'llm_calls', sum(calls), 'input_tokens', sum(input), \
                     'cached_input_tokens', sum(cached), 'output_tokens', sum(output), 'cost', sum(cost) / 1e6, \
                     'steps', sum(steps), 'retries', sum(retries), 'failures', sum(failures)) \
                 FROM (SELECT model, 1 AS calls, input, cached, output, cost, step IS NOT NULL AS steps, \
                           attempt > 1 AS retries, 0 AS failures FROM calls WHERE session IN {ASKED} \
                       UNION ALL SELECT model, 0, 0, 0, 0, NULL, 0, attempt > 1, 1 FROM failures \
                           WHERE session IN {ASKED}) \
                 GROUP BY model ORDER BY sum(cost) DESC, model"
            ),
            Self::Steps => format!(
                "SELECT json_object('step', step, 'llm_calls', count(*), 'input_tokens', sum(input), \
                     'cached_input_tokens', sum(cached), 'output_tokens', sum(output), 'cost', sum(cost) / 1e6) \
                 FROM calls WHERE step IS NOT NULL AND session IN {ASKED} GROUP BY step ORDER BY step"
            ),
            Self::Tools => format!(
                "SELECT json_object('name', name, 'calls', count(*), 'ok', sum(status = 'ok'), \
                     'denied', sum(status = 'denied'), \
                     'invalid', sum(status IN ('unknown', 'malformed', 'cut')), \
                     'failed', sum(status IN ('failed', 'timed_out')), \
                     'interrupted', sum(status IN ('skipped', 'interrupted', 'abandoned', 'in_doubt')), {RANKS}) \
                 FROM (SELECT name, status, time / 1000.0 AS value, \
                           row_number() OVER (PARTITION BY name ORDER BY time NULLS LAST) AS r, \
                           count(time) OVER (PARTITION BY name) AS n FROM tools WHERE session IN {ASKED}) \
                 GROUP BY name ORDER BY count(*) DESC, name"
            ),
            Self::Failures => format!(
                "SELECT json_object('kind', kind, 'count', count(*)) FROM failures WHERE session IN {ASKED} \
                 GROUP BY kind ORDER BY count(*) DESC, kind"
            ),
            Self::Percentiles => format!(
                "SELECT json_object('measure', measure, 'count', n, {RANKS}) \
                 FROM (SELECT measure, value, row_number() OVER (PARTITION BY measure ORDER BY value) AS r, \
                           count(*) OVER (PARTITION BY measure) AS n \
                       FROM (SELECT 1 AS place, 'session_cost' AS measure, entry ->> 'cost' AS value FROM sessions \
                                 WHERE key IN {OWN} AND entry ->> 'cost' IS NOT NULL \
                             UNION ALL SELECT 2, 'session_steps', entry ->> 'steps' FROM sessions WHERE key IN {OWN} \
                             UNION ALL SELECT 3, 'session_llm_calls', entry ->> 'llm_calls' FROM sessions \
                                 WHERE key IN {OWN} \
                             UNION ALL SELECT 4, 'session_tokens', entry ->> 'tokens' FROM sessions WHERE key IN {OWN} \
                             UNION ALL SELECT 5, 'session_time_ms', sum(time) / 1000.0 FROM states \
                                 WHERE session IN {OWN} GROUP BY session \
                             UNION ALL SELECT 6, 'llm_call_time_ms', time / 1000.0 FROM calls \
                                 WHERE time IS NOT NULL AND session IN {ASKED} \
                             UNION ALL SELECT 7, 'tool_time_ms', time / 1000.0 FROM tools \
                                 WHERE time IS NOT NULL AND session IN {ASKED})) \
                 GROUP BY measure, n ORDER BY measure"
            ),
        }
    }
}

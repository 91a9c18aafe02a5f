//! Attacks on the judgement of calls: rules, approvals, environment, secrets, output.

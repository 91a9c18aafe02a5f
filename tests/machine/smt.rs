//! The formulas about which `tests/smt/budget.py` proves that no budget is exceeded are those of the shipped functions.

use std::io::Write;
use std::process::{Command, Stdio};

use architect::machine::{
    Authorization, CallIntent, Conversation, Effect, Event, Machine, RequestSize, State,
};
use architect::types::{
    CallAccess, EffectId, LongInputPrice, MicroUsd, OutputLimits, Price, Reply, ReplyFinish,
    ReplyPart, RunLimits, RunRules, RunTime, Tokens, ToolCall, Usage,
};
use serde_json::{Value, json};

use crate::small_model;

/// Small numbers, those near the largest one, and others of each magnitude.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // The steps of SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let number = mixed ^ (mixed >> 31);
        match number % 8 {
            0 => number >> 61,
            1 => u64::MAX - (number >> 61),
            _ => number >> (number % 64),
        }
    }

    /// Returns nothing in one of four cases.
    fn maybe(&mut self) -> Option<u64> {
        let number = self.next();
        (!self.next().is_multiple_of(4)).then_some(number)
    }
}

/// A machine whose two tool calls wait for their authorization.
fn executing() -> Machine {
    let rules = RunRules::default();
    let (machine, _) = Machine::start(rules, Conversation::new(0), small_model::task());
    let size = RequestSize::default();
    let prepared = Event::Prepared { id: EffectId(1), size, messages: [].into() };
    let call = |id: &str| ReplyPart::Call(ToolCall::new(id.into(), "dispatch", "{}"));
    let reply = Reply {
        parts: [call("a"), call("b")].into(),
        finish: ReplyFinish::ToolCalls,
        usage: Usage::default(),
        model: None,
    };
    let access = [CallAccess::read("a"), CallAccess::read("b")].into();
    let (machine, _) = machine.handle(RunTime::START, prepared);
    machine.handle(RunTime::START, Event::Replied { id: EffectId(2), reply, access }).0
}

/// Returns the shares of the two calls, money and tokens of each.
fn shares(mut machine: Machine, rules: &RunRules, used: (u64, u64)) -> Vec<[Option<u64>; 2]> {
    let State::Executing(state) = &mut machine.state else { panic!("{:?}", machine.state) };
    state.run.rules = rules.clone().into();
    (state.run.used.cost, state.run.used.tokens) = (MicroUsd(used.0), Tokens(used.1));
    let mut shares = Vec::new();
    for id in machine.state.pending_effects() {
        let authorization = Authorization::Approved {
            timeout: architect::types::TimeSpan::from_secs(1),
            intent: CallIntent::Delegated { session: None, worktree: None },
            reason: "".into(),
        };
        let (next, output) =
            machine.handle(RunTime::START, Event::Authorized { id, authorization });
        machine = next;
        shares.extend(output.effects.iter().filter_map(|effect| match effect {
            Effect::RunTool { budget: Some(share), .. } => {
                Some([share.cost.map(|it| it.0), share.tokens.map(|it| it.0)])
            }
            _ => None,
        }));
    }
    shares
}

/// Returns the output limit of the next call, or `None` if it isn't made.
fn granted(rules: RunRules, used: (u64, u64), upper_bound: Tokens) -> Option<u64> {
    let (mut machine, _) = Machine::start(rules, Conversation::new(0), small_model::task());
    let State::Preparing(state) = &mut machine.state else { panic!("{:?}", machine.state) };
    (state.run.used.cost, state.run.used.tokens) = (MicroUsd(used.0), Tokens(used.1));
    let size = RequestSize { upper_bound, ..RequestSize::default() };
    let prepared = Event::Prepared { id: EffectId(1), size, messages: [].into() };
    let (_, output) = machine.handle(RunTime::START, prepared);
    output.effects.iter().find_map(|effect| match effect {
        Effect::CallModel { max_output, .. } => max_output.map(|limit| limit.0),
        _ => None,
    })
}

/// Returns a case with the results of the shipped functions.
fn case(numbers: &mut Numbers, executing: &Machine) -> Value {
    let [input, output, cached_input, cache_write] = [(); 4].map(|()| numbers.next());
    let long = numbers.maybe().map(|threshold| LongInputPrice {
        threshold: Tokens(threshold),
        input: numbers.next(),
        output: numbers.next(),
        cached_input: numbers.next(),
        cache_write: Some(numbers.next()),
    });
    let price = Price { input, output, cached_input, cache_write, long_input: long };
    let [bound, money, tokens, written, cached, stored] = [(); 6].map(|()| numbers.next());
    let usage = Usage {
        input: Tokens(tokens),
        output: Tokens(written),
        cached_input: Tokens(cached),
        cache_write: Tokens(stored),
        ..Usage::default()
    };
    let used = (numbers.next(), numbers.next());
    let (wanted, minimum, closing) = (numbers.next(), numbers.next(), numbers.next());
    let budget = numbers.maybe();
    // Without any limit nothing is reserved.
    let max_tokens = if budget.is_some() { numbers.maybe() } else { Some(numbers.next()) };
    let rules = RunRules {
        limits: RunLimits {
            budget: budget.map(MicroUsd),
            max_tokens: max_tokens.map(Tokens),
            ..RunLimits::default()
        },
        price: Some(price),
        output: OutputLimits {
            user_limit: Some(Tokens(wanted)),
            minimum: Tokens(minimum),
            closing: Tokens(closing),
            ..OutputLimits::default()
        },
        ..RunRules::default()
    };
    let long = long.map(|long| {
        [long.threshold.0, long.input, long.output, long.cached_input, long.cache_write.unwrap()]
    });
    json!({
        "price": [input, output, cached_input, cache_write],
        "long": long,
        "bound": bound,
        "money": money,
        "usage": [tokens, written, cached, stored],
        "used": used,
        "wanted": wanted,
        "minimum": minimum,
        "closing": closing,
        "budget": budget,
        "max_tokens": max_tokens,
        "shipped": {
            "cost": price.cost(&usage),
            "max_cost": price.max_cost(Tokens(bound), Tokens(written)),
            "affordable": price.affordable_output(MicroUsd(money), Tokens(bound)),
            "shares": shares(executing.clone(), &rules, used),
            "granted": granted(rules, used, Tokens(bound)),
        },
    })
}

#[test]
fn the_formulas_of_the_proof_are_those_of_the_shipped_functions() {
    let (mut numbers, executing) = (Numbers(1), executing());
    let cases: String =
        (0..5_000).map(|_| case(&mut numbers, &executing).to_string() + "\n").collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/smt/budget.py");
    let mut python = Command::new("python3");
    python.args([script, "--compare"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut python) = python.stderr(Stdio::piped()).spawn() else {
        println!("skipped: python3 is not installed");
        return;
    };
    // It reads all of them before it writes, or ends at the first that differs.
    let _ = python.stdin.take().unwrap().write_all(cases.as_bytes());
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5000 cases are the same\n");
}

//! The cost of calls: every row of the model table and every wire, in micro-dollars.

use architect::llm::ModelSpec;
use architect::llm::model_table::ModelTable;
use architect::types::{MicroUsd, Price, Tokens, Usage};
use proptest::prelude::*;

use super::caller::{WireCaller, long_timeouts};
use super::recorded_streams::{Wire, all};
use crate::kit::cli::CliFixture;
use crate::kit::server::Server;

/// Models with different kinds of prices: with and without cache writes, with a price for long input, at a reseller.
const MODELS: [&str; 8] = [
    "anthropic/claude-opus-5",
    "anthropic/claude-haiku-4-5",
    "openai/gpt-5.5",
    "openai-chat/gpt-4o",
    "gemini/gemini-3.1-pro-preview",
    "gemini/gemini-3.7-flash",
    "deepseek/deepseek-v4-flash",
    "openrouter/anthropic/claude-sonnet-5",
];

fn price(model: &str) -> Price {
    let table = ModelTable::built_in();
    let spec = ModelSpec::parse(model, &table, false).unwrap();
    table.lookup(&spec).unwrap().price.unwrap()
}

/// Returns the usage of a call, with cached input and cache writes as parts of the input.
fn usage() -> impl Strategy<Value = Usage> {
    (0_u64..400_000, 0_u64..100, 0_u64..100, 0_u64..64_000).prop_map(
        |(input, read, write, output)| {
            let cached = input * read / 200;
            Usage {
                input: Tokens(input),
                output: Tokens(output),
                cached_input: Tokens(cached),
                cache_write: Tokens((input - cached) * write / 100),
                ..Usage::default()
            }
        },
    )
}

/// Returns the cost by kind of token, in millionths of a micro-dollar.
fn parts(price: &Price, usage: &Usage) -> [u128; 4] {
    let is_long = price.long_input.is_some_and(|long| usage.input > long.threshold);
    let (input, output, cached, write) = match price.long_input.filter(|_| is_long) {
        Some(long) => {
            (long.input, long.output, long.cached_input, price.cache_write.max(long.input))
        }
        None => (price.input, price.output, price.cached_input, price.cache_write),
    };
    let fresh = usage.input.0 - usage.cached_input.0 - usage.cache_write.0;
    [
        (fresh, input),
        (usage.cached_input.0, cached),
        (usage.cache_write.0, write),
        (usage.output.0, output),
    ]
    .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cost_is_the_sum_of_its_parts(model in prop::sample::select(MODELS.to_vec()), usage in usage()) {
        let price = price(model);
        let exact: u128 = parts(&price, &usage).iter().sum();
        let cost = u128::from(price.cost(&usage).0) * 1_000_000;
        prop_assert!(cost >= exact && cost < exact + 1_000_000);
    }

    /// The reservation for a call covers its cost, for any input and output.
    #[test]
    fn a_reservation_covers_the_cost(
        model in prop::sample::select(MODELS.to_vec()),
        usage in usage(),
        money in 0_u64..10_000_000,
    ) {
        let price = price(model);
        prop_assert!(price.cost(&usage) <= price.max_cost(usage.input, usage.output));
        if let Some(limit) = price.affordable_output(MicroUsd(money), usage.input) {
            let most = Usage { output: limit.min(usage.output), ..usage };
            prop_assert!(price.cost(&most) <= MicroUsd(money));
        }
    }

    #[test]
    fn more_of_anything_never_costs_less(model in prop::sample::select(MODELS.to_vec()), usage in usage()) {
        let price = price(model);
        let more = Usage { output: usage.output + Tokens(1), ..usage };
        prop_assert!(price.cost(&more) >= price.cost(&usage));
        let more = Usage { input: usage.input + Tokens(1), ..usage };
        prop_assert!(price.cost(&more) >= price.cost(&usage));
    }
}

/// On every wire, input is the whole input, and cached input a part of it.
#[test]
fn usage_is_normalized_on_every_wire() {
    for recording in Wire::ALL.into_iter().flat_map(all) {
        let server = Server::new([recording.in_chunks(512)]);
        let usage = WireCaller::new(recording.wire.model(), &long_timeouts(&server, ""))
            .call()
            .reply()
            .usage;
        assert!(usage.cached_input + usage.cache_write <= usage.input, "{}", recording.name);
        assert!(usage.reasoning <= usage.output, "{}", recording.name);
        let counted = price(recording.wire.model()).cost(&usage);
        let exact: u128 = parts(&price(recording.wire.model()), &usage).iter().sum();
        assert_eq!(u128::from(counted.0), exact.div_ceil(1_000_000), "{}", recording.name);
    }
}

#[test]
fn recorded_calls_have_the_expected_cost() {
    let usage = |input, output, cached, written| Usage {
        input: Tokens(input),
        output: Tokens(output),
        cached_input: Tokens(cached),
        cache_write: Tokens(written),
        ..Usage::default()
    };
    // Input 2 124: 12 uncached, 2 048 cached and 64 cache writes; output 89.
    let anthropic = price("anthropic/claude-sonnet-5").cost(&usage(2_124, 89, 2_048, 64));
    assert_eq!(anthropic, MicroUsd(24 + 410 + 160 + 890)); // 409.6 is the part of the cache
    let openai = price("openai-chat/gpt-4o").cost(&usage(200, 40, 0, 0));
    assert_eq!(openai, MicroUsd(900));
}

/// A model without a row is used; only a misspelled name of a row is rejected.
#[test]
fn a_misspelled_model_gets_a_suggestion() {
    let world = CliFixture::new();
    let errors = |model: &str| world.run(&["run", "Do it.", "--model", model]).err;
    let misspelled = errors("openai/gpt-5-mni");
    assert!(
        misspelled.contains(
            "openai/gpt-5-mni is not in the model table, did you mean `openai/gpt-5-mini`?"
        )
    );
    // The next error follows.
    assert!(misspelled.contains("there is no key for openai"), "{misspelled}");
    assert!(!errors("openai/gpt-9-mini").contains("did you mean"));
    let unknown = errors("opnai/gpt-5");
    assert!(
        unknown.contains("unknown provider 'opnai' in 'opnai/gpt-5', did you mean `openai`?"),
        "{unknown}"
    );
}

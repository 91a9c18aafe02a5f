//! The upper bound of a text's tokens, by the kinds of its characters.
//!
//! Prose and code have three to five bytes per token, but columns of digits have one, and random letters less than two.
//! The weights hold for the tokenizers of five families of models (GPT, Claude, DeepSeek, Qwen, Llama) on seventy kinds
//! of text, from source code to base64, columns of numbers and rare characters. The tests contain the samples for which
//! one of these tokenizers makes the most tokens.

use crate::types::Tokens;

/// The units of weight in a token, and the weight of most bytes: digits, signs, lines, and all bytes of other
/// characters.
const TOKEN: u64 = 48;
/// A small letter after another letter. Random letters without vowels have the most tokens.
const SMALL_LETTER: u64 = TOKEN * 2 / 3;
/// The first letter after a space: both share a token.
const LETTER_AFTER_SPACE: u64 = 0;
/// A space after two others.
const FURTHER_SPACE: u64 = TOKEN / 16;

/// The number of bytes that are processed together. Their counts fit into a byte, so that the compiler can vectorize
/// the loop.
const CHUNK: usize = 240;

/// Returns the upper bound of this text's tokens.
pub(crate) fn most_tokens(text: &str) -> Tokens {
    let bytes = text.as_bytes();
    // The two bytes before each byte: the first two bytes have the full weight.
    let [before, two_before] = [1, 2].map(|by| &bytes[2.min(bytes.len()).saturating_sub(by)..]);
    let after = &bytes[2.min(bytes.len())..];
    let chunks = after.chunks(CHUNK).zip(before.chunks(CHUNK)).zip(two_before.chunks(CHUNK));
    let saved = chunks.map(|((chunk, before), two_before)| saved_weight(chunk, before, two_before));
    Tokens((TOKEN * bytes.len() as u64 - saved.sum::<u64>()).div_ceil(TOKEN))
}

fn is_alphabetic(byte: u8) -> bool {
    // One comparison instead of two.
    (byte | 0x20).is_ascii_lowercase()
}

/// Returns the difference between the full weight of bytes and their actual weight, which depends on the bytes before
/// them.
fn saved_weight(chunk: &[u8], before: &[u8], two_before: &[u8]) -> u64 {
    let (mut small, mut first, mut spaces) = (0_u8, 0_u8, 0_u8);
    for ((byte, before), two_before) in chunk.iter().zip(before).zip(two_before) {
        let (is_space, is_after, is_third) = (*byte == b' ', *before == b' ', *two_before == b' ');
        small += u8::from(byte.is_ascii_lowercase() & is_alphabetic(*before));
        first += u8::from(is_alphabetic(*byte) & is_after);
        spaces += u8::from(is_space & is_after & is_third);
    }
    [(small, SMALL_LETTER), (first, LETTER_AFTER_SPACE), (spaces, FURTHER_SPACE)]
        .map(|(count, weight)| u64::from(count) * (TOKEN - weight))
        .iter()
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, with the tokens of the tokenizer that makes the most of them.
    const DENSE: [(u64, &str); 19] = [
        (
            81,
            "/crates.io-index\"\nchecksum = \"1b2316d2cd561917bc2c16e3c64771c77e24363b56d40b58fdad091d02059992\"\ndepe",
        ),
        (
            70,
            " 2026 gnupg\ndrwxr-xr-x  2 root root  4096 May  9  2026 gnupg2\ndrwxr-xr-x  2 root root  4096 Jun 24  2025 gold-",
        ),
        (63, "1c 00 00 00 00 00 00 00  01 00 00 00 00 00 00 00  |................|\n000000b0  0"),
        (48, "9bFlIkpYt5HfavHYMD5hzcS7hsPRxCcQPDRMQYnrLx571dR+RG/OwqPYEXNh"),
        (42, "136f58c119c9fa7fcdf13b628dfaa833fed580d91f3e10ba"),
        (69, "eb937997-2a64-7627-0dcf-fc358bf0f931\naf698a79-c784-8475-133d-6e24601e4257\n"),
        (40, "1 8 9 2 8 9 0 0 2 4 6 5 6 6 2 8 8 4 7 3"),
        (62, "24.3856,-32.8414,78.6783,-81.7833,92.0170,-80.1464,-45.6387,-35.87"),
        (41, "    8051     7842     5934      914      827     8759     3094\n"),
        (42, "=tQl?G&&m(6Wrr=,AV-:&$I}(@!}(t&y?XfB@6r4ykFKPvGW"),
        (30, "tdrxhqbnhjkmmljhdqqvfzkvpwfgmkzwjqsnxlxfxwmwghdt"),
        (36, "OUJRHZIJERZFYTLDDZGYQPMIJRLSHZXSAHDUWPXNWATRFABS"),
        (32, "]^)~]!~`!=(:@{!!\\%}%>*%#,,@.>}'@]]~+^+$!"),
        (33, "鷒蹺虓冇犬共离絍蕕舀佩剺"),
        (37, "쐒큹홨쫜옊릮챥죷훨햒뇠닄"),
        (30, "🙗🔙💗😩🏬🕝🎛🔙"),
        (61, "70.160.33.221:61490\n1.166.37.245:53400\n255.236.231.240:46721"),
        (36, "\t\n\r\r\r  \n\n\t\n\n\n\n\n\t\n \n\r \n\n\n\r\t \r \n \r\n \n\n\n \r\r\t"),
        (37, "»âè½½£»ÃåÒÚêó×ÆÛ¨ÝÆÉÙÄ¤Í"),
    ];

    const USUAL: [(u64, &str); 4] = [
        (
            60,
            "s::default()\n        });\n        (run.used.cost, run.now) = (MicroUsd(200), RunTime(100));\n        let first = BudgetShare::new(&run, [].into_iter());\n        a",
        ),
        (
            55,
            "f my_abstract_property(self):\n                ...\n\n    \"\"\"\n\n    __isabstractmethod__ = True\n\n\ntry:\n    from _abc import (get_cache_token, _abc_init, _abc_regist",
        ),
        (
            44,
            "ard input is read only on request. Without a terminal, a call that needs a confirmation is\n  refused, with a hint on how to allow it.\n\n## A run\n\n`architect demo",
        ),
        (49, "2026-02-08T16:32:00.411684Z INFO worker-3 req=7a7495fb\n2026-09"),
    ];

    #[test]
    fn no_tokenizer_makes_more_tokens_of_dense_text() {
        for (counted, text) in DENSE {
            // Some tokenizers add a token at the beginning of a text; the frame of a message has space for it.
            assert!(most_tokens(text).0 + 1 >= counted, "{:?} of {text}", most_tokens(text));
        }
    }

    #[test]
    fn code_prose_and_logs_are_bounded_within_two_and_a_half_times_their_tokens() {
        for (counted, text) in USUAL {
            let most = most_tokens(text).0;
            assert!(most >= counted && most * 2 <= counted * 5, "{most} of {text}");
        }
    }

    #[test]
    fn no_text_has_more_tokens_than_bytes() {
        for (text, tokens) in
            [("", 0), ("a", 1), ("ab", 2), ("ab cd", 4), (" ", 1), ("a  b", 3), ("ä1", 3)]
        {
            assert_eq!(most_tokens(text), Tokens(tokens), "{text}");
        }
        assert_eq!(most_tokens(&" ".repeat(2 + 16 * 10)), Tokens(2 + 10));
        assert_eq!(most_tokens(&"x".repeat(2 + 3 * 10)), Tokens(2 + 2 * 10));
    }
}

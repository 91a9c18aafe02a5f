//! Binary contents in git patches: a digest that git checks, and the bytes in base 85.

#![allow(clippy::cast_possible_truncation, clippy::many_single_char_names)] // of lengths that are short, or checked

use std::fmt::Write as _;

/// Returns git's name of a content, in hexadecimal. It is required in git's patches, and not a protection against
/// attackers.
pub(super) fn git_blob_id(content: &[u8]) -> String {
    let header = format!("blob {}\0", content.len());
    let hash = sha1(&[header.as_bytes(), content].concat());
    hash.iter().map(|word| format!("{word:08x}")).collect()
}

fn sha1(message: &[u8]) -> [u32; 5] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if message.len() % 64 >= 56 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for index in 16..80 {
            let mixed = words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16];
            words[index] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (round, word) in words.iter().enumerate() {
            let (mixed, constant) = match round {
                0..20 => (b & c | !b & d, 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = [a.rotate_left(5), mixed, e, constant, *word]
                .into_iter()
                .fold(0, u32::wrapping_add);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (total, word) in state.iter_mut().zip([a, b, c, d, e]) {
            *total = total.wrapping_add(word);
        }
    }
    state
}

/// Writes a content as a part of a binary patch.
pub(super) fn write_literal(content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("literal {}\n", content.len()).as_bytes());
    for line in zlib_stored(content).chunks(52) {
        let length = line.len() as u8;
        out.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
        base85(line, out);
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Returns a content in the zlib format, without compression.
fn zlib_stored(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let blocks = content.chunks(0xffff);
    let last = blocks.len().saturating_sub(1);
    if content.is_empty() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    for (index, block) in blocks.enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(index == last));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in content {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    out.extend_from_slice(&(b << 16 | a).to_be_bytes());
    out
}

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

fn base85(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(4) {
        let mut number = 0_u32;
        for index in 0..4 {
            number = number << 8 | u32::from(group.get(index).copied().unwrap_or(0));
        }
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(number % 85) as usize];
            number /= 85;
        }
        out.extend_from_slice(&digits);
    }
}

/// Returns a path as git writes it: quoted if it has unusual characters.
pub(super) fn quote(path: &[u8]) -> String {
    let is_usual = |byte: &u8| (b' '..0x7f).contains(byte) && !b"\"\\".contains(byte);
    if path.iter().all(is_usual) {
        return String::from_utf8_lossy(path).into_owned();
    }
    let mut quoted = String::from("\"");
    for byte in path {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(*byte));
            }
            b'\n' => quoted.push_str("\\n"),
            b'\t' => quoted.push_str("\\t"),
            byte if (b' '..0x7f).contains(byte) => quoted.push(char::from(*byte)),
            byte => drop(write!(quoted, "\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_contents_are_those_of_git() {
        assert_eq!(git_blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(git_blob_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
        let long = [b'x'; 200];
        assert_eq!(git_blob_id(&long[..120]).len(), 40);
    }

    #[test]
    fn unusual_paths_are_quoted() {
        assert_eq!(quote(b"a b/c"), "a b/c");
        assert_eq!(quote(b"a\"\n\xff"), "\"a\\\"\\n\\377\"");
    }
}

//! A minimal gzip encoder.

/// Returns bytes in gzip format, without compression.
pub(crate) fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let mut out = HEAD.to_vec();
    out.push(1); // the last block, stored
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(bytes);
    finish(out, crc32fast::hash(bytes), bytes.len())
}

/// Returns zeros in gzip format, compressed to a thousandth.
pub(crate) fn zeros(count: usize) -> Vec<u8> {
    // In the fixed code: a zero, then copies of 258 bytes at distance one.
    let mut bits = BitWriter::default();
    bits.put(0b1, 1);
    bits.put(0b01, 2);
    bits.put_reversed(0x30, 8); // literal 0
    let copies = (count - 1) / 258;
    for _ in 0..copies {
        bits.put_reversed(0b1100_0101, 8); // length 258
        bits.put_reversed(0, 5); // distance 1
    }
    bits.put_reversed(0, 7); // end of block
    let mut out = HEAD.to_vec();
    out.extend(bits.bytes());
    let length = 1 + copies * 258;
    finish(out, crc32fast::hash(&vec![0; length]), length)
}

const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

fn finish(mut out: Vec<u8>, crc: u32, length: usize) -> Vec<u8> {
    out.extend(crc.to_le_bytes());
    out.extend(u32::try_from(length).unwrap().to_le_bytes());
    out
}

#[derive(Default)]
struct BitWriter {
    done: Vec<u8>,
    pending: u32,
    count: u32,
}

impl BitWriter {
    fn put(&mut self, value: u32, length: u32) {
        self.pending |= value << self.count;
        self.count += length;
        while self.count >= 8 {
            self.done.push(self.pending.to_le_bytes()[0]);
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    /// Codes are written most significant bit first.
    fn put_reversed(&mut self, value: u32, length: u32) {
        self.put(value.reverse_bits() >> (32 - length), length);
    }

    fn bytes(mut self) -> Vec<u8> {
        self.put(0, 7);
        self.done
    }
}

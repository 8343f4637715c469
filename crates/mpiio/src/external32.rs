//! The representation external32: items big-endian, of sizes that are the same everywhere (MPI 5.0,
//! section 14.5.2).
//!
//! An item is one word, or several: the real and the imaginary part of a complex number, the value
//! and the index of a pair. Most words have as many bytes as in memory, and are turned round.
//! `MPI_LONG` and `MPI_UNSIGNED_LONG` have 4 bytes in a file, and `MPI_WCHAR` has 2: a value that
//! does not fit is an error. `MPI_LONG_DOUBLE` has the 16 bytes of IEEE's binary128.
//!
//! MPI libraries convert, too (`MPI_Pack_external`), but not all types, and not from `MPI_BOTTOM`.

use std::iter::Peekable;
use std::sync::{Mutex, OnceLock, PoisonError};

use penstock_layout::exact;
use penstock_machines::mpi::abi::Handle;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::abi::Combiner;
use crate::contents;
use crate::failure::{Class, Result, wrong};
use crate::flat::Type;
use crate::items::Item;
use crate::mpi::Mpi;
use crate::tree::walk_turns;

/// How the value of a word goes from memory to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The bytes are turned round.
    Turned,
    /// A whole number that has more bytes in memory.
    Signed,
    Unsigned,
    /// A number of 80 bits of x87, which is a binary128 in a file.
    Extended,
}

/// A word is a number that is converted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    kind: Kind,
    /// The bytes in memory.
    memory: usize,
    /// The bytes in a file.
    file: usize,
}

/// The words of an item.
type Words = SmallVec<[Word; 2]>;

/// How many bytes an item has in a file.
///
/// # Errors
/// [`Class::Type`] when it has no place in external32.
pub fn bytes(mpi: &Mpi, predefined: Handle) -> Result<u64> {
    let words = words_of(mpi, predefined)?;
    Ok(words.iter().map(|word| word.file as u64).sum())
}

/// The words of a predefined type.
fn words_of(mpi: &Mpi, predefined: Handle) -> Result<Words> {
    static KNOWN: OnceLock<Mutex<FxHashMap<Handle, Words>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(words) = known.get(&predefined) {
        return Ok(words.clone());
    }
    let combiner = contents::combiner(mpi, predefined)?;
    let name = contents::name(mpi, predefined);
    let words = words_named(&name, combiner, contents::data_bytes(mpi, predefined)?);
    let words = words.ok_or_else(|| {
        let cause = format!("the datatype \"{name}\" has no place in external32");
        wrong(Class::Type, cause)
    })?;
    known.insert(predefined, words.clone());
    Ok(words)
}

/// The words of a predefined type of this name, which has so many bytes of data in memory.
fn words_named(name: &str, combiner: Combiner, bytes: u64) -> Option<Words> {
    const INT: usize = size_of::<std::ffi::c_int>();
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)?;
    let name = name.strip_prefix("MPI_").unwrap_or(name);
    let halves = |kind| {
        let word = word_of(kind, bytes / 2);
        SmallVec::from([word, word])
    };
    Some(match (combiner, name) {
        (Combiner::ParametrizedComplex, _) => halves("COMPLEX"),
        (Combiner::Parametrized, _) => SmallVec::from_iter([word_of("", bytes)]),
        (Combiner::Named, "LB" | "UB" | "") => return None,
        (Combiner::Named, _) if name.starts_with('2') && name.contains("COMPLEX") => {
            SmallVec::from_elem(word_of("COMPLEX", bytes / 4), 4)
        }
        (Combiner::Named, _) if name.starts_with('2') => halves(&name[1..]),
        (Combiner::Named, _) if name.contains("COMPLEX") => halves(match name {
            "C_LONG_DOUBLE_COMPLEX" | "CXX_LONG_DOUBLE_COMPLEX" => "LONG_DOUBLE",
            _ => "COMPLEX",
        }),
        (Combiner::Named, "FLOAT_INT" | "DOUBLE_INT" | "LONG_INT" | "SHORT_INT")
        | (Combiner::Named, "LONG_DOUBLE_INT") => {
            let value = name.strip_suffix("_INT")?;
            SmallVec::from([word_of(value, bytes.checked_sub(INT)?), word_of("INT", INT)])
        }
        (Combiner::Named, _) => SmallVec::from_iter([word_of(name, bytes)]),
        _ => return None,
    })
}

/// A word of this kind, which has so many bytes in memory.
fn word_of(name: &str, memory: usize) -> Word {
    let (kind, file) = match name {
        "LONG" if memory > 4 => (Kind::Signed, 4),
        "UNSIGNED_LONG" if memory > 4 => (Kind::Unsigned, 4),
        "WCHAR" if memory > 2 => (Kind::Unsigned, 2),
        "LONG_DOUBLE" if cfg!(target_arch = "x86_64") => (Kind::Extended, 16),
        _ => (Kind::Turned, memory),
    };
    Word { kind, memory, file }
}

/// Which way data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToFile,
    FromFile,
}

/// Converts whole instances of a datatype between memory and packed items.
///
/// # Errors
/// [`Class::Conversion`] when a value does not fit; [`Class::Type`] when an item has no place in
/// external32.
///
/// # Safety
/// `memory` must hold the instances, from which nobody else writes or reads meanwhile.
pub unsafe fn convert(
    mpi: &Mpi,
    way: Way,
    memory: *mut u8,
    (datatype, instances): (&Type, u64),
    mut packed: &mut [u8],
) -> Result<()> {
    let all = datatype.items.repeated(instances);
    let mut stock = Stock {
        mpi,
        items: all.iter().peekable(),
        forms: FxHashMap::default(),
        left: SmallVec::new(),
    };
    let (data, mut done) = (0..datatype.size() * instances, Ok(()));
    walk_turns(&datatype.tree, (0, datatype.extent), data, &mut |series| {
        series.runs(&mut |place, length| {
            let (mut place, mut rest) = (place, exact::<usize>(length));
            while rest > 0 && done.is_ok() {
                done = stock.take(rest).and_then(|(word, count)| {
                    let bytes = word.memory * count;
                    let own = packed.split_off_mut(..word.file * count);
                    let own = own.ok_or_else(|| wrong(Class::Other, "items are too many"))?;
                    let memory = memory.wrapping_offset(exact::<isize>(place));
                    // SAFETY: the caller's promise: the places are those of the datatype.
                    let memory = unsafe { std::slice::from_raw_parts_mut(memory, bytes) };
                    (place, rest) = (place + bytes as i64, rest - bytes);
                    move_words(way, word, memory, own)
                });
            }
        });
    });
    done
}

/// The words of items, which are taken in their order.
struct Stock<'a, I: Iterator<Item = (Item, u64)>> {
    mpi: &'a Mpi,
    items: Peekable<I>,
    forms: FxHashMap<Handle, Words>,
    /// The words of items that were begun, each with how many there are, the next one last.
    left: SmallVec<[(Word, u64); 4]>,
}

impl<I: Iterator<Item = (Item, u64)>> Stock<'_, I> {
    /// Some words of one kind, of at most `bytes` of memory.
    fn take(&mut self, bytes: usize) -> Result<(Word, usize)> {
        if self.left.is_empty() {
            self.begin()?;
        }
        let next = self.left.pop();
        let (word, count) = next.ok_or_else(|| wrong(Class::Type, "a type with too few items"))?;
        let fit = (bytes / word.memory) as u64;
        if fit == 0 {
            return Err(wrong(Class::Type, "a type with a gap within an item"));
        }
        if count > fit {
            self.left.push((word, count - fit));
        }
        Ok((word, exact::<usize>(count.min(fit))))
    }

    /// Begins the next items.
    fn begin(&mut self) -> Result<()> {
        let Some((item, count)) = self.items.peek_mut() else {
            return Ok(());
        };
        let words = match self.forms.get(&item.handle) {
            Some(words) => words,
            None => {
                let words = words_of(self.mpi, item.handle)?;
                self.forms.entry(item.handle).or_insert(words)
            }
        };
        match words.iter().all(|word| *word == words[0]) {
            true => {
                self.left.push((words[0], *count * words.len() as u64));
                *count = 0;
            }
            false => {
                self.left.extend(words.iter().rev().map(|word| (*word, 1)));
                *count -= 1;
            }
        }
        if *count == 0 {
            self.items.next();
        }
        Ok(())
    }
}

/// Moves words one behind the other.
fn move_words(way: Way, word: Word, memory: &mut [u8], packed: &mut [u8]) -> Result<()> {
    if word.kind == Kind::Turned {
        match way {
            Way::ToFile => turn_all(word.memory, memory, packed),
            Way::FromFile => turn_all(word.memory, packed, memory),
        }
        return Ok(());
    }
    let words = memory.chunks_exact_mut(word.memory);
    for (memory, packed) in words.zip(packed.chunks_exact_mut(word.file)) {
        match way {
            Way::ToFile => to_file(word, memory, packed)?,
            Way::FromFile => from_file(word, memory, packed),
        }
    }
    Ok(())
}

/// Turns words round: between the order of this machine and big-endian.
fn turn_all(bytes: usize, from: &[u8], to: &mut [u8]) {
    fn each<const BYTES: usize>(from: &[u8], to: &mut [u8]) {
        for (from, to) in from
            .as_chunks::<BYTES>()
            .0
            .iter()
            .zip(to.as_chunks_mut::<BYTES>().0)
        {
            *to = *from;
            to.reverse();
        }
    }
    if cfg!(target_endian = "big") || bytes == 1 {
        return to.copy_from_slice(from);
    }
    match bytes {
        2 => each::<2>(from, to),
        4 => each::<4>(from, to),
        8 => each::<8>(from, to),
        _ => {
            let words = from.chunks_exact(bytes).zip(to.chunks_exact_mut(bytes));
            words.for_each(|(from, to)| {
                to.copy_from_slice(from);
                to.reverse();
            });
        }
    }
}

/// A number of this machine's bytes.
fn number_of(bytes: &[u8]) -> u128 {
    let ordered = |all: &mut [u8; 16]| match cfg!(target_endian = "big") {
        true => all[16 - bytes.len()..].copy_from_slice(bytes),
        false => all[..bytes.len()].copy_from_slice(bytes),
    };
    let mut all = [0; 16];
    ordered(&mut all);
    u128::from_ne_bytes(all)
}

/// A number in the bytes of this machine.
fn put(number: u128, bytes: &mut [u8]) {
    let all = number.to_ne_bytes();
    let length = bytes.len();
    bytes.copy_from_slice(match cfg!(target_endian = "big") {
        true => &all[16 - length..],
        false => &all[..length],
    });
}

/// The number of big-endian bytes.
fn number_in_file(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u128::from(byte))
}

/// A number whose highest bit is its sign, of so many bytes, with the sign in all bits above.
fn widened(number: u128, bytes: usize) -> u128 {
    let above = 128 - 8 * exact::<u32>(bytes);
    ((number << above) as i128 >> above) as u128
}

fn to_file(word: Word, memory: &[u8], packed: &mut [u8]) -> Result<()> {
    let number = number_of(memory);
    let number = match word.kind {
        Kind::Extended => quadruple_of(number),
        Kind::Signed => widened(number, word.memory),
        Kind::Unsigned | Kind::Turned => number,
    };
    packed.copy_from_slice(&number.to_be_bytes()[16 - word.file..]);
    let back = match word.kind {
        Kind::Signed => widened(number_in_file(packed), word.file),
        Kind::Unsigned => number_in_file(packed),
        Kind::Turned | Kind::Extended => number,
    };
    match back == number {
        true => Ok(()),
        false => {
            let value = match word.kind {
                Kind::Signed => (number as i128).to_string(),
                _ => number.to_string(),
            };
            let cause = format!(
                "converting to external32: {value} does not fit the {} bytes that its type has \
                 there",
                word.file
            );
            Err(wrong(Class::Conversion, cause))
        }
    }
}

fn from_file(word: Word, memory: &mut [u8], packed: &[u8]) {
    let number = number_in_file(packed);
    let number = match word.kind {
        Kind::Extended => extended_of(number),
        Kind::Signed => widened(number, word.file),
        Kind::Unsigned | Kind::Turned => number,
    };
    put(number, memory);
}

/// The bits of a binary128 below its exponent, and those of an x87 number, whose highest one is
/// written.
const QUADRUPLE_BITS: u32 = 112;
const EXTENDED_BITS: u32 = 63;
/// The bits of an exponent, and its value for infinities and for what is no number.
const EXPONENT_BITS: u32 = 15;
const NOT_FINITE: u128 = (1 << EXPONENT_BITS) - 1;

/// The binary128 of a number of 80 bits.
fn quadruple_of(extended: u128) -> u128 {
    let mantissa = extended & u128::from(u64::MAX);
    let above = extended >> (EXTENDED_BITS + 1);
    let (sign, exponent) = (above >> EXPONENT_BITS & 1, above & NOT_FINITE);
    let integer = mantissa >> EXTENDED_BITS; // 0 for numbers near 0, which have exponent 0
    let below = mantissa & ((1 << EXTENDED_BITS) - 1);
    // A number near 0 whose highest bit is set has exponent 1 in IEEE's format.
    let exponent = match exponent {
        0 => integer,
        other => other,
    };
    (sign << EXPONENT_BITS | exponent) << QUADRUPLE_BITS | below << (QUADRUPLE_BITS - EXTENDED_BITS)
}

/// The number of 80 bits that is nearest to a binary128, or of two the even one.
fn extended_of(quadruple: u128) -> u128 {
    const LEFT: u32 = QUADRUPLE_BITS - EXTENDED_BITS;
    let above = quadruple >> QUADRUPLE_BITS;
    let (sign, exponent) = (above >> EXPONENT_BITS & 1, above & NOT_FINITE);
    let fraction = quadruple & ((1 << QUADRUPLE_BITS) - 1);
    let kept = fraction >> LEFT;
    if exponent == NOT_FINITE {
        // What is no number stays none, though the bits that say so are all below.
        let quiet = u128::from(fraction > 0) << (EXTENDED_BITS - 1);
        let mantissa = 1 << EXTENDED_BITS | kept | quiet;
        return (sign << EXPONENT_BITS | exponent) << (EXTENDED_BITS + 1) | mantissa;
    }
    let (rest, half) = (fraction & ((1 << LEFT) - 1), 1 << (LEFT - 1));
    let rounds_up = rest > half || rest == half && kept & 1 == 1;
    // The exponent stands above the mantissa, so that a carry counts it up, to infinity at last.
    let number = (exponent << EXTENDED_BITS | kept) + u128::from(rounds_up);
    let (exponent, kept) = (number >> EXTENDED_BITS, number & ((1 << EXTENDED_BITS) - 1));
    let integer = u128::from(exponent > 0) << EXTENDED_BITS;
    (sign << EXPONENT_BITS | exponent) << (EXTENDED_BITS + 1) | integer | kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &str, bytes: u64) -> Vec<(Kind, usize, usize)> {
        let words = words_named(name, Combiner::Named, bytes).unwrap();
        let words = words.iter();
        words
            .map(|word| (word.kind, word.memory, word.file))
            .collect()
    }

    #[test]
    fn items_are_words() {
        use Kind::*;
        assert_eq!(named("MPI_INT", 4), [(Turned, 4, 4)]);
        assert_eq!(named("MPI_LONG", 8), [(Signed, 8, 4)]);
        assert_eq!(named("MPI_LONG", 4), [(Turned, 4, 4)]);
        assert_eq!(named("MPI_UNSIGNED_LONG", 8), [(Unsigned, 8, 4)]);
        assert_eq!(named("MPI_WCHAR", 4), [(Unsigned, 4, 2)]);
        assert_eq!(named("MPI_DOUBLE_COMPLEX", 16), [(Turned, 8, 8); 2]);
        assert_eq!(named("MPI_COMPLEX8", 8), [(Turned, 4, 4); 2]);
        assert_eq!(named("MPI_2DOUBLE_PRECISION", 16), [(Turned, 8, 8); 2]);
        assert_eq!(named("MPI_2COMPLEX", 16), [(Turned, 4, 4); 4]);
        assert_eq!(named("MPI_SHORT_INT", 6), [(Turned, 2, 2), (Turned, 4, 4)]);
        assert_eq!(named("MPI_LONG_INT", 12), [(Signed, 8, 4), (Turned, 4, 4)]);
        if cfg!(target_arch = "x86_64") {
            let pair = [(Extended, 16, 16), (Turned, 4, 4)];
            assert_eq!(named("MPI_LONG_DOUBLE_INT", 20), pair);
            assert_eq!(named("MPI_C_LONG_DOUBLE_COMPLEX", 32), [pair[0]; 2]);
        }
        let complex = words_named("", Combiner::ParametrizedComplex, 8).unwrap();
        assert_eq!(complex.len(), 2);
        assert!(words_named("MPI_UB", Combiner::Named, 0).is_none());
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let long = word_of("LONG", 8);
        let mut packed = [0; 4];
        for value in [0, 1, -1, i64::from(i32::MIN), i64::from(i32::MAX)] {
            to_file(long, &value.to_ne_bytes(), &mut packed).unwrap();
            assert_eq!(i64::from(i32::from_be_bytes(packed)), value);
            let mut back = [0; 8];
            from_file(long, &mut back, &packed);
            assert_eq!(i64::from_ne_bytes(back), value);
        }
        for value in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, i64::MIN] {
            let error = to_file(long, &value.to_ne_bytes(), &mut packed).unwrap_err();
            assert!(error.to_string().contains(&value.to_string()), "{error}");
        }
        let unsigned = word_of("UNSIGNED_LONG", 8);
        assert!(to_file(unsigned, &u64::from(u32::MAX).to_ne_bytes(), &mut packed).is_ok());
        assert!(to_file(unsigned, &(1u64 << 32).to_ne_bytes(), &mut packed).is_err());
    }

    #[test]
    fn numbers_of_80_bits() {
        // Sign and exponent, mantissa, and the binary128 of GCC for the same number.
        let known: [(u128, u128, u128); 8] = [
            (0, 0, 0),
            (0x8000, 0, 0x8000 << 112),
            (0x3fff, 1 << 63, 0x3fff << 112),
            (0xc000, 3 << 62, 0xc000_8000 << 96),
            (
                0x3ffb,
                0xcccc_cccc_cccc_cccd,
                0x3ffb_9999_9999_9999_999a << 48,
            ),
            (0x7fff, 1 << 63, 0x7fff << 112),
            (0x7fff, 3 << 62, 0x7fff_8000 << 96),
            (0, 1, 1 << 49),
        ];
        for (above, mantissa, quadruple) in known {
            let extended = above << 64 | mantissa;
            assert_eq!(quadruple_of(extended), quadruple, "{extended:x}");
            assert_eq!(extended_of(quadruple), extended, "{quadruple:x}");
        }
    }

    #[test]
    fn what_80_bits_cannot_hold_is_rounded() {
        let one = 0x3fff_u128 << QUADRUPLE_BITS;
        let half = 1u128 << 48;
        let as_extended = |above: u128, mantissa: u128| above << 64 | mantissa;
        let first = 0x8000_0000_0000_0000;
        assert_eq!(extended_of(one + half), as_extended(0x3fff, first));
        assert_eq!(extended_of(one + half + 1), as_extended(0x3fff, first + 1));
        assert_eq!(extended_of(one + 3 * half), as_extended(0x3fff, first + 2));
        // The largest number becomes an infinity, and a number near 0 the first that is none.
        let largest = (0x7fff_u128 << QUADRUPLE_BITS) - 1;
        assert_eq!(extended_of(largest), as_extended(0x7fff, first));
        assert_eq!(
            extended_of((1 << QUADRUPLE_BITS) - 1),
            as_extended(1, first)
        );
        // A signal that lies below is not lost.
        let signal = 0x7fff_u128 << QUADRUPLE_BITS | 1;
        assert_eq!(extended_of(signal), as_extended(0x7fff, first | first >> 1));
    }

    proptest! {
        #[test]
        fn numbers_of_80_bits_come_back(sign in 0..2u128, exponent in 1..0x7fffu128, low in any::<u64>()) {
            let mantissa = u128::from(low | 1 << 63);
            let extended = (sign << 15 | exponent) << 64 | mantissa;
            prop_assert_eq!(extended_of(quadruple_of(extended)), extended);
        }

        #[test]
        fn words_are_turned(bytes in 1usize..17, count in 0usize..9) {
            let from: Vec<u8> = (0..bytes * count).map(|byte| byte as u8).collect();
            let mut to = vec![0; from.len()];
            turn_all(bytes, &from, &mut to);
            if cfg!(target_endian = "little") {
                let expected = from.chunks(bytes).flat_map(|word| word.iter().rev());
                prop_assert_eq!(&to, &expected.copied().collect::<Vec<_>>());
            }
        }
    }
}

//! Euclid's algorithm.

/// The greatest common divisor of two numbers that are not negative; the other one if one is 0.
pub(super) fn greatest_divisor(one: i64, other: i64) -> i64 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

//! The tokens of a server: 64 buckets of them, each in one order from server to server.
//!
//! A token goes from the lowest server of a request to the highest, through those between, where
//! servers count from the file's base. Each server numbers the tokens that it passes on, bucket by
//! bucket, and takes those that come in the order of these numbers (Corbett and Feitelson, TOCS
//! 1996, section 4.3). Two requests to one file that meet on several servers so have one order on
//! all of them.

use std::collections::BTreeMap;

use crate::messages::Token;
use crate::object::ObjectId;

/// The number of buckets.
pub(crate) const BUCKETS: usize = 64;

/// A bucket has the tokens of the files whose identities hash to it.
#[derive(Default)]
struct Bucket {
    /// The tokens that have come too early, by their numbers.
    early: BTreeMap<u64, Token>,
    /// The number of the token that may come in next.
    next_in: u64,
    /// The number of the token that goes out next.
    next_out: u64,
}

/// The buckets of a server.
pub(crate) struct Buckets(Vec<Bucket>);

impl Default for Buckets {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Bucket::default()).collect())
    }
}

/// The bucket of a file.
pub(crate) fn bucket_of(file: ObjectId) -> usize {
    let mixed = file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 58) as usize % BUCKETS
}

impl Buckets {
    /// Puts a token in that has come.
    pub(crate) fn put(&mut self, token: Token) {
        let bucket = &mut self.0[bucket_of(token.file)];
        if token.number >= bucket.next_in {
            bucket.early.insert(token.number, token);
        }
    }

    /// The token of a bucket whose turn it is, if it has come.
    pub(crate) fn first(&self, bucket: usize) -> Option<&Token> {
        let bucket = &self.0[bucket];
        bucket.early.get(&bucket.next_in)
    }

    /// Takes the token of a bucket whose turn it is.
    pub(crate) fn take(&mut self, bucket: usize) -> Option<Token> {
        let bucket = &mut self.0[bucket];
        let token = bucket.early.remove(&bucket.next_in)?;
        bucket.next_in += 1;
        Some(token)
    }

    /// Numbers a token that goes out.
    pub(crate) fn number(&mut self, token: &mut Token) {
        let bucket = &mut self.0[bucket_of(token.file)];
        token.number = bucket.next_out;
        bucket.next_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Errand;

    fn token(file: u64, number: u64, request: u64) -> Token {
        Token {
            file: ObjectId(file),
            base: 0,
            number,
            turns: vec![0, 1],
            from: 0,
            request,
            errand: Errand::Access,
        }
    }

    /// O2: tokens that come too early wait, bucket by bucket.
    #[test]
    fn tokens_are_taken_by_number() {
        let mut buckets = Buckets::default();
        let own = bucket_of(ObjectId(1));
        let other = (2..)
            .find(|&file| bucket_of(ObjectId(file)) != own)
            .unwrap();
        buckets.put(token(1, 1, 11));
        assert!(buckets.first(own).is_none());
        buckets.put(token(other, 0, 20));
        buckets.put(token(1, 0, 10));
        let mut requests = Vec::new();
        while let Some(token) = buckets.take(own) {
            requests.push(token.request);
        }
        assert_eq!(requests, [10, 11]);
        buckets.put(token(1, 0, 12)); // once more
        assert!(buckets.first(own).is_none());
        let mut out = token(1, 77, 0);
        buckets.number(&mut out);
        assert_eq!(out.number, 0);
        buckets.number(&mut out);
        assert_eq!(out.number, 1);
    }
}

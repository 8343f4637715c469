//! The tokens of a server: 64 buckets of them on each link from server to server, each in order.
//!
//! A token goes from the lowest server of a request to the highest, through those of the file's
//! rings between, where servers count from the file's base. Each server numbers the tokens that it
//! passes on to another, bucket by bucket, and takes those that come from it in the order of these
//! numbers (Corbett and Feitelson, TOCS 1996, section 4.3). Two requests to one file that meet on
//! several servers so have one order on all of them.
//!
//! When the link between two servers is cut, or one of them is lost, the numbers begin anew, with
//! the next life of the link. Tokens that have come before stay, ahead of those that come then.

use std::collections::BTreeMap;

use super::schedule::Place;
use crate::messages::Token;
use crate::object::ObjectId;
use crate::placement::{Order, Placement};

/// The number of buckets.
pub(crate) const BUCKETS: usize = 64;

/// The tokens of the files whose identities hash to a bucket, on the link from another server.
#[derive(Default)]
struct Bucket {
    /// The tokens that have come and not been taken, by the life of the link in which they came,
    /// counted here, and their numbers.
    early: BTreeMap<(u64, u64), Token>,
    /// The number of the token that may come in next.
    next_in: u64,
}

/// A link from another server.
struct LinkIn {
    buckets: Vec<Bucket>,
    /// The life of the link, if a token has come in it; or the one before that.
    life: u64,
    is_cut: bool,
    /// The number of times that the link was cut.
    cuts: u64,
}

/// A link to another server.
struct LinkOut {
    life: u64,
    /// The number of the token that goes out next, bucket by bucket.
    next: [u64; BUCKETS],
}

/// The buckets of a server.
pub(crate) struct Buckets {
    /// The number of the server's life, the first of all of its links.
    life: u64,
    from: BTreeMap<usize, LinkIn>,
    to: BTreeMap<usize, LinkOut>,
}

/// The passage of a request's token, from here to its end: the request keeps its place here until
/// then. If others could follow it here before that, they might come before it on another server.
pub(crate) struct Passage {
    pub(crate) base: usize,
    pub(crate) placement: Placement,
    pub(crate) turns: Vec<usize>,
    /// Whether the token has come to its end, or is lost.
    pub(crate) is_over: bool,
    /// The place, when the request has been done here.
    pub(crate) place: Option<Place>,
}

/// The requests of a client that have failed on a server.
#[derive(Default)]
pub(crate) struct Failures {
    /// The lowest number of a request that the client has not ended.
    oldest: u64,
    /// The lost server, by the number of the request.
    by_request: BTreeMap<u64, usize>,
}

impl Failures {
    /// Notes that a request has failed by the loss of a server.
    pub(crate) fn note(&mut self, request: u64, server: usize) {
        if request >= self.oldest {
            self.by_request.insert(request, server);
        }
    }

    /// The server whose loss has ended a request; those before `oldest` the client has ended.
    pub(crate) fn find(&mut self, request: u64, oldest: u64) -> Option<usize> {
        self.oldest = oldest.max(self.oldest);
        self.by_request = self.by_request.split_off(&self.oldest);
        self.by_request.get(&request).copied()
    }

    /// Whether a request has failed, or has been ended by its client.
    pub(crate) fn has(&self, request: u64) -> bool {
        request < self.oldest || self.by_request.contains_key(&request)
    }
}

/// Whether the tokens of a way pass a server with this turn.
pub(crate) fn passes(turns: &[usize], turn: usize) -> bool {
    let (first, last) = (turns.first(), turns.last());
    first.is_some_and(|&first| first <= turn) && last.is_some_and(|&last| turn <= last)
}

/// Whether the tokens of a way are lost with a server; or, if only the link to it from another one
/// was cut, whether they go over that link.
pub(crate) fn are_lost(order: &Order, turns: &[usize], server: usize, over: Option<usize>) -> bool {
    let Some(turn) = order.turn(server).filter(|&turn| passes(turns, turn)) else {
        return false;
    };
    over.is_none_or(|before| {
        let comes_first = turns.first() == Some(&turn);
        !comes_first && order.before(turn) == before
    })
}

/// The bucket of a file.
pub(crate) fn bucket_of(file: ObjectId) -> usize {
    let mixed = file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 58) as usize % BUCKETS
}

impl LinkIn {
    fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            life: u64::MAX,
            is_cut: true,
            cuts: 0,
        }
    }
}

impl Buckets {
    /// Makes empty buckets of a server whose life has this number.
    pub(crate) fn new(life: u64) -> Self {
        Self {
            life,
            from: BTreeMap::new(),
            to: BTreeMap::new(),
        }
    }

    /// Begins a new life of the link to a server. Gives whether tokens have gone there.
    pub(crate) fn cut_out(&mut self, to: usize) -> bool {
        let Some(link) = self.to.get_mut(&to) else {
            return false;
        };
        link.life += 1;
        link.next = [0; BUCKETS];
        true
    }

    /// Begins a new life of the link from a server.
    pub(crate) fn cut_in(&mut self, from: usize) {
        if let Some(link) = self.from.get_mut(&from) {
            link.is_cut = true;
            link.cuts += 1;
            link.buckets
                .iter_mut()
                .for_each(|bucket| bucket.next_in = 0);
        }
    }

    /// Puts a token in that has come from a server.
    pub(crate) fn put(&mut self, from: usize, token: Token) {
        let link = self.from.entry(from).or_insert_with(LinkIn::new);
        if link.is_cut == (token.life == link.life) {
            return; // it was on its way when the link was cut
        }
        (link.is_cut, link.life) = (false, token.life);
        let bucket = &mut link.buckets[bucket_of(token.file)];
        if token.number >= bucket.next_in {
            bucket.early.insert((link.cuts, token.number), token);
        }
    }

    /// The servers from which tokens have come.
    pub(crate) fn links(&self) -> Vec<usize> {
        self.from.keys().copied().collect()
    }

    /// The token of a bucket whose turn it is, if it has come.
    pub(crate) fn first(&self, from: usize, bucket: usize) -> Option<&Token> {
        let link = self.from.get(&from)?;
        let bucket = &link.buckets[bucket];
        let (&(cuts, number), token) = bucket.early.first_key_value()?;
        // Of an earlier life no more tokens come.
        (cuts < link.cuts || number == bucket.next_in).then_some(token)
    }

    /// Takes the token of a bucket whose turn it is.
    pub(crate) fn take(&mut self, from: usize, bucket: usize) -> Option<Token> {
        self.first(from, bucket)?;
        let link = self.from.get_mut(&from)?;
        let bucket = &mut link.buckets[bucket];
        let ((cuts, _), token) = bucket.early.pop_first()?;
        bucket.next_in += u64::from(cuts == link.cuts);
        Some(token)
    }

    /// Numbers a token that goes out to a server.
    pub(crate) fn number(&mut self, to: usize, token: &mut Token) {
        let link = self.to.entry(to).or_insert(LinkOut {
            life: self.life,
            next: [0; BUCKETS],
        });
        let next = &mut link.next[bucket_of(token.file)];
        (token.life, token.number) = (link.life, *next);
        *next += 1;
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
            placement: Placement::default(),
            life: 1,
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
        let mut buckets = Buckets::new(7);
        let own = bucket_of(ObjectId(1));
        let other = (2..)
            .find(|&file| bucket_of(ObjectId(file)) != own)
            .unwrap();
        buckets.put(3, token(1, 1, 11));
        assert!(buckets.first(3, own).is_none());
        buckets.put(3, token(other, 0, 20));
        buckets.put(3, token(1, 0, 10));
        let mut requests = Vec::new();
        while let Some(token) = buckets.take(3, own) {
            requests.push(token.request);
        }
        assert_eq!(requests, [10, 11]);
        buckets.put(3, token(1, 0, 12)); // once more
        assert!(buckets.first(3, own).is_none());
        let mut out = token(1, 77, 0);
        buckets.number(5, &mut out);
        assert_eq!(out.number, 0);
        buckets.number(5, &mut out);
        assert_eq!((out.life, out.number), (7, 1));
    }

    /// The numbers begin anew with each life of a link, and nothing of an earlier life comes in.
    #[test]
    fn a_link_that_is_cut_begins_anew() {
        let mut buckets = Buckets::new(7);
        let bucket = bucket_of(ObjectId(1));
        let of_life = |life, number, request| Token {
            life,
            ..token(1, number, request)
        };
        buckets.put(3, of_life(3, 0, 10));
        buckets.put(3, of_life(3, 2, 12)); // the one between is lost
        buckets.cut_in(3);
        buckets.put(3, of_life(3, 1, 11));
        buckets.put(3, of_life(1, 1, 21));
        buckets.put(3, of_life(1, 0, 20));
        buckets.put(3, of_life(3, 0, 13));
        let mut requests = Vec::new();
        while let Some(token) = buckets.take(3, bucket) {
            requests.push(token.request);
        }
        assert_eq!(requests, [10, 12, 20, 21]);
        let mut out = of_life(0, 0, 0);
        buckets.number(5, &mut out);
        buckets.cut_out(5);
        buckets.number(5, &mut out);
        assert_eq!((out.life, out.number), (8, 0));
    }

    #[test]
    fn failures_are_forgotten_when_their_client_has_ended_the_requests() {
        let mut failures = Failures::default();
        failures.note(5, 1);
        failures.note(9, 2);
        assert_eq!((failures.find(5, 3), failures.find(6, 3)), (Some(1), None));
        assert!(failures.has(9) && failures.has(2) && !failures.has(6));
        assert_eq!((failures.find(5, 7), failures.find(9, 7)), (None, Some(2)));
        failures.note(6, 1); // a late word
        assert_eq!(failures.by_request.len(), 1);
        assert!(failures.has(6) && !failures.has(7));
    }

    /// Links have tokens of their own, and lives of their own.
    #[test]
    fn links_do_not_disturb_each_other() {
        let mut buckets = Buckets::new(7);
        let bucket = bucket_of(ObjectId(1));
        buckets.put(1, token(1, 0, 10));
        buckets.put(2, token(1, 0, 20));
        buckets.cut_in(1);
        buckets.put(2, token(1, 1, 21));
        assert_eq!(buckets.links(), [1, 2]);
        let requests: Vec<_> = std::iter::from_fn(|| buckets.take(2, bucket)).collect();
        assert!(requests.iter().map(|token| token.request).eq([20, 21]));
        let mut out = token(1, 0, 0);
        buckets.number(1, &mut out);
        assert!(buckets.cut_out(1) && !buckets.cut_out(2));
        buckets.number(2, &mut out);
        assert_eq!((out.life, out.number), (7, 0));
    }

    #[test]
    fn a_token_passes_the_servers_between() {
        let rings = crate::placement::Rings::new(5);
        let passed = |base, turns: &[usize]| -> Vec<usize> {
            let order = rings.order(base, Placement::default()).unwrap();
            let is_lost = |&server: &usize| are_lost(&order, turns, server, None);
            let over = |&server: &usize| are_lost(&order, turns, server, Some((server + 4) % 5));
            let lost: Vec<_> = (0..5).filter(is_lost).collect();
            let first = turns.first().map(|&turn| order.server(turn));
            let rest = lost.iter().copied().filter(|&server| Some(server) != first);
            assert!((0..5).filter(over).eq(rest));
            lost
        };
        assert_eq!(passed(0, &[0, 1]), [0, 1]);
        assert_eq!(passed(3, &[0, 2, 3]), [0, 1, 3, 4]);
        assert_eq!(passed(3, &[1, 3]), [0, 1, 4]);
        assert_eq!(passed(3, &[]), [0usize; 0]);
    }
}

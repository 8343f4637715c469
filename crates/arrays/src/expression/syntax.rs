//! The text of an expression becomes a tree. The grammar, loosest first, is at the head of
//! [`super`].

use super::{ExpressionError, Result};

/// The most bytes of an expression.
const TEXT_BYTES_MAX: usize = 4096;

/// The most levels of a tree: code that walks it calls itself as often.
const DEPTH_MAX: usize = 64;

/// An operation of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

impl Arithmetic {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::FloorDivide => "//",
            Self::Remainder => "%",
            Self::Power => "**",
        }
    }
}

/// A comparison of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

/// A part of the tree, with its place in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Syntax {
    /// The column of the part's own sign or word, from 1.
    pub(super) column: usize,
    pub(super) term: Term,
    depth: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Integer(i128),
    Float(f64),
    Truth(bool),
    Name(String),
    /// A field of records.
    Field(Box<Syntax>, String),
    Negative(Box<Syntax>),
    Arithmetic(Arithmetic, Box<Syntax>, Box<Syntax>),
    Comparison(Comparison, Box<Syntax>, Box<Syntax>),
    In(Box<Syntax>, Vec<Syntax>),
    Not(Box<Syntax>),
    And(Vec<Syntax>),
    Or(Vec<Syntax>),
    Call(String, Vec<Syntax>),
}

impl Syntax {
    /// Makes a part, one level above the parts in it.
    fn new(column: usize, term: Term) -> Result<Self> {
        let depth = 1 + match &term {
            Term::Integer(_) | Term::Float(_) | Term::Truth(_) | Term::Name(_) => 0,
            Term::Field(one, _) | Term::Negative(one) | Term::Not(one) => one.depth,
            Term::Arithmetic(_, one, other) | Term::Comparison(_, one, other) => {
                one.depth.max(other.depth)
            }
            Term::In(one, all) => deepest(all).max(one.depth),
            Term::And(all) | Term::Or(all) | Term::Call(_, all) => deepest(all),
        };
        if depth > DEPTH_MAX {
            let cause = format!("it is nested more than {DEPTH_MAX} levels deep");
            return Err(ExpressionError::new(column, cause));
        }
        Ok(Self {
            column,
            term,
            depth,
        })
    }
}

fn deepest(all: &[Syntax]) -> usize {
    all.iter().map(|one| one.depth).max().unwrap_or(0)
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Integer(i128),
    Float(f64),
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn words(&self) -> String {
        match self {
            Self::Integer(number) => format!("{number}"),
            Self::Float(number) => format!("{number}"),
            Self::Word(word) => format!("'{word}'"),
            Self::Sign(sign) => format!("'{sign}'"),
            Self::End => "the end".to_string(),
        }
    }
}

/// The signs, those that begin with another one before it.
const SIGNS: [&str; 19] = [
    "**", "//", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",",
    ".",
];

/// The tokens of a text, each with its column.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().collect::<Vec<_>>();
    rest.push('\n'); // it ends every number and word
    let mut at = 0;
    while at + 1 < rest.len() {
        let (column, c) = (at + 1, rest[at]);
        let begins_number = c.is_ascii_digit() || (c == '.' && rest[at + 1].is_ascii_digit());
        if c.is_whitespace() {
            at += 1;
        } else if begins_number {
            let end = number_end(&rest, at);
            tokens.push((column, number(column, &rest[at..end])?));
            at = end;
        } else if c.is_alphabetic() || c == '_' {
            let is_of_word = |c: &char| c.is_alphanumeric() || *c == '_';
            let end = at + rest[at..].iter().take_while(|c| is_of_word(c)).count();
            tokens.push((column, Token::Word(rest[at..end].iter().collect())));
            at = end;
        } else {
            let begins =
                |sign: &&&str| sign.chars().eq(rest[at..].iter().copied().take(sign.len()));
            let Some(sign) = SIGNS.iter().find(begins) else {
                let cause = format!("{c:?} means nothing{}", advice(c));
                return Err(ExpressionError::new(column, cause));
            };
            tokens.push((column, Token::Sign(sign)));
            at += sign.len();
        }
    }
    tokens.push((rest.len(), Token::End));
    Ok(tokens)
}

fn advice(c: char) -> &'static str {
    match c {
        '&' => ": write 'and'",
        '|' => ": write 'or'",
        '~' | '!' => ": write 'not'",
        '=' => ": write '=='",
        _ => "",
    }
}

/// Where a number ends that begins here.
fn number_end(text: &[char], start: usize) -> usize {
    let digits = |at: usize| {
        let is_digit = |c: &&char| c.is_ascii_digit() || **c == '_';
        at + text[at..].iter().take_while(is_digit).count()
    };
    let mut end = digits(start);
    if text[end] == '.' {
        end = digits(end + 1);
    }
    if matches!(text[end], 'e' | 'E') {
        let sign = usize::from(matches!(text[end + 1], '+' | '-'));
        if text.get(end + 1 + sign).is_some_and(char::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

fn number(column: usize, digits: &[char]) -> Result<Token> {
    let written: String = digits.iter().collect();
    let wrong = |cause: &str| ExpressionError::new(column, format!("{written} {cause}"));
    let is_badly_parted = written.contains("__") || written.ends_with('_');
    if is_badly_parted || written.contains("_.") || written.contains("._") {
        return Err(wrong("is no number"));
    }
    let plain = written.replace('_', "");
    if plain.chars().all(|c| c.is_ascii_digit()) {
        let number: i128 = plain.parse().map_err(|_| wrong("is too large"))?;
        match number <= i128::from(u64::MAX) {
            true => Ok(Token::Integer(number)),
            false => Err(wrong("is too large: integers have 64 bits")),
        }
    } else {
        let number = plain.parse().map_err(|_| wrong("is no number"))?;
        Ok(Token::Float(number))
    }
}

/// Parses an expression.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn parse(text: &str) -> Result<Syntax> {
    if text.len() > TEXT_BYTES_MAX {
        let cause = format!("it is longer than {TEXT_BYTES_MAX} bytes");
        return Err(ExpressionError::new(1, cause));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        open: 0,
    };
    let all = parser.or()?;
    match parser.next() {
        (_, Token::End) => Ok(all),
        (column, token) => {
            let cause = format!(
                "{} comes where the end or an operator could be",
                token.words()
            );
            Err(ExpressionError::new(column, cause))
        }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    /// The levels of the text that are open: brackets, signs before a value, and powers.
    open: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].1
    }

    fn column(&self) -> usize {
        self.tokens[self.at].0
    }

    fn next(&mut self) -> (usize, Token) {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// Takes a sign, if it is the next.
    fn sign(&mut self, sign: &str) -> Option<usize> {
        let column = self.column();
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        is_next.then(|| {
            self.next();
            column
        })
    }

    /// Takes a word, if it is the next.
    fn word(&mut self, word: &str) -> Option<usize> {
        let column = self.column();
        let is_next = matches!(self.peek(), Token::Word(next) if next == word);
        is_next.then(|| {
            self.next();
            column
        })
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.sign(sign).is_some() {
            return Ok(());
        }
        let cause = format!("'{sign}' is missing before {}", self.peek().words());
        Err(ExpressionError::new(self.column(), cause))
    }

    /// Parses what is one level deeper in the text.
    fn within<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.open += 1;
        if self.open > DEPTH_MAX {
            let cause = format!("it is nested more than {DEPTH_MAX} levels deep");
            return Err(ExpressionError::new(self.column(), cause));
        }
        let parsed = parse(self)?;
        self.open -= 1;
        Ok(parsed)
    }

    /// Several of what `part` parses, with a word between them.
    fn several(
        &mut self,
        word: &str,
        part: fn(&mut Self) -> Result<Syntax>,
        join: fn(Vec<Syntax>) -> Term,
    ) -> Result<Syntax> {
        let first = part(self)?;
        let Some(column) = self.word(word) else {
            return Ok(first);
        };
        let mut all = vec![first, part(self)?];
        while self.word(word).is_some() {
            all.push(part(self)?);
        }
        Syntax::new(column, join(all))
    }

    fn or(&mut self) -> Result<Syntax> {
        self.several("or", Self::and, Term::Or)
    }

    fn and(&mut self) -> Result<Syntax> {
        self.several("and", Self::not, Term::And)
    }

    fn not(&mut self) -> Result<Syntax> {
        let Some(column) = self.word("not") else {
            return self.comparison();
        };
        let negated = self.within(Self::not)?;
        Syntax::new(column, Term::Not(Box::new(negated)))
    }

    fn comparison(&mut self) -> Result<Syntax> {
        let left = self.sum()?;
        let column = self.column();
        let compared = if let Some(comparison) = self.comparison_sign() {
            let right = self.sum()?;
            Term::Comparison(comparison, Box::new(left), Box::new(right))
        } else if self.word("in").is_some() {
            Term::In(Box::new(left), self.list()?)
        } else if self.word("not").is_some() {
            if self.word("in").is_none() {
                let cause = "'in' is missing behind 'not'".to_string();
                return Err(ExpressionError::new(self.column(), cause));
            }
            let found = Syntax::new(column, Term::In(Box::new(left), self.list()?))?;
            Term::Not(Box::new(found))
        } else {
            return Ok(left);
        };
        let column_of_next = self.column();
        if self.comparison_sign().is_some() {
            let cause =
                "a comparison of a comparison: write between(x, a, b), or join them by 'and'";
            return Err(ExpressionError::new(column_of_next, cause.to_string()));
        }
        Syntax::new(column, compared)
    }

    fn comparison_sign(&mut self) -> Option<Comparison> {
        let Token::Sign(sign) = self.peek() else {
            return None;
        };
        let comparison = match *sign {
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            ">=" => Comparison::GreaterOrEqual,
            ">" => Comparison::Greater,
            _ => return None,
        };
        self.next();
        Some(comparison)
    }

    /// A list in brackets, which may be empty.
    fn list(&mut self) -> Result<Vec<Syntax>> {
        self.expect("[")?;
        self.within(|parser| parser.arguments("]"))
    }

    /// Expressions with commas between them, and what closes them.
    fn arguments(&mut self, close: &str) -> Result<Vec<Syntax>> {
        let mut all = Vec::new();
        while self.sign(close).is_none() {
            all.push(self.or()?);
            if self.sign(",").is_none() {
                self.expect(close)?;
                break;
            }
        }
        Ok(all)
    }

    fn left_to_right(
        &mut self,
        operations: &[(&str, Arithmetic)],
        part: fn(&mut Self) -> Result<Syntax>,
    ) -> Result<Syntax> {
        let mut left = part(self)?;
        loop {
            let mut found = operations.iter();
            let found = found.find_map(|(sign, op)| Some((self.sign(sign)?, *op)));
            let Some((column, operation)) = found else {
                return Ok(left);
            };
            let right = part(self)?;
            let both = Term::Arithmetic(operation, Box::new(left), Box::new(right));
            left = Syntax::new(column, both)?;
        }
    }

    fn sum(&mut self) -> Result<Syntax> {
        let operations = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.left_to_right(&operations, Self::product)
    }

    fn product(&mut self) -> Result<Syntax> {
        let operations = [
            ("*", Arithmetic::Multiply),
            ("/", Arithmetic::Divide),
            ("//", Arithmetic::FloorDivide),
            ("%", Arithmetic::Remainder),
        ];
        self.left_to_right(&operations, Self::factor)
    }

    fn factor(&mut self) -> Result<Syntax> {
        match self.sign("-") {
            Some(column) => {
                let of = self.within(Self::factor)?;
                Syntax::new(column, Term::Negative(Box::new(of)))
            }
            None => self.power(),
        }
    }

    fn power(&mut self) -> Result<Syntax> {
        let base = self.value()?;
        let Some(column) = self.sign("**") else {
            return Ok(base);
        };
        let exponent = self.within(Self::factor)?;
        let both = Term::Arithmetic(Arithmetic::Power, Box::new(base), Box::new(exponent));
        Syntax::new(column, both)
    }

    fn value(&mut self) -> Result<Syntax> {
        let (column, token) = self.next();
        let mut value = match token {
            Token::Integer(number) => Syntax::new(column, Term::Integer(number))?,
            Token::Float(number) => Syntax::new(column, Term::Float(number))?,
            Token::Sign("(") => {
                let inner = self.within(Self::or)?;
                self.expect(")")?;
                inner
            }
            Token::Word(word) if !is_reserved(&word) => self.name(column, word)?,
            token => {
                let cause = format!("{} comes where a value is expected", token.words());
                return Err(ExpressionError::new(column, cause));
            }
        };
        while let Some(column) = self.sign(".") {
            let (_, Token::Word(field)) = self.next() else {
                let cause = "the name of a field is missing behind '.'".to_string();
                return Err(ExpressionError::new(column, cause));
            };
            value = Syntax::new(column, Term::Field(Box::new(value), field))?;
        }
        Ok(value)
    }

    fn name(&mut self, column: usize, word: String) -> Result<Syntax> {
        let term = match &*word {
            "True" => Term::Truth(true),
            "False" => Term::Truth(false),
            "inf" => Term::Float(f64::INFINITY),
            "nan" => Term::Float(f64::NAN),
            _ if self.sign("(").is_some() => {
                let arguments = self.within(|parser| parser.arguments(")"))?;
                Term::Call(word, arguments)
            }
            _ => Term::Name(word),
        };
        Syntax::new(column, term)
    }
}

fn is_reserved(word: &str) -> bool {
    matches!(word, "and" | "or" | "not" | "in")
}

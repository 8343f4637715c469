//! Literals of Python: the language of `.npy` headers, and of dtypes with fields.
//!
//! ```text
//! {'descr': [('x', '<f8'), ('v', '<f4', (3,))], 'fortran_order': False, 'shape': (4,), }
//! ```
//!
//! This module reads as much of Python as NumPy writes there: dictionaries, lists, tuples, strings,
//! truth values and numbers from 0 to 2^64 - 1. Nesting is limited, for texts come from outside.

use std::fmt;

/// The most literals within one another.
const DEPTH_MAX: usize = 32;
/// The letters of escapes that Python's `repr` writes, each with what it stands for.
const ESCAPES: [(char, char); 6] = [
    ('\\', '\\'),
    ('\'', '\''),
    ('"', '"'),
    ('n', '\n'),
    ('r', '\r'),
    ('t', '\t'),
];

/// A literal of Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    /// A string.
    Text(String),
    /// `True` or `False`.
    Truth(bool),
    /// A number.
    Number(u64),
    /// A tuple.
    Tuple(Vec<Literal>),
    /// A list.
    List(Vec<Literal>),
    /// A dictionary, in the order of its keys in the text.
    Dictionary(Vec<(String, Literal)>),
}

impl Literal {
    /// The string, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The numbers of a tuple of numbers.
    pub(crate) fn numbers(&self) -> Option<Vec<u64>> {
        let Self::Tuple(items) = self else {
            return None;
        };
        let number = |item: &Self| match item {
            Self::Number(number) => Some(*number),
            _ => None,
        };
        items.iter().map(number).collect()
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |items: &[Self]| {
            let items: Vec<String> = items.iter().map(Self::to_string).collect();
            items.join(", ")
        };
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Truth(true) => f.write_str("True"),
            Self::Truth(false) => f.write_str("False"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Tuple(items) if items.len() == 1 => write!(f, "({},)", items[0]),
            Self::Tuple(items) => write!(f, "({})", listed(items)),
            Self::List(items) => write!(f, "[{}]", listed(items)),
            Self::Dictionary(pairs) => {
                let pairs = pairs.iter();
                let pairs = pairs.map(|(key, value)| format!("{}: {value}", quoted(key)));
                write!(f, "{{{}}}", pairs.collect::<Vec<String>>().join(", "))
            }
        }
    }
}

/// Reads a text that is one literal, with nothing but space around it.
///
/// # Errors
/// What stands where something else should, in words that follow a subject, as `has "x" where ':'
/// should stand`.
pub(crate) fn parse(text: &str) -> Result<Literal, String> {
    let mut reader = Reader {
        rest: text,
        depth: 0,
    };
    let literal = reader.literal()?;
    match reader.rest.trim().is_empty() {
        true => Ok(literal),
        false => Err(reader.wrong("the end")),
    }
}

/// A string as Python's `repr` writes it.
pub(crate) fn quoted(text: &str) -> String {
    let quote = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    let mut out = String::from(quote);
    for sign in text.chars() {
        let escape = ESCAPES.iter().find(|(_, stands_for)| *stands_for == sign);
        match escape {
            Some(('\'' | '"', _)) if sign != quote => out.push(sign),
            Some((letter, _)) => out.extend(['\\', *letter]),
            None if sign.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(sign))),
            None => out.push(sign),
        }
    }
    out.push(quote);
    out
}

/// Reads literals from the front of a text.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn accept(&mut self, sign: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        match self.accept(sign) {
            true => Ok(()),
            false => Err(self.wrong(&format!("{sign:?}"))),
        }
    }

    fn wrong(&self, wanted: &str) -> String {
        let found: String = self.rest.chars().take(20).collect();
        format!("has {found:?} where {wanted} should stand")
    }

    fn literal(&mut self) -> Result<Literal, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("has more than {DEPTH_MAX} literals in one another"));
        }
        self.rest = self.rest.trim_start();
        let literal = match self.rest.chars().next() {
            Some('\'' | '"') => Literal::Text(self.string()?),
            Some('(') => self.tuple()?,
            Some('[') => Literal::List(self.items('[', ']', Self::literal)?.0),
            Some('{') => Literal::Dictionary(self.items('{', '}', Self::pair)?.0),
            Some('0'..='9') => Literal::Number(self.number()?),
            _ => Literal::Truth(self.truth()?),
        };
        self.depth -= 1;
        Ok(literal)
    }

    /// A tuple; of one literal in brackets without a comma, the literal.
    fn tuple(&mut self) -> Result<Literal, String> {
        let (mut items, ends_with_comma) = self.items('(', ')', Self::literal)?;
        match (items.len(), ends_with_comma) {
            (1, false) => Ok(items.remove(0)),
            _ => Ok(Literal::Tuple(items)),
        }
    }

    /// What stands between two brackets, and whether a comma is the last of it.
    fn items<T>(
        &mut self,
        start: char,
        end: char,
        item: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<(Vec<T>, bool), String> {
        self.expect(start)?;
        let mut items = Vec::new();
        while !self.accept(end) {
            items.push(item(self)?);
            if !self.accept(',') {
                self.expect(end)?;
                return Ok((items, false));
            }
        }
        let ends_with_comma = !items.is_empty();
        Ok((items, ends_with_comma))
    }

    fn pair(&mut self) -> Result<(String, Literal), String> {
        self.rest = self.rest.trim_start();
        let key = self.string()?;
        self.expect(':')?;
        Ok((key, self.literal()?))
    }

    fn string(&mut self) -> Result<String, String> {
        let mut signs = self.rest.chars();
        let quote = signs.next().filter(|sign| matches!(sign, '\'' | '"'));
        let quote = quote.ok_or_else(|| self.wrong("a string"))?;
        let mut string = String::new();
        loop {
            match signs.next() {
                Some(sign) if sign == quote => break,
                Some('\\') => {
                    let escaped = escaped(&mut signs);
                    string.push(escaped.ok_or_else(|| self.wrong("a string"))?);
                }
                Some(sign) => string.push(sign),
                None => return Err(self.wrong("a string")),
            }
        }
        self.rest = signs.as_str();
        Ok(string)
    }

    fn truth(&mut self) -> Result<bool, String> {
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.wrong("a literal"))
    }

    fn number(&mut self) -> Result<u64, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let number = digits.parse();
        let number = number.map_err(|_| self.wrong("a number of 64 bits"))?;
        // Python 2 wrote long integers with an L.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(number)
    }
}

/// What an escape stands for, from the character after the backslash on.
fn escaped(signs: &mut std::str::Chars<'_>) -> Option<char> {
    let letter = signs.next()?;
    let digits = match letter {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => {
            let escape = ESCAPES.iter().find(|(known, _)| *known == letter);
            return escape.map(|(_, stands_for)| *stands_for);
        }
    };
    let digits: String = signs.take(digits).collect();
    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_those_of_python() {
        let text =
            r#" {"a": [('x', '<f8'), ("y's", 'u1', (2,))], 'b': True, 'c': (3L, 4), 'd': ()} "#;
        let word = |text: &str| Literal::Text(text.to_string());
        let fields = Literal::List(vec![
            Literal::Tuple(vec![word("x"), word("<f8")]),
            Literal::Tuple(vec![
                word("y's"),
                word("u1"),
                Literal::Tuple(vec![Literal::Number(2)]),
            ]),
        ]);
        let pairs = [
            ("a", fields),
            ("b", Literal::Truth(true)),
            (
                "c",
                Literal::Tuple(vec![Literal::Number(3), Literal::Number(4)]),
            ),
            ("d", Literal::Tuple(Vec::new())),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_string(), value));
        assert_eq!(parse(text), Ok(Literal::Dictionary(pairs.to_vec())));
        assert_eq!(parse("(5)"), Ok(Literal::Number(5)));
        assert_eq!(parse("[]"), Ok(Literal::List(Vec::new())));
    }

    #[test]
    fn strings_come_back_as_they_were() {
        for (text, quoted_text) in [
            ("x", "'x'"),
            ("it's", "\"it's\""),
            ("both \" and '", r#"'both " and \''"#),
            ("a\\b\n\t\r", r"'a\\b\n\t\r'"),
            ("\u{1}\u{7f}", r"'\x01\x7f'"),
            ("größe \u{1f600}", "'größe \u{1f600}'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), quoted_text);
            assert_eq!(parse(quoted_text), Ok(Literal::Text(text.to_string())));
        }
        let escapes = parse(r"'\u00e9\U0001f600'");
        assert_eq!(escapes, Ok(Literal::Text("é\u{1f600}".to_string())));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        let deep = format!("{}{}", "(".repeat(100_000), ")".repeat(100_000));
        for text in [
            "",
            "x",
            "'x",
            "(1 2)",
            "(1,",
            "[,]",
            "{1: 2}",
            "-1",
            "{'a' 1}",
            "1 2",
            r"'\q'",
            r"'\ud800'",
            r"'\xzz'",
            r"'\",
            "99999999999999999999",
            &deep,
        ] {
            assert!(parse(text).is_err(), "{text:.20}");
        }
    }
}

//! The encoding of values as the bodies of messages.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Kind, Result};

/// Encodes a value as a message's body.
///
/// # Errors
/// When the value cannot be encoded.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::new(Kind::Io, "encoding a message", e))
}

/// Decodes a message's body.
///
/// # Errors
/// When the body does not hold such a value, or holds more.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let wrong = |cause: String| Error::new(Kind::Io, "decoding a message", cause);
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(wrong(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

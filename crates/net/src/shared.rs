//! A value that several threads share, and that is replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

/// A shared value.
#[derive(Debug, Clone)]
pub struct Shared<T>(Arc<RwLock<T>>);

impl<T: Clone> Shared<T> {
    /// Shares a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(value)))
    }

    /// The value as it is now.
    pub fn read(&self) -> T {
        let value = self.0.read();
        value.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another value in its place.
    pub fn replace(&self, value: T) {
        let former = self.0.write();
        *former.unwrap_or_else(PoisonError::into_inner) = value;
    }
}

//! The words for layouts and methods, given and shown.

use crate::experiment::Method;
use penstock_sim::machine::Layout;

/// All layouts, by name.
pub const LAYOUTS: [(&str, Layout); 3] = [
    ("contiguous", Layout::Contiguous),
    ("random-blocks", Layout::RandomBlocks),
    ("random-tracks", Layout::RandomTracks),
];

/// All methods, by name.
pub const METHODS: [(&str, Method); 4] = [
    ("caching", Method::Caching),
    ("two-phase", Method::TwoPhase),
    ("ddio", Method::Ddio),
    ("ddio-sort", Method::DdioSort),
];

/// The name of a layout.
pub fn layout(layout: Layout) -> &'static str {
    match layout {
        Layout::Contiguous => "contiguous",
        Layout::RandomBlocks => "random-blocks",
        Layout::RandomTracks => "random-tracks",
    }
}

/// The name of a method.
pub fn method(method: Method) -> &'static str {
    match method {
        Method::Caching => "caching",
        Method::TwoPhase => "two-phase",
        Method::Ddio => "ddio",
        Method::DdioSort => "ddio-sort",
    }
}

/// Finds the layout of that name; `random` is short for `random-blocks`.
pub fn parse_layout(name: &str) -> Option<Layout> {
    let name = if name == "random" {
        "random-blocks"
    } else {
        name
    };
    let found = LAYOUTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, layout)| *layout)
}

/// Finds the method of that name.
pub fn parse_method(name: &str) -> Option<Method> {
    let found = METHODS.iter().find(|(known, _)| *known == name);
    found.map(|(_, method)| *method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for (name, known) in LAYOUTS {
            assert_eq!((layout(known), parse_layout(name)), (name, Some(known)));
        }
        for (name, known) in METHODS {
            assert_eq!((method(known), parse_method(name)), (name, Some(known)));
        }
        assert_eq!(parse_layout("random"), Some(Layout::RandomBlocks));
        assert_eq!(parse_method("2pio"), None);
    }
}

//! A scenario explained to a person.

/// Explains every scenario of a file.
pub fn explain_all(text: &str) -> (String, bool) {
    (text.to_owned(), true)
}

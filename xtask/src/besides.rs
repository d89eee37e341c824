//! What is written by hand beside a page of results: which tests show the rest, and what is left out.

use std::fs;

use anyhow::{Context, Result, ensure};

/// The text, whose tests must be there.
pub(crate) fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let missing = missing_tests(&text, |file| fs::read_to_string(file).ok());
    ensure!(
        missing.is_empty(),
        "{path} names tests that are not there: {}",
        missing.join(", ")
    );
    Ok(text)
}

/// The tests that a text names, `` `in/this/file.rs`: `test`, `test` ``, and that the file does not have.
fn missing_tests(text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut missing = Vec::new();
    for line in text.lines() {
        let (mut file, mut code) = ("", String::new());
        for word in line.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                (file, code) = (word, read(word).unwrap_or_default());
            } else if !file.is_empty() && !has_word(&code, word) {
                missing.push(format!("{word} in {file}"));
            }
        }
    }
    missing
}

fn has_word(code: &str, word: &str) -> bool {
    let mut words = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let text = "| E1 | `a.rs`: `one`, `gone`; `none.rs`: `two` |";
        let read =
            |file: &str| (file == "a.rs").then(|| "fn one() {}; fn one_gone() {}".to_owned());
        assert_eq!(
            missing_tests(text, read),
            ["gone in a.rs", "two in none.rs"]
        );
    }
}

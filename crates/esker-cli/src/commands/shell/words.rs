//! Splits a line of the shell into words at spaces outside of quotes.
//!
//! Only spaces and quotes are special. A backslash is literal, as in arguments.

/// Splits a line into words. The error describes what is wrong with it.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                // Empty quotes are an empty word.
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(format!("the quote {open} is not closed")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

/// Quotes a word so that [`split`] returns it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"".contains(c));
    match (is_plain, word.contains('\'')) {
        (true, _) => word.to_owned(),
        (false, false) => format!("'{word}'"),
        // A quote of one kind is put inside quotes of the other.
        (false, true) => word.split('\'').map(|part| format!("'{part}'")).collect::<Vec<_>>().join("\"'\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_and_words_come_back() {
        let words = |line| split(line).map(|words| words.join("|"));
        assert_eq!(words("  put  ann   'Ann Smith' "), Ok("put|ann|Ann Smith".to_owned()));
        assert_eq!(words("put a\"b c\"d ''"), Ok("put|ab cd|".to_owned()));
        assert_eq!(words("put C:\\new \"it's\""), Ok("put|C:\\new|it's".to_owned()));
        assert_eq!(words(""), Ok(String::new()));
        assert_eq!(words("get 'a"), Err("the quote ' is not closed".to_owned()));
        for word in ["plain", "", "two words", "it's", "'\" '", "\\n"] {
            assert_eq!(split(&quoted(word)), Ok(vec![word.to_owned()]), "{word}");
        }
    }
}

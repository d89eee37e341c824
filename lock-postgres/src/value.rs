//! The values that go with a statement: bound to it where it is prepared, written into it where it cannot be.

use std::fmt::Write;

use distlock_api::{Error, ErrorKind};
use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgArguments;

/// A value for a statement.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    Text(Option<&'a str>),
    Bytes(&'a [u8]),
    Bigint(Option<i64>),
    Texts(Vec<&'a str>),
    Byteses(Vec<&'a [u8]>),
    Bigints(Vec<i64>),
}

impl Value<'_> {
    /// Adds it to those of a prepared statement.
    pub(crate) fn bind(&self, arguments: &mut PgArguments) -> Result<(), BoxDynError> {
        match self {
            Self::Text(text) => arguments.add(text),
            Self::Bytes(bytes) => arguments.add(bytes),
            Self::Bigint(number) => arguments.add(number),
            Self::Texts(texts) => arguments.add(texts),
            Self::Byteses(many) => arguments.add(many),
            Self::Bigints(numbers) => arguments.add(numbers),
        }
    }

    fn has_zero_byte(&self) -> bool {
        match self {
            Self::Text(text) => text.is_some_and(|text| text.contains('\0')),
            Self::Texts(texts) => texts.iter().any(|text| text.contains('\0')),
            _ => false,
        }
    }

    /// Writes it as an expression that means the same whatever the session's settings are.
    fn write(&self, sql: &mut String) {
        match self {
            Self::Text(None) => sql.push_str("NULL::text"),
            Self::Text(Some(text)) => write_text(sql, text),
            Self::Bytes(bytes) => write_bytes(sql, bytes),
            Self::Bigint(None) => sql.push_str("NULL::bigint"),
            Self::Bigint(Some(number)) => write_bigint(sql, *number),
            Self::Texts(texts) => {
                write_array(sql, "text", texts, |sql, text| write_text(sql, text))
            }
            Self::Byteses(many) => {
                write_array(sql, "bytea", many, |sql, bytes| write_bytes(sql, bytes));
            }
            Self::Bigints(numbers) => {
                write_array(sql, "bigint", numbers, |sql, number| {
                    write_bigint(sql, *number);
                });
            }
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a [u8; 16]> for Value<'a> {
    fn from(bytes: &'a [u8; 16]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Bigint(Some(number))
    }
}

/// The statement with its values in place of `$1`, `$2` and so on, in one pass. What stands in quotes is left alone;
/// comments were taken out before.
///
/// # Errors
///
/// For a text with a zero byte, which no text of the server can have.
pub(crate) fn filled(sql: &str, values: &[Value<'_>]) -> sqlx::Result<String> {
    if values.iter().any(Value::has_zero_byte) {
        let text = "a text has a zero byte, which the server cannot store: leave it out";
        let error = Error::new(ErrorKind::InvalidOption, text);
        return Err(sqlx::Error::Encode(error.into()));
    }
    let mut filled = String::with_capacity(sql.len() + 64 * values.len());
    let mut open = None;
    let mut rest = sql.chars().peekable();
    while let Some(char) = rest.next() {
        // A doubled quote closes and opens again.
        open = match (open, char) {
            (None, '\'' | '"') => Some(char),
            (Some(quote), char) if quote == char => None,
            _ => open,
        };
        if char != '$' || open.is_some() {
            filled.push(char);
            continue;
        }
        let mut number = 0;
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            number = number * 10 + digit as usize - '0' as usize;
        }
        values[number - 1].write(&mut filled);
    }
    Ok(filled)
}

/// As an escape string, so that `standard_conforming_strings` plays no part. What is not ASCII goes as bytes, so that
/// neither does the encoding that another client of a pooler may have set.
fn write_text(sql: &mut String, text: &str) {
    if !text.is_ascii() {
        sql.push_str("convert_from(");
        write_bytes(sql, text.as_bytes());
        return sql.push_str(", 'UTF8')");
    }
    sql.push_str("E'");
    for char in text.chars() {
        if matches!(char, '\'' | '\\') {
            sql.push(char);
        }
        sql.push(char);
    }
    sql.push_str("'::text");
}

/// Without a backslash, for the same reason.
fn write_bytes(sql: &mut String, bytes: &[u8]) {
    sql.push_str("decode('");
    for byte in bytes {
        write!(sql, "{byte:02x}").expect("a String takes all");
    }
    sql.push_str("', 'hex')");
}

/// In quotes, because a minus binds less than the cast and the least number has no positive.
fn write_bigint(sql: &mut String, number: i64) {
    write!(sql, "'{number}'::bigint").expect("a String takes all");
}

fn write_array<T>(sql: &mut String, kind: &str, items: &[T], write_item: impl Fn(&mut String, &T)) {
    sql.push_str("ARRAY[");
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            sql.push(',');
        }
        write_item(sql, item);
    }
    write!(sql, "]::{kind}[]").expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_their_numbers_are_and_nowhere_in_quotes() {
        let values: Vec<Value<'_>> = (1..=11).map(Value::from).collect();
        let sql = r#"SELECT $1, $11, '$1', "a$1", 'it''s $2', "x""$3" FROM t WHERE a=$2"#;
        assert_eq!(
            filled(sql, &values).unwrap(),
            r#"SELECT '1'::bigint, '11'::bigint, '$1', "a$1", 'it''s $2', "x""$3" FROM t WHERE a='2'::bigint"#
        );
    }

    #[test]
    fn a_value_is_not_looked_at_for_further_values() {
        let values = [Value::from("$2 '"), Value::from(7)];
        let filled = filled("SELECT $1, $2", &values).unwrap();
        assert_eq!(filled, "SELECT E'$2 '''::text, '7'::bigint");
    }

    #[test]
    fn every_kind_of_value_is_typed() {
        for (value, expected) in [
            (Value::Text(None), "NULL::text"),
            (r"a\'b".into(), r"E'a\\''b'::text"),
            ("ö".into(), "convert_from(decode('c3b6', 'hex'), 'UTF8')"),
            (Value::Bytes(&[0, 255, 16]), "decode('00ff10', 'hex')"),
            (i64::MIN.into(), "'-9223372036854775808'::bigint"),
            (Value::Bigint(None), "NULL::bigint"),
            (
                Value::Texts(vec!["a", "'"]),
                "ARRAY[E'a'::text,E''''::text]::text[]",
            ),
            (Value::Byteses(vec![]), "ARRAY[]::bytea[]"),
            (Value::Bigints(vec![1]), "ARRAY['1'::bigint]::bigint[]"),
        ] {
            assert_eq!(filled("$1", &[value]).unwrap(), expected);
        }
    }

    #[test]
    fn a_zero_byte_is_refused() {
        for value in [
            Value::from("a\0b"),
            "ö\0".into(),
            Value::Texts(vec!["a", "\0"]),
        ] {
            assert!(filled("SELECT $1", &[value]).is_err());
        }
    }
}

//! The table of the locks.

use std::fmt;

use distlock_api::{Error, ErrorKind, Result};

/// Which table holds the locks. Every client of a lock must use the same one.
///
/// Names are taken as they are and always quoted: `Jobs` and `jobs` are two tables.
///
/// ```
/// use distlock_postgres::Table;
///
/// let table = Table::new("job_locks")?.in_schema("ops")?;
/// assert_eq!(table.to_string(), r#""ops"."job_locks""#);
/// # Ok::<(), distlock_api::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: Option<String>,
    name: String,
}

impl Table {
    /// The longest name of a table or schema, in bytes. PostgreSQL would cut a longer one.
    pub const MAX_BYTES: usize = 63;

    /// A table in the first schema of the session's search path that has it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an empty name, one of more than [`MAX_BYTES`](Self::MAX_BYTES) bytes, or one with
    /// control characters.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        Ok(Self {
            schema: None,
            name: identifier("table", name.into())?,
        })
    }

    /// The same table in this schema.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn in_schema(mut self, schema: impl Into<String>) -> Result<Self> {
        self.schema = Some(identifier("schema", schema.into())?);
        Ok(self)
    }

    /// The name, if the search path is to find the schema.
    pub(crate) fn bare_name(&self) -> Option<&str> {
        self.schema.is_none().then_some(&self.name)
    }

    /// A quoted name for this table once another takes its place.
    pub(crate) fn name_of_old(&self) -> String {
        let mut name = self.name.clone();
        while name.len() + "_old".len() > Self::MAX_BYTES {
            name.pop();
        }
        quoted(&(name + "_old"))
    }

    /// The quoted schema, if one was given.
    pub(crate) fn quoted_schema(&self) -> Option<String> {
        self.schema.as_deref().map(quoted)
    }
}

/// `distlock_locks`, found by the search path.
impl Default for Table {
    fn default() -> Self {
        Self {
            schema: None,
            name: "distlock_locks".to_owned(),
        }
    }
}

/// Quoted, as it stands in SQL.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = self.quoted_schema() {
            write!(f, "{schema}.")?;
        }
        f.write_str(&quoted(&self.name))
    }
}

/// The SQL that makes the table, for people and their migration tools. It may be run again.
///
/// The schema must exist.
pub fn schema_sql(table: &Table) -> String {
    include_str!("statements/schema.sql").replace("{table}", &table.to_string())
}

fn identifier(what: &str, name: String) -> Result<String> {
    let complaint = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > Table::MAX_BYTES {
        format!("has {} bytes", name.len())
    } else if name.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(name);
    };
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "the {what} name \"{}\" {complaint}: use 1 to {} bytes without control characters",
            name.escape_debug(),
            Table::MAX_BYTES
        ),
    ))
}

pub(crate) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_whatever_they_contain() {
        let table = Table::new(r#"x"; DROP TABLE y; --"#).unwrap();
        assert_eq!(table.to_string(), r#""x""; DROP TABLE y; --""#);
        let table = table.in_schema("a.b").unwrap();
        assert_eq!(table.to_string(), r#""a.b"."x""; DROP TABLE y; --""#);
        assert!(schema_sql(&table).contains(r#"TABLE IF NOT EXISTS "a.b"."x""; DROP"#));
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for (name, reason) in [
            ("", "is empty"),
            (&*"x".repeat(64), "has 64 bytes"),
            (&*"ö".repeat(32), "has 64 bytes"),
            ("a\0b", "control character"),
            ("a\nb", "control character"),
        ] {
            for error in [
                Table::new(name).unwrap_err(),
                Table::default().in_schema(name).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(reason), "{error}");
            }
        }
        assert!(Table::new("x".repeat(63)).is_ok());
    }

    #[test]
    fn the_name_of_an_old_table_is_another_and_fits() {
        for (name, old) in [
            ("jobs", "\"jobs_old\"".to_owned()),
            (&*"x".repeat(63), format!("\"{}_old\"", "x".repeat(59))),
            (&*"ö".repeat(31), format!("\"{}_old\"", "ö".repeat(29))),
        ] {
            assert_eq!(Table::new(name).unwrap().name_of_old(), old);
        }
    }
}

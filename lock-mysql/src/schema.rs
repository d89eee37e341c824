//! The table of the locks.

use std::fmt;

use distlock_api::{Error, ErrorKind, Result};

/// Which table holds the locks. Every client of a lock must use the same one.
///
/// Names are taken as they are and always quoted: `Jobs` and `jobs` are two tables, unless the server's
/// `lower_case_table_names` says otherwise.
///
/// ```
/// use distlock_mysql::Table;
///
/// let table = Table::new("job_locks")?.in_schema("ops")?;
/// assert_eq!(table.to_string(), "`ops`.`job_locks`");
/// # Ok::<(), distlock_api::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: Option<String>,
    name: String,
}

impl Table {
    /// The longest name of a table or schema, in characters.
    pub const MAX_CHARS: usize = 64;

    /// A table in the database that the URL or the connect options name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a name that the servers cannot have: an empty one, one of more than
    /// [`MAX_CHARS`](Self::MAX_CHARS) characters, one with control characters or characters beyond U+FFFF, or one that
    /// ends with a blank.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        Ok(Self {
            schema: None,
            name: identifier("table", name.into())?,
        })
    }

    /// The same table in this schema, which is the same as a database here.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn in_schema(mut self, schema: impl Into<String>) -> Result<Self> {
        self.schema = Some(identifier("schema", schema.into())?);
        Ok(self)
    }

    /// The name without quotes.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The schema without quotes, if one was given.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }
}

/// `distlock_locks`, in the connection's database.
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
        if let Some(schema) = &self.schema {
            write!(f, "{}.", quoted(schema))?;
        }
        f.write_str(&quoted(&self.name))
    }
}

/// The SQL that makes the table, for people and their migration tools. It may be run again, and is the same for MySQL and
/// MariaDB.
///
/// The schema must exist.
pub fn schema_sql(table: &Table) -> String {
    include_str!("statements/schema.sql").replace("{table}", &table.to_string())
}

fn identifier(what: &str, name: String) -> Result<String> {
    let length = name.chars().count();
    let complaint = if name.is_empty() {
        "is empty".to_owned()
    } else if length > Table::MAX_CHARS {
        format!("has {length} characters")
    } else if name.chars().any(|c| c.is_control() || c > '\u{FFFF}') {
        "has a character that no name of the server's can have".to_owned()
    } else if name.ends_with(' ') {
        "ends with a blank".to_owned()
    } else {
        return Ok(name);
    };
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "the {what} name \"{}\" {complaint}: use 1 to {} characters, none of them a control character",
            name.escape_debug(),
            Table::MAX_CHARS
        ),
    ))
}

pub(crate) fn quoted(identifier: &str) -> String {
    format!("`{}`", identifier.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_whatever_they_contain() {
        let table = Table::new("x`; DROP TABLE y; --").unwrap();
        assert_eq!(table.to_string(), "`x``; DROP TABLE y; --`");
        let table = table.in_schema("a.b").unwrap();
        assert_eq!(table.to_string(), "`a.b`.`x``; DROP TABLE y; --`");
        assert!(schema_sql(&table).contains("TABLE IF NOT EXISTS `a.b`.`x``; DROP"));
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for (name, reason) in [
            ("", "is empty"),
            (&*"x".repeat(65), "has 65 characters"),
            (&*"ö".repeat(65), "has 65 characters"),
            ("a\0b", "no name of the server's"),
            ("a\nb", "no name of the server's"),
            ("a😀", "no name of the server's"),
            ("a ", "ends with a blank"),
        ] {
            for error in [
                Table::new(name).unwrap_err(),
                Table::default().in_schema(name).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(reason), "{error}");
            }
        }
        assert!(Table::new("ö".repeat(64)).is_ok());
    }
}

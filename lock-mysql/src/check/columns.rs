//! The columns, keys and constraints of the table.

use distlock_api::{ErrorKind, Finding, Findings};
use sqlx::MySqlConnection;

use super::{new_table, rows};
use crate::schema::{Table, quoted};

/// What the table needs: column, type, whether it refuses null.
const COLUMNS: [(&str, &str, bool); 8] = [
    ("name", "varchar(255)", true),
    ("lock_until", "datetime(6)", true),
    ("locked_at", "datetime(6)", true),
    ("locked_by", "varchar(255)", true),
    ("token", "binary(16)", true),
    ("fence", "bigint unsigned", true),
    ("last_tick", "bigint", false),
    ("resting", "tinyint(1)", true),
];

/// Byte for byte, to the last blank: MySQL's and MariaDB's.
const COLLATIONS: [&str; 2] = ["utf8mb4_0900_bin", "utf8mb4_nopad_bin"];

/// A row of `check_columns.sql`: name, type, collation, takes null, has a default, gets a number by itself, is generated.
type Column = (String, String, String, bool, bool, bool, bool);

/// A row of `check_keys.sql`: the key, whether this column of it is the whole name.
type KeyPart = (String, bool);

/// A row of `check_constraints.sql`: name, whether it is a foreign key, whether it may be part of the column of this name.
type Constraint = (String, bool, bool);

pub(super) async fn check(
    connection: &mut MySqlConnection,
    table: &Table,
) -> sqlx::Result<Findings> {
    let columns: Vec<Column> = rows(
        connection,
        table,
        include_str!("../statements/check_columns.sql"),
    )
    .await?;
    let keys: Vec<KeyPart> = rows(
        connection,
        table,
        include_str!("../statements/check_keys.sql"),
    )
    .await?;
    let constraints: Vec<Constraint> = rows(
        connection,
        table,
        include_str!("../statements/check_constraints.sql"),
    )
    .await?;
    let wanted = COLUMNS
        .into_iter()
        .filter_map(|wanted| column_complaint(wanted, &columns));
    let strange = columns.iter().filter_map(strange_complaint);
    let constraints = constraints
        .iter()
        .filter_map(|constraint| constraint_complaint(constraint, &columns));
    // A foreign key before the index that it needs.
    let complaints = wanted
        .chain(strange)
        .chain(constraints)
        .chain(key_complaints(&keys));
    Ok(faults(table, complaints.collect()))
}

/// Where one of them takes a new table, that mends the others, too.
fn faults(table: &Table, complaints: Vec<Complaint>) -> Findings {
    let changes: Option<Vec<_>> = complaints
        .iter()
        .map(|(_, change)| change.as_ref())
        .collect();
    let fixes = match changes {
        Some(changes) => changes
            .iter()
            .map(|change| format!("ALTER TABLE {table} {change}"))
            .collect(),
        None => vec![new_table(table); complaints.len()],
    };
    let faults = complaints.iter().zip(fixes);
    faults
        .map(|((what, _), fix)| Finding::fault(ErrorKind::Config, format!("{table} {what}"), fix))
        .collect()
}

/// What is wrong, and the change that mends it for certain, whatever is in the table, if there is one.
type Complaint = (String, Option<String>);

fn column_complaint(
    (name, kind, not_null): (&str, &str, bool),
    columns: &[Column],
) -> Option<Complaint> {
    let Some(column) = columns.iter().find(|column| column.0 == name) else {
        return Some((format!("has no column {name}"), None));
    };
    let (_, its_kind, collation, nullable, _, _, is_generated) = column;
    let what = if *is_generated {
        format!("has the column {name} as a generated one")
    } else if !fits(kind, its_kind) {
        format!("has the column {name} as {its_kind}")
    } else if name == "name" && !COLLATIONS.contains(&&**collation) {
        format!("takes different names for the same (collation {collation})")
    } else if name == "locked_by" && !collation.starts_with("utf8mb4") {
        format!("cannot store every text in the column {name} (collation {collation})")
    } else if *nullable == not_null {
        let verb = if not_null { "takes" } else { "refuses" };
        format!("{verb} null in the column {name}")
    } else {
        return None;
    };
    Some((what, None))
}

/// Both servers write the same types in different ways. More room does no harm.
fn fits(wanted: &str, found: &str) -> bool {
    let length = |kind: &str| -> Option<u32> {
        let length = kind.strip_prefix("varchar(")?.strip_suffix(')')?;
        length.parse().ok()
    };
    match (length(wanted), length(found)) {
        (Some(wanted), Some(found)) => found >= wanted,
        _ => found.replace("bigint(20)", "bigint") == wanted,
    }
}

fn strange_complaint(
    (name, _, _, nullable, has_default, is_numbered, is_generated): &Column,
) -> Option<Complaint> {
    let is_wanted = COLUMNS.iter().any(|(wanted, ..)| wanted == name);
    let name = quoted(name);
    let what = if *is_numbered {
        format!(
            "has the column {name} with AUTO_INCREMENT, whose number would be taken for the fencing token"
        )
    } else if *is_generated && !is_wanted {
        format!("has the generated column {name} that can refuse a lock")
    } else if !is_wanted && !nullable && !has_default {
        format!("has a further column {name} that needs a value")
    } else {
        return None;
    };
    Some((what, None))
}

/// One key is on the name alone, and no other one can refuse a row.
fn key_complaints(keys: &[KeyPart]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut has_key = false;
    for parts in keys.chunk_by(|(one, _), (other, _)| one == other) {
        let key = quoted(&parts[0].0);
        let has_name = parts.iter().any(|(_, is_name)| *is_name);
        has_key |= has_name && parts.len() == 1;
        if !has_name {
            let what = format!("has the key {key} that can refuse a lock");
            complaints.push((what, Some(format!("DROP INDEX {key}"))));
        }
    }
    if !has_key {
        complaints.insert(0, ("has no key on name alone".to_owned(), None));
    }
    complaints
}

/// A value that one of these refuses would be a lock that is refused.
fn constraint_complaint(
    (name, is_foreign_key, may_be_of_column): &Constraint,
    columns: &[Column],
) -> Option<Complaint> {
    let is_wanted = COLUMNS.iter().any(|(wanted, ..)| wanted == name);
    let is_further = !is_wanted && columns.iter().any(|(column, ..)| column == name);
    let quoted = quoted(name);
    let change = match (*is_foreign_key, *may_be_of_column) {
        (true, _) => Some(format!("DROP FOREIGN KEY {quoted}")),
        // Each column of JSON has one, and we write to no further column.
        (false, true) if is_further => return None,
        // It cannot be dropped where it is part of the column.
        (false, true) if is_wanted => None,
        (false, _) => Some(format!("DROP CONSTRAINT {quoted}")),
    };
    let what = format!("has the constraint {quoted} that can refuse a lock");
    Some((what, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is made in one place and checked in another.
    #[test]
    fn the_printed_schema_has_every_column() {
        let sql = crate::schema_sql(&Table::default());
        for (name, kind, not_null) in COLUMNS {
            let definition = format!("    {name} {kind}").replace("tinyint(1)", "boolean");
            let line = sql.lines().find(|line| line.starts_with(&definition));
            let line = line.unwrap_or_else(|| panic!("no {definition}"));
            assert_eq!(line.contains("NOT NULL"), not_null, "{line}");
        }
    }
}

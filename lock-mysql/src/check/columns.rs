//! The columns, keys and constraints of the table.

use distlock_api::{ErrorKind, Finding, Findings};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, MySqlConnection};

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
    let columns: Vec<Column> =
        rows(connection, table, include_str!("../statements/check_columns.sql")).await?;
    let keys: Vec<KeyPart> =
        rows(connection, table, include_str!("../statements/check_keys.sql")).await?;
    let constraints: Vec<Constraint> =
        rows(connection, table, include_str!("../statements/check_constraints.sql")).await?;
    let wanted = COLUMNS
        .into_iter()
        .filter_map(|wanted| column_complaint(wanted, &columns));
    let strange = columns.iter().filter_map(strange_complaint);
    let constraints = constraints
        .iter()
        .filter_map(|constraint| constraint_complaint(constraint, &columns));
    let complaints = wanted
        .chain(strange)
        .chain(key_complaints(&keys))
        .chain(constraints);
    Ok(complaints
        .map(|(what, change)| {
            let what = format!("{table} {what}");
            Finding::fault(
                ErrorKind::Config,
                what,
                format!("ALTER TABLE {table} {change}"),
            )
        })
        .collect())
}

/// What a statement of the check says of the table.
async fn rows<R>(
    connection: &mut MySqlConnection,
    table: &Table,
    statement: &'static str,
) -> sqlx::Result<Vec<R>>
where
    R: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
{
    sqlx::query_as(statement)
        .bind(table.schema())
        .bind(table.name())
        .persistent(false)
        .fetch_all(connection)
        .await
}

/// What is wrong, and the change that mends it.
type Complaint = (String, String);

fn column_complaint(
    (name, kind, not_null): (&str, &str, bool),
    columns: &[Column],
) -> Option<Complaint> {
    let fix = |verb: &str| format!("{verb} COLUMN {}", definition(name, kind, not_null));
    let Some(column) = columns.iter().find(|column| column.0 == name) else {
        return Some((format!("has no column {name}"), fix("ADD")));
    };
    let (_, its_kind, collation, nullable, _, _, is_generated) = column;
    if *is_generated {
        let what = format!("has the column {name} as a generated one");
        return Some((what, format!("DROP COLUMN {name}, {}", fix("ADD"))));
    }
    let what = if !fits(kind, its_kind) {
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
    Some((what, fix("MODIFY")))
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

/// As the printed schema has it.
fn definition(name: &str, kind: &str, not_null: bool) -> String {
    let text = match name {
        "name" => {
            " CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */"
        }
        "locked_by" => " CHARACTER SET utf8mb4",
        _ => "",
    };
    let null = if not_null { " NOT NULL" } else { "" };
    format!("{name} {kind}{text}{null}")
}

fn strange_complaint(
    (name, kind, _, nullable, has_default, is_numbered, is_generated): &Column,
) -> Option<Complaint> {
    if *is_numbered {
        let name = quoted(name);
        let what = format!(
            "has the column {name} with AUTO_INCREMENT, whose number would be taken for the fencing token"
        );
        return Some((what, format!("DROP COLUMN {name}")));
    }
    let is_wanted = COLUMNS.iter().any(|(wanted, ..)| wanted == name);
    let name = quoted(name);
    if *is_generated && !is_wanted {
        let what = format!("has the generated column {name} that can refuse a lock");
        return Some((what, format!("DROP COLUMN {name}")));
    }
    if is_wanted || *nullable || *has_default {
        return None;
    }
    let what = format!("has a further column {name} that needs a value");
    Some((what, format!("MODIFY COLUMN {name} {kind} NULL")))
}

/// One key is on the name alone, and no other one can refuse a row.
fn key_complaints(keys: &[KeyPart]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut has_key = false;
    for parts in keys.chunk_by(|(one, _), (other, _)| one == other) {
        let key = &parts[0].0;
        let has_name = parts.iter().any(|(_, is_name)| *is_name);
        has_key |= has_name && parts.len() == 1;
        if !has_name {
            let what = format!("has the key {} that can refuse a lock", quoted(key));
            complaints.push((what, format!("DROP INDEX {}", quoted(key))));
        }
    }
    if !has_key {
        let what = "has no key on name alone".to_owned();
        let has_primary = keys.iter().any(|(key, _)| key == "PRIMARY");
        let drop = if has_primary {
            "DROP PRIMARY KEY, "
        } else {
            ""
        };
        complaints.retain(|(_, fix)| fix != "DROP INDEX `PRIMARY`");
        complaints.insert(0, (what, format!("{drop}ADD PRIMARY KEY (name)")));
    }
    complaints
}

/// A value that one of these refuses would be a lock that is refused.
fn constraint_complaint(
    (name, is_foreign_key, may_be_of_column): &Constraint,
    columns: &[Column],
) -> Option<Complaint> {
    let is_column = columns.iter().any(|(column, ..)| column == name);
    let wanted = COLUMNS.iter().find(|(wanted, ..)| wanted == name);
    let quoted = quoted(name);
    let fix = match wanted {
        _ if *is_foreign_key => format!("DROP FOREIGN KEY {quoted}"),
        // Where it is part of the column, the column's definition has to be written anew.
        Some((name, kind, not_null)) if *may_be_of_column => {
            let definition = definition(name, kind, *not_null);
            format!("MODIFY COLUMN {definition}, DROP CONSTRAINT IF EXISTS {quoted}")
        }
        // Each column of JSON has one, and we write to no further column.
        None if *may_be_of_column && is_column => return None,
        _ => format!("DROP CONSTRAINT {quoted}"),
    };
    let what = format!("has the constraint {quoted} that can refuse a lock");
    Some((what, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is made in one place and checked in another.
    #[test]
    fn the_printed_schema_has_every_column() {
        let sql = crate::schema_sql(&Table::default());
        for (name, kind, not_null) in COLUMNS {
            let definition = definition(name, kind, not_null).replace("tinyint(1)", "boolean");
            let definition = definition.strip_suffix(" NOT NULL").unwrap_or(&definition);
            assert!(sql.contains(&format!("    {definition}")), "{definition}");
        }
    }
}

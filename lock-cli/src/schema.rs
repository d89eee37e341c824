use distlock::{mysql, postgres, sqlite};

use crate::args::{SchemaArgs, SqlStore};
use crate::exit::{Exit, Failure};
use crate::output;

/// Prints the SQL that makes the table. Touches no store.
pub(crate) fn schema(args: &SchemaArgs) -> Result<Exit, Failure> {
    let sql = match args.store {
        SqlStore::Mysql => mysql::schema_sql(&mysql_table(args)?),
        SqlStore::Postgres => postgres::schema_sql(&postgres_table(args)?),
        SqlStore::Sqlite if args.schema.is_some() => {
            return Err(Failure::new("SQLite knows no schemas: leave --schema out"));
        }
        SqlStore::Sqlite => {
            sqlite::schema_sql(args.table.as_deref().unwrap_or(sqlite::DEFAULT_TABLE))?
        }
    };
    output::print(&format!("{}\n", sql.trim_end()))?;
    Ok(Exit::Done)
}

fn postgres_table(args: &SchemaArgs) -> distlock::Result<postgres::Table> {
    let table = match &args.table {
        Some(table) => postgres::Table::new(table)?,
        None => postgres::Table::default(),
    };
    match &args.schema {
        Some(schema) => table.in_schema(schema),
        None => Ok(table),
    }
}

fn mysql_table(args: &SchemaArgs) -> distlock::Result<mysql::Table> {
    let table = match &args.table {
        Some(table) => mysql::Table::new(table)?,
        None => mysql::Table::default(),
    };
    match &args.schema {
        Some(schema) => table.in_schema(schema),
        None => Ok(table),
    }
}

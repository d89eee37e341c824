//! Distributed locks in a PostgreSQL table, on the time of the database

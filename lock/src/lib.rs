//! Distributed locks with one interface and many stores: SQLite, PostgreSQL, Redis

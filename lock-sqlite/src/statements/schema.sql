CREATE TABLE IF NOT EXISTS {table} (
    name       TEXT    NOT NULL PRIMARY KEY, -- what is locked, compared byte for byte
    token      BLOB    NOT NULL,             -- which acquisition has it or had it last: 16 bytes
    boot_id    TEXT    NOT NULL,             -- the boot of the machine that boot_until counts in; in any other it is over
    boot_until INTEGER NOT NULL,             -- when the lease ends, in microseconds since that boot
    resting    INTEGER NOT NULL,             -- 1: released, and kept from others until then
    fence      INTEGER NOT NULL,             -- the fencing token of the last grant
    last_tick  INTEGER,                      -- the greatest tick granted so far
    locked_by  TEXT    NOT NULL,             -- for people: who has it or had it last
    locked_at  INTEGER NOT NULL,             -- for people: when it was last granted, in microseconds since 1970
    lock_until INTEGER NOT NULL              -- for people: when the lease ends, in microseconds since 1970
) WITHOUT ROWID;

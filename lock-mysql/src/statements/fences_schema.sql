CREATE TABLE IF NOT EXISTS {table} (
    -- What is protected, compared byte for byte: each server reads the other's collation as a comment.
    resource varchar(255) CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */ NOT NULL PRIMARY KEY,
    -- The greatest fencing token that was let in.
    fence bigint unsigned NOT NULL
)
ENGINE = InnoDB COMMENT = 'Resources that distlock protects from stale holders';

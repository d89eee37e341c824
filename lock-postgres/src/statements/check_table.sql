-- The server, the session, the table and our rights on it. $1 the quoted name of the table, $2 its bare name if the search path is to find it,
-- $3 its quoted schema otherwise
SELECT
    pg_is_in_recovery() AS in_recovery,
    current_setting('transaction_read_only') = 'on' AS read_only,
    -- What makes sessions read-only, undone where it was done.
    (
        SELECT CASE source
            WHEN 'database user' THEN format('ALTER ROLE %I IN DATABASE %I RESET %s', session_user, current_database(), name)
            WHEN 'user' THEN format('ALTER ROLE %I RESET %s', session_user, name)
            WHEN 'database' THEN format('ALTER DATABASE %I RESET %s', current_database(), name)
            WHEN 'global' THEN format('ALTER ROLE ALL RESET %s', name)
        END
        FROM pg_catalog.pg_settings
        WHERE name = 'default_transaction_read_only'
    ) AS lifted,
    current_user::text AS "user",
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    class.relkind IN ('r', 'p') AS is_table,
    class.relkind = 'p' AS partitioned,
    class.relpersistence::text AS persistence,
    row_security_active(class.oid) AS row_security,
    -- In a schema of the search path without USAGE a table looks as if it were missing.
    COALESCE(found.closed_schema, (
        SELECT namespace.nspname::text
        FROM pg_catalog.pg_class AS hidden
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = hidden.relnamespace
        WHERE hidden.relname = $2
          AND namespace.nspname IN (
              SELECT replace(btrim(part, ' "'), '$user', current_user)
              FROM unnest(string_to_array(current_setting('search_path'), ',')) AS part
          )
          AND NOT has_schema_privilege(namespace.oid, 'USAGE')
        LIMIT 1
    )) AS closed_schema,
    ARRAY(
        SELECT privilege
        FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS privilege
        WHERE NOT has_table_privilege(class.oid, privilege)
    ) AS missing_rights,
    ARRAY(
        SELECT tgname::text
        FROM pg_catalog.pg_trigger
        WHERE tgrelid = class.oid AND NOT tgisinternal AND tgenabled <> 'D'
        ORDER BY tgname
    ) AS triggers
FROM (
    -- The planner would evaluate what depends on no row, and be refused.
    SELECT closed_schema, to_regclass(CASE WHEN closed_schema IS NULL THEN $1 END) AS oid
    FROM (
        SELECT max(nspname::text) AS closed_schema
        FROM pg_catalog.pg_namespace
        WHERE oid = to_regnamespace($3) AND NOT has_schema_privilege(oid, 'USAGE')
    ) AS schema
) AS found
LEFT JOIN pg_catalog.pg_class AS class ON class.oid = found.oid

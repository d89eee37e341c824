-- The server, the session, the table and our rights on it. $1 the quoted name of the table, $2 its bare name if the search path is to find it
SELECT
    pg_is_in_recovery() AS in_recovery,
    current_setting('transaction_read_only') = 'on' AS read_only,
    current_user::text AS "user",
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    class.relkind IN ('r', 'p') AS is_table,
    class.relpersistence::text AS persistence,
    row_security_active(class.oid) AS row_security,
    -- In a schema of the search path without USAGE a table looks as if it were missing.
    (
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
    ) AS closed_schema,
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
FROM (SELECT to_regclass($1) AS oid) AS found
LEFT JOIN pg_catalog.pg_class AS class ON class.oid = found.oid

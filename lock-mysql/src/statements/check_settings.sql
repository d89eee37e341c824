-- The settings that lock statements, or what is promised of them, depend on; those that the server has.
SHOW VARIABLES WHERE variable_name IN (
    'binlog_format',
    'group_replication_single_primary_mode',
    'innodb_flush_log_at_trx_commit',
    'log_bin',
    'sync_binlog',
    'version',
    'wsrep_on'
)

# A new MySQL with the user of $PASSWORD, the time zones loaded, the disk flushed as in production.
set -eu
mkdir /srv/mysql
chown mysql /srv/mysql
mysqld --no-defaults --user=mysql --datadir=/srv/mysql/data --initialize-insecure
{
    echo 'USE mysql;'
    # It warns of every file there that is no zone.
    mysql_tzinfo_to_sql /usr/share/zoneinfo 2>/dev/null
    echo 'CREATE DATABASE distlock;'
    echo "CREATE USER 'distlock'@'%' IDENTIFIED BY '$PASSWORD';"
    echo "GRANT ALL ON *.* TO 'distlock'@'%' WITH GRANT OPTION;"
} >/srv/mysql/init.sql
exec mysqld --no-defaults --user=mysql --datadir=/srv/mysql/data --init-file=/srv/mysql/init.sql \
    --socket=/srv/mysql/mysql.sock --pid-file=/srv/mysql/mysql.pid --port=3306 \
    --skip-name-resolve --mysqlx=OFF --max-connections=500

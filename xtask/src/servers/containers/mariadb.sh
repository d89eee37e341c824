# A new MariaDB with the user of $PASSWORD, the time zones loaded, the disk flushed as in production.
set -eu
mkdir /srv/mariadb
chown mysql /srv/mariadb
mariadb-install-db --no-defaults --user=mysql --datadir=/srv/mariadb/data --skip-test-db \
    --auth-root-authentication-method=socket >/dev/null
{
    echo 'USE mysql;'
    # It warns of every file there that is no zone.
    mariadb-tzinfo-to-sql /usr/share/zoneinfo 2>/dev/null
} | mariadbd --no-defaults --user=mysql --datadir=/srv/mariadb/data --bootstrap
{
    echo 'CREATE DATABASE distlock;'
    echo "CREATE USER 'distlock'@'%' IDENTIFIED BY '$PASSWORD';"
    echo "GRANT ALL ON *.* TO 'distlock'@'%' WITH GRANT OPTION;"
} >/srv/mariadb/init.sql
exec mariadbd --no-defaults --user=mysql --datadir=/srv/mariadb/data --init-file=/srv/mariadb/init.sql \
    --socket=/srv/mariadb/mariadb.sock --pid-file=/srv/mariadb/mariadb.pid --port=3306 \
    --skip-name-resolve --performance-schema=ON --max-connections=500

# A PgBouncer in the network of the PostgreSQL of $PASSWORD. $SETTINGS are those of every place that it runs in.
set -eu
mkdir /srv/pgbouncer
cd /srv/pgbouncer
echo "\"distlock\" \"$PASSWORD\"" >users.txt
{
    echo '[databases]'
    echo '* = host=127.0.0.1 port=5432 auth_user=distlock'
    echo '[pgbouncer]'
    echo "$SETTINGS"
    echo 'listen_addr = *'
    echo 'listen_port = 6432'
    echo 'unix_socket_dir = /srv/pgbouncer'
    echo 'auth_file = /srv/pgbouncer/users.txt'
    echo 'admin_users = distlock'
} >pgbouncer.ini
chown -R nobody /srv/pgbouncer
exec setpriv --reuid=nobody --clear-groups "$(PATH=$PATH:/usr/sbin command -v pgbouncer)" pgbouncer.ini

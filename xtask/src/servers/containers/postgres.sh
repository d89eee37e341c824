# A new PostgreSQL with the role and database of $PASSWORD, the disk flushed as in production.
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
as_postgres() {
    setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
}
mkdir /srv/postgres
echo "$PASSWORD" >/srv/postgres/password
chown -R postgres /srv/postgres
cd /srv/postgres
as_postgres "$bin/initdb" --username=distlock --auth=scram-sha-256 --encoding=UTF8 --locale=C --no-sync \
    --pwfile=password --pgdata=data >/dev/null
echo 'host all all all scram-sha-256' >>data/pg_hba.conf
echo 'CREATE DATABASE distlock' | as_postgres "$bin/postgres" --single -D data postgres >/dev/null
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D data -p 5432 \
    -c 'listen_addresses=*' -c max_connections=300 -c unix_socket_directories=/srv/postgres

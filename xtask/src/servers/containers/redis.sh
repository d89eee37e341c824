# A new Redis or Valkey: no persistence, no password. Its port is published on this machine only.
set -eu
mkdir /srv/redis
server=$(command -v redis-server || command -v valkey-server)
set -- --bind 0.0.0.0 --protected-mode no --port 6379 --databases 16 --save '' --appendonly no --dir /srv/redis
case $("$server" --version) in
*v=6.*) ;;
*) set -- "$@" --enable-debug-command yes ;;
esac
exec "$server" "$@"

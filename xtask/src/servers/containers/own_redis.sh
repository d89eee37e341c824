# Stands for redis-server where a test starts one of its own: runs it in a container that ends when this program does, even
# by SIGKILL. It sees the folder of temporary files, where --dir and certificates are.
set -eu
folder= port= previous=
for argument; do
    case $previous in
    --dir) folder=$argument ;;
    --port) port=$argument ;;
    esac
    previous=$argument
done
name=distlock-own-redis-$port
# The one before, after a kill, may still be on its way out.
docker rm --force "$name" >/dev/null 2>&1 || true

# An input without end: docker holds it open, and once docker is gone, the container sees its end.
input=$folder/input
[ -p "$input" ] || mkfifo "$input"
temporary=${TMPDIR:-/tmp}
exec docker run --rm --interactive --name "$name" --label "$label" --network host \
    --user "$(id -u):$(id -g)" --volume "$temporary:$temporary" --entrypoint sh "$image" -c '
        server=$(command -v redis-server || command -v valkey-server)
        exec 3<&0
        "$server" "$@" &
        running=$!
        { cat <&3 >/dev/null; kill -9 $running; } &
        wait $running
    ' own-redis "$@" <>"$input"

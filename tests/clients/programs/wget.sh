# needs: wget
# debian: wget
. "$CHECK"
echo "version $(wget --version | head -n 1 | cut -d' ' -f3)"
export http_proxy=$PROXY https_proxy=$PROXY

# fetch WANTED ARGUMENT…
fetch() {
    local wanted=$1
    shift
    wget --quiet --server-response --timeout 20 --tries 1 --ca-certificate "$CA" -O body "$@" 2>head || { cat head; return 1; }
    same "$wanted" "$(cat body)"
}
get() { fetch "$hello" "$http/" && served_by_gateway head; }
resume() {
    printf 0123456789abcdef >part
    wget --quiet --timeout 20 --tries 1 --continue -O part "$http/bytes/16"
    same 0123456789abcdef "$(cat part)"
}
mirror() {
    wget --quiet --timeout 20 --tries 1 --recursive --level 1 --no-directories --directory-prefix mirror "$http/" "$http/bytes/40"
    same "$hello" "$(cat mirror/index.html)" && same 40 "$(stat --format %s mirror/40)"
}

check http "GET" get
check http "POST" fetch "some words" --post-data "some words" "$http/echo"
check http "redirect" fetch "$hello" "$http/redirect"
check http "--continue" resume
check http "--recursive" mirror
check https "GET" fetch "$hello" "$https/"
check https "POST" fetch "some words" --post-data "some words" "$https/echo"

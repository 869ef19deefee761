# needs: curl
# debian: curl
# quick: yes
. "$CHECK"
echo "version $(curl --version | cut -d' ' -f2 | head -n 1)"

# fetch WANTED ARGUMENT…: the body is WANTED, and the gateway says that it served it.
fetch() {
    local wanted=$1
    shift
    rm -f head body
    curl --silent --show-error --max-time 20 --cacert "$CA" --dump-header head --output body "$@" &&
        same "$wanted" "$(cat body 2>/dev/null)" && served_by_gateway head
}
status() { same "$1" "$(grep '^HTTP/' head | tail -n 1 | cut -d' ' -f2)"; }

by_environment() { http_proxy=$PROXY fetch "$hello" "$http/"; }
http_1_0() { fetch "$hello" --http1.0 -x "$PROXY" "$http/" && status 200; }
head_request() { curl --silent --max-time 20 --head -x "$PROXY" "$http/" >head && served_by_gateway head && grep -qi '^content-length: 22' head; }
redirect() { fetch "$hello" --location -x "$PROXY" "$http/redirect"; }
reuse() {
    fetch "$hello" -x "$PROXY" "$http/" --next --silent -x "$PROXY" --dump-header head2 --output body2 \
        --write-out '%{num_connects}' "$http/?second" >connects &&
        same "$hello /?second" "$(cat body2)" && same 0 "$(cat connects)"
}
download() {
    curl --silent --max-time 20 "$@" "$http/bytes/5000000" >large && same 5000000 "$(stat --format %s large)" &&
        same "$(head -c 5000000 < <(while :; do printf 0123456789abcdef; done) | sha256sum)" "$(sha256sum <large)"
}
# upload FRAMING ARGUMENT…: what the origin read is what was sent, framed as it was sent.
upload() {
    local framing=$1
    shift
    head -c 300000 /dev/urandom | base64 --wrap 0 >sent
    fetch "$(cat sent)" "$@" "$http/echo" && grep -qi "^x-framing: $framing" head
}
expect() {
    # The wait for 100 is longer than --max-time: without the origin's own 100 this cannot end well.
    upload length -x "$PROXY" --expect100-timeout 60 --header "Expect: 100-continue" --data-binary @sent &&
        grep -q '^HTTP/1.1 100' head && grep -qi '^x-continue: true' head
}
refused() {
    head -c 50000000 /dev/zero >huge
    fetch "too much" -x "$PROXY" --expect100-timeout 60 --header "Expect: 100-continue" --data-binary @huge \
        --write-out '%{size_upload}' "$http/refuse" >uploaded && status 413 && same 0 "$(cat uploaded)"
}

check http "-x" fetch "$hello" -x "$PROXY" "$http/"
check http "http_proxy" by_environment
check http "--http1.0" http_1_0
check http "HEAD" head_request
check http "redirect" redirect
check http "chunked answer" fetch $'one two three' -x "$PROXY" "$http/chunked"
check http "two requests on one connection" reuse
check http "5 MB download" download -x "$PROXY"
check http "POST with a length" upload length -x "$PROXY" --header "Expect:" --data-binary @sent
check http "POST chunked" upload chunked -x "$PROXY" --header "Expect:" --header "Transfer-Encoding: chunked" --data-binary @sent
check http "PUT from standard input" upload chunked -x "$PROXY" --upload-file - --expect100-timeout 60 < <(sleep 0.2; cat sent)
check http "Expect, 100-continue" expect
check http "Expect, refused early" refused
check https "-x" fetch "$hello" -x "$PROXY" "$https/"
check https "https_proxy" env https_proxy="$PROXY" bash -c "$(declare -f fetch same served_by_gateway); fetch '$hello' '$https/'"
check https "-p to http" fetch "$hello" -p -x "$PROXY" "$http/"
check https "--proxytunnel with --http1.0" fetch "$hello" --http1.0 --proxytunnel -x "$PROXY" "$http/"
check https "--proxy1.0" fetch "$hello" --proxy1.0 "${PROXY#http://}" "$https/"
check https "5 MB download by -p" download -p -x "$PROXY"
check https "POST chunked by -p" upload chunked -p -x "$PROXY" --header "Transfer-Encoding: chunked" --data-binary @sent

if curl --version | grep -qw ws; then
    websocket() { curl --silent --max-time 5 -x "$PROXY" --dump-header head "ws://$ORIGIN/ws" </dev/null; grep -q '^HTTP/1.1 101' head; }
    check ws "ws" websocket
else
    echo "skip ws ws: this curl was built without it"
fi

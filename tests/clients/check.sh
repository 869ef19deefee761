# For the clients that are shell scripts: . "$CHECK"

http=http://$ORIGIN https=https://$ORIGIN
hello="hello from the origin"

# check COLUMN NAME COMMAND…: passes when COMMAND does.
check() {
    local column=$1 name=$2 why
    shift 2
    if why=$("$@" 2>&1); then
        echo "pass $column $name"
    else
        echo "fail $column $name: $(tail -n 4 <<<"$why" | tr '\n' ' ')"
    fi
}

# same WANTED GOT
same() {
    [[ $1 == "$2" ]] || { echo "wanted '${1:0:200}', got '${2:0:200}'"; return 1; }
}

# served_by_gateway FILE: the heads in FILE say which upstream proxy served them.
served_by_gateway() {
    grep -qi '^ *proxy-status: evenkeel; next-hop=' "$1" || { echo "no Proxy-Status in: $(tr -d '\r' <"$1" | tr '\n' '|')"; return 1; }
}
